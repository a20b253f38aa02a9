"""The accelerator under cocotb: host code and RTL on the memories of cocotbext-axi.

The memories stall at random, and a checker follows each master. The golden model runs the same
random commands; its results must be equal.
"""

import json
import os
from random import Random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, FallingEdge
from cocotbext.axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiRam,
    AxiRamRead,
    AxiRamWrite,
    AxiReadBus,
    AxiWriteBus,
)
from hotrow_rtl.cli import variant
from hotrow_rtl.contract.encoding import IDENTITY, Opcode, Status, packed_address
from hotrow_rtl.contract.registers import ControlBits, QueueStateBits, StatusBits
from hotrow_sim.bench.axi_rules import READ, WRITE, AxiRules
from hotrow_sim.bench.host_arrays import HostArrays
from hotrow_sim.model import open_transport as open_model

from tests.support.bare_host import BareHost, aligned
from tests.support.cosim.pins import reset
from tests.support.cosim.transport import CosimTransport
from tests.support.fuzz.player import differences, play
from tests.support.fuzz.rounds import RoundSource
from tests.support.fuzz.setup import LISTS, RESULTS, FuzzHost, make_setup

CONFIG = variant("tiny", json.loads(os.environ["SETTINGS"]))
ROUNDS, SEED = int(os.environ["ROUNDS"]), int(os.environ["SEED"])
TABLES = json.loads(os.environ["TABLES"])  # numbers of those that the host registers
TIMEOUT, SPAN = 300, 8192  # cycles; bytes of 16 pieces, on both row ports
CHANNELS = {"list": READ, **{f"row{number}": READ + WRITE for number in range(CONFIG.row_ports)},
            "result0": WRITE}


class Card:
    """The accelerator, a memory at each of its buses, and their checkers.

    Parameters
    ----------
    dut : simulator handle
    stalls : float
        Share of the cycles in which a channel of a memory stalls.

    Attributes
    ----------
    slaves : dict of str to cocotbext-axi's stream
        By bus and channel, as "row0 r".
    """

    def __init__(self, dut, stalls):
        self.dut, self.stalls = dut, stalls
        self.memory, self.slaves = HostArrays(), {}
        self.rules = {name: AxiRules(channels, CONFIG.bus_bytes)
                      for name, channels in CHANNELS.items()}

    async def start(self):
        dut, named = self.dut, {"clock": self.dut.clk, "reset": self.dut.rst, "mem": self.memory}
        Clock(dut.clk, 10, unit="ns").start()
        for name, channels in CHANNELS.items():
            kind, bus = {READ: (AxiRamRead, AxiReadBus), WRITE: (AxiRamWrite, AxiWriteBus),
                         READ + WRITE: (AxiRam, AxiBus)}[channels]
            ram = kind(bus.from_prefix(dut, f"m_axi_{name}"), **named)
            for half in (ram.read_if, ram.write_if) if kind is AxiRam else (ram,):
                half.log.disabled = True
                for channel in ("ar", "r", "aw", "w", "b"):
                    if hasattr(half, f"{channel}_channel"):
                        self.slaves[f"{name} {channel}"] = getattr(half, f"{channel}_channel")
            cocotb.start_soon(self._check(name))
        for name in self.slaves:
            self.answer(name)
        master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        for half in (master.read_if, master.write_if):
            half.log.disabled = True
        await reset(dut)
        return CosimTransport(dut, master, self.memory, CONFIG)

    def answer(self, name):
        """Let a channel of a memory move."""
        rng, stalls = Random(name), self.stalls
        self.slaves[name].set_pause_generator(
            (rng.random() < stalls for _ in iter(int, 1)) if stalls else None)
        self.slaves[name].pause = False

    def silence(self, name):
        """Stall a channel of a memory for good."""
        self.slaves[name].set_pause_generator(None)
        self.slaves[name].pause = True

    async def _check(self, name):
        rules, dut = self.rules[name], self.dut
        pins = {pin: getattr(dut, f"m_axi_{name}_{pin}") for pin in rules.pins}

        def value(pin):
            found = pins[pin].value
            if found.is_resolvable:
                return int(found)
            return str(found) if pin.endswith("data") else None  # lanes without strobes

        while True:
            await FallingEdge(dut.clk)
            rules.cycle(value, bool(dut.rst.value))

    def check(self):
        """Every master has obeyed the rules, and nothing is in flight."""
        for name, rules in self.rules.items():
            assert not rules.broken, f"{name}: {rules.broken[:5]}"
            assert rules.idle, f"{name}: a burst was not answered"
        assert not self.memory.strays


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(stalls=[0.0, 0.4])
async def random_commands_equal_the_model(dut, stalls):
    card = Card(dut, stalls)
    transport = await card.start()

    def host_code():
        setup = make_setup(np.random.default_rng(11), CONFIG)
        for number in set(setup.tables) - set(TABLES):
            del setup.tables[number]
        hosts = [FuzzHost(opened, setup, 3, leaves=False)  # the memories know one error only
                 for opened in (open_model(config=CONFIG), transport)]
        source = RoundSource(np.random.default_rng(SEED), CONFIG, setup, 8)
        for number in range(ROUNDS):
            drawn = source.draw()
            unequal = differences(*(play(host, drawn) for host in hosts))
            assert not unequal, f"round {number}, model and RTL differ:\n" + "\n".join(unequal)

    await bridge(host_code)()
    card.check()
    assert all(sum(rules.bursts.values()) for rules in card.rules.values())


def copy():
    """The operands of a COPY over both row ports."""
    return {"opcode": Opcode.COPY, "source": packed_address(LISTS, 0), "count": SPAN,
            "destination": packed_address(RESULTS, 0)}


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(silent=[f"{name} {channel[0]}" for name, channels in CHANNELS.items()
                            for channel in channels])
async def a_silent_memory_ends(dut, silent):
    """A channel that stalls for good ends as TIMEOUT. Every soft reset becomes ready, and the card
    works again after one that follows the late answers."""
    card = Card(dut, 0.0)
    transport = await card.start()

    @resume
    async def change(silent_now):
        (card.silence if silent_now else card.answer)(silent)
        await ClockCycles(dut.clk, 100)

    def soft_reset(host):
        host.write("CONTROL", ControlBits.SOFT_RESET)
        host.await_ready()
        return host.read("STATUS") & ~StatusBits.READY

    def host_code():
        host = BareHost(transport)
        assert host.read("IDENTITY") == IDENTITY
        assert host.run("lookup", opcode=0x7F)["status"] == Status.BAD_OPCODE
        buffers = [aligned(SPAN) for _ in range(2)]
        buffers[0][:] = np.random.default_rng(5).integers(0, 256, SPAN)
        for handle, octets in zip((LISTS, RESULTS), buffers, strict=True):
            host.register(handle, octets)
        host.write("TIMEOUT", TIMEOUT)
        change(True)
        host.submit("move", **copy())
        host.ring("move")
        if silent.startswith("row"):
            host.wait("move")
            assert host.completion("move", 1)["status"] == Status.TIMEOUT
        for _ in range(100):
            stopped = host.read("STATUS") & ~StatusBits.READY
        assert stopped
        if not silent.startswith("row"):
            assert host.read("MOVE_STATE") & QueueStateBits.FAULTED
        assert [soft_reset(host) for _ in range(2)] == [stopped] * 2
        change(False)
        assert not soft_reset(host)
        host.enable("move")
        assert host.run("move", **copy())["status"] == Status.OK
        assert (buffers[0] == buffers[1]).all()

    await bridge(host_code)()
    card.check()
