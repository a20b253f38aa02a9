"""The accelerator under cocotb: host code, RTL and memory model.

The golden model runs the same random commands; its results must be equal.
"""

import os

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import IDENTITY, Opcode, Status
from hotrow_sim.memory import Behaviour, MemoryModel
from hotrow_sim.model import open_transport as open_model

from tests.support.bare_host import BareHost
from tests.support.cosim.memory_ports import read_responder, reset, write_responder
from tests.support.cosim.transport import CosimTransport
from tests.support.fuzz.player import differences, play
from tests.support.fuzz.rounds import RoundSource
from tests.support.fuzz.setup import FuzzHost, make_setup

CONFIG = preset("tiny")
ROUNDS = int(os.environ["ROUNDS"])
MEMORY = Behaviour(latency=10, jitter=8, stall_address=0.2, stall_data=0.2, stall_response=0.2,
                   out_of_order=True, interleave=True, seed=2)


async def start(dut):
    """Attach memory and register master, reset; return (transport, memory)."""
    memory = MemoryModel()
    Clock(dut.clk, 10, unit="ns").start()
    rows = [f"row{number}" for number in range(CONFIG.row_ports)]
    for make, responder, names in ((memory.read_port, read_responder, ["list", *rows]),
                                   (memory.write_port, write_responder, [*rows, "result0"])):
        for name in names:
            cocotb.start_soon(responder(dut, f"m_axi_{name}_", make(CONFIG.bus_bytes, MEMORY)))
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
    await reset(dut)
    return CosimTransport(dut, master, memory, CONFIG), memory


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def commands_complete(dut):
    transport, memory = await start(dut)

    def host_code():
        host = BareHost(transport)
        assert host.read("IDENTITY") == IDENTITY
        for queue in ("lookup", "move"):
            done = host.run(queue, opcode=Opcode.NOP, tag=77)
            assert (done["tag"], done["status"], done["sequence"]) == (77, Status.OK, 1)
            assert host.run(queue, opcode=0x7F)["status"] == Status.BAD_OPCODE

    await bridge(host_code)()
    memory.check()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def random_commands_equal_the_model(dut):
    transport, memory = await start(dut)

    def host_code():
        setup = make_setup(np.random.default_rng(11), CONFIG)
        hosts = [FuzzHost(opened, setup, 3)
                 for opened in (open_model(config=CONFIG), transport)]
        source = RoundSource(np.random.default_rng(12), CONFIG, setup, 8)
        for number in range(ROUNDS):
            drawn = source.draw()
            unequal = differences(*(play(host, drawn) for host in hosts))
            assert not unequal, f"round {number}, model and RTL differ:\n" + "\n".join(unequal)

    await bridge(host_code)()
    memory.check()
