"""Outputs that must not depend on a late input of the same cycle: the paths would be too long."""

import numpy as np
import pytest
from amaranth import Value
from amaranth.sim import Simulator
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Opcode
from hotrow_rtl.interfaces.records import command
from hotrow_rtl.lookup.dispatch.issue import LookupIssue
from hotrow_rtl.memory.axi import AXI4Write
from hotrow_rtl.mover.engine import LaneMerger
from hotrow_rtl.mover.port.payloads import aligned_transfer
from hotrow_rtl.mover.port.row_stream import RowStream
from hotrow_rtl.pcie.bridge import PacketArbiter
from hotrow_rtl.pcie.write_sender import WriteSender

from tests.support.restart_harness import payload

TINY = preset("tiny")
WRITES = AXI4Write(address_width=40, bus_bytes=8, id_width=2)
CASES = {
    "LaneMerger": (lambda: LaneMerger(8, 4), "merged.ready",
                   [f"elements.{lane}.ready" for lane in range(4)]),
    "RowStream": (lambda: RowStream(TINY), "words.ready", ["rows.valid"]),
    "PacketArbiter": (lambda: PacketArbiter(64, 3), "packets.1.valid", ["packets.1.ready"]),
    "WriteSender": (lambda: WriteSender([WRITES] * 2), "bus_1.bready",
                    ["segments.ready", "words.ready", "packets.valid"]),
    "LookupIssue": (lambda: LookupIssue(TINY), "command.payload",
                    ["jobs.valid", "jobs.payload", "lists.valid", "kinds.valid", "reader.valid"]),
}
DRAWN = {
    "aligned.payload": payload(aligned_transfer(TINY), alignment__words_minus_1=1),
    "command.payload": payload(
        command, opcode=lambda rng: rng.choice([Opcode.OBSERVE, Opcode.SPLIT, Opcode.HARVEST,
                                                Opcode.INSTALL, Opcode.PLAN])),
}


@pytest.mark.parametrize("name", CASES)
def test_no_path(name):
    """Any inputs in any cycle: another value of the late one leaves the outputs as they are."""
    make, late, outputs = CASES[name]
    unit, rng, seen = make(), np.random.default_rng(1), set()
    ports = {".".join(map(str, path)): (member.flow.name == "In", Value.cast(value))
             for path, member, value in unit.signature.flatten(unit)}

    def draw(port):
        width = len(ports[port][1])
        drawn = DRAWN.get(port, lambda rng: int.from_bytes(rng.bytes(width // 8 + 1), "little"))
        return int(drawn(rng)) & (1 << width) - 1

    async def play(ctx):
        for _ in range(300):
            for port, (is_input, signal) in ports.items():
                if is_input:
                    ctx.set(signal, draw(port))
            values = [ctx.get(ports[output][1]) for output in outputs]
            for _ in range(4):
                ctx.set(ports[late][1], draw(late))
                assert [ctx.get(ports[output][1]) for output in outputs] == values
            seen.add(tuple(values))
            await ctx.tick()
    simulator = Simulator(unit)
    simulator.add_clock(1e-8)
    simulator.add_testbench(play)
    simulator.run()
    assert len(seen) > 1
