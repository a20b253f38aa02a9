"""The accelerator's restart and ready signals, with stand-ins for all units but the registers."""

from dataclasses import replace

import pytest
from amaranth import Module
from amaranth.lib import wiring
from hotrow_rtl import top
from hotrow_rtl.config import preset
from hotrow_rtl.contract.registers import StatusBits

from tests.support.axi_lite_master import AXI4LiteMaster
from tests.support.simulation import Simulation

CONFIG = replace(preset("tiny"), result_ports=2)
RESTARTED_AND_CLEARED = ("CommandQueue", "LookupEngine", "RowMover", "EventCounters")
CLEARED = (*RESTARTED_AND_CLEARED, "QueueRegions")
PORTS = ("DmaReadPort", "DmaWritePort", "RowMover")
RESTARTED = (*RESTARTED_AND_CLEARED, *PORTS, "WriteArbiter")


class Card:
    """The top with units that do nothing; the test sets their outputs."""

    def __init__(self, monkeypatch):
        self.units = {}
        for name in dict.fromkeys((*RESTARTED, *CLEARED, "EngineWatchdog")):
            monkeypatch.setattr(top, name, self._stand_in(getattr(top, name)))
        self.dut = top.Top(CONFIG)
        self.module = self.dut.elaborate(None)  # makes the units
        self.master = AXI4LiteMaster(self.dut.registers)

    def _stand_in(self, real):
        def make(*arguments, **options):
            unit = real(*arguments, **options)

            class StandIn(wiring.Component):
                real, striped = unit, getattr(unit, "striped", ())

                def elaborate(self, platform):
                    return Module()
            made = StandIn(unit.signature)
            self.units.setdefault(real.__name__, []).append(made)
            return made
        return make

    def all(self, names):
        return [unit for name in names for unit in self.units[name]]

    def run(self, scenario, background=None):
        async def prepared(ctx):
            for unit in self.all(PORTS):
                ctx.set(unit.idle, 1)
            await scenario(ctx)
        simulation = Simulation(self.module)
        simulation.add(prepared)
        if background:
            simulation.add(background, background=True)
        simulation.run()

    async def ready(self, ctx):
        return await self.master.read_value(ctx, "STATUS") & 1

    async def become_ready(self, ctx):
        for unit in self.all(CLEARED):
            ctx.set(unit.ready, 1)
        await ctx.tick().repeat(4)
        assert await self.ready(ctx)


@pytest.fixture
def card(monkeypatch):
    return Card(monkeypatch)


def test_the_card_is_ready_once_every_unit_has_cleared_its_memories(card):
    async def scenario(ctx):
        units = card.all(CLEARED)
        assert len(units) == 6
        for last in units:
            for unit in units:
                ctx.set(unit.ready, unit is not last)
            await ctx.tick().repeat(4)
            assert not await card.ready(ctx), type(last.real).__name__
        await card.become_ready(ctx)
        ctx.set(units[0].ready, 0)
        await ctx.tick().repeat(4)
        assert await card.ready(ctx), "a memory that a command clears is the queue's matter"
    card.run(scenario)


def test_a_soft_reset_restarts_every_unit_once(card):
    units = [unit for name in dict.fromkeys(RESTARTED) for unit in card.units[name]]
    counts = [0] * len(units)

    async def scenario(ctx):
        await card.become_ready(ctx)
        await card.master.write(ctx, "CONTROL", 1)
        await ctx.tick().repeat(10)
        assert counts == [1] * 9, [type(unit.real).__name__ for unit in units]

    async def watch(ctx):
        async for _, _, *restarts in ctx.tick().sample(*(unit.restart for unit in units)):
            counts[:] = map(sum, zip(counts, restarts, strict=True))
    card.run(scenario, watch)


def test_the_card_is_ready_after_a_soft_reset_once_every_port_is_idle(card):
    async def scenario(ctx):
        await card.become_ready(ctx)
        ports = card.all(PORTS)
        assert len(ports) == 4
        for last in ports:
            ctx.set(last.idle, 0)
            await ctx.tick().repeat(4)
            assert await card.ready(ctx), "a port at work"
            await card.master.write(ctx, "CONTROL", 1)
            await ctx.tick().repeat(10)
            assert not await card.ready(ctx), "a port drains"
            ctx.set(last.idle, 1)
            await ctx.tick().repeat(4)
            assert await card.ready(ctx)
    card.run(scenario)


def test_a_soft_reset_while_ports_drain(card):
    """The second one may come when the ports have just drained."""
    [mover] = card.units["RowMover"]

    async def scenario(ctx):
        await card.become_ready(ctx)
        for cycles in range(32, 48):
            await card.master.write(ctx, "CONTROL", 1)
            await ctx.tick().repeat(cycles)
            await card.master.write(ctx, "CONTROL", 1)
            assert not await card.ready(ctx), f"{cycles} cycles after the first one"
            await ctx.tick().repeat(60)
            assert await card.ready(ctx)

    async def clear(ctx):
        while True:
            await ctx.tick().until(mover.restart)
            ctx.set(mover.idle, 0)
            await ctx.tick().repeat(40)
            ctx.set(mover.idle, 1)
    card.run(scenario, clear)


def test_only_a_handshake_is_progress_of_its_queue(card):
    lookup, move = card.units["CommandQueue"]
    [engine], [mover], [list_port] = (
        card.units[name] for name in ("LookupEngine", "RowMover", "DmaReadPort"))
    [watchdog] = card.units["EngineWatchdog"]
    channels = [(queue, valid, ready) for queue, (host, unit) in enumerate((
        (lookup.engine, engine.engine), (move.engine, mover.engine))) for valid, ready in (
            (host.command.valid, unit.command.ready), (unit.outcome.valid, host.outcome.ready))]
    for unit, bus in ((mover.read_buses, "row_read_bus"), (mover.write_buses, "row_write_bus")):
        for number, inner in enumerate(unit):
            outer = getattr(card.dut, f"{bus}_{number}")
            channels += [(1, getattr(inner, f"{name}valid"), getattr(outer, f"{name}ready"))
                         for name in ("ar", "aw", "w") if hasattr(inner, f"{name}valid")]
            channels += [(1, getattr(outer, f"{name}valid"), getattr(inner, f"{name}ready"))
                         for name in ("r", "b") if hasattr(inner, f"{name}valid")]

    async def check(ctx, queue, valid, ready, where):
        for pair in ((1, 0), (0, 1), (1, 1)):
            for signal, value in zip((valid, ready), pair, strict=True):
                ctx.set(signal, value)
            await ctx.tick().repeat(2)
            assert ctx.get(watchdog.progress) == all(pair) << queue, (where, pair)
        ctx.set(valid, 0)
        ctx.set(ready, 0)

    async def scenario(ctx):
        await ctx.tick().repeat(2)
        for number, channel in enumerate(channels):
            await check(ctx, *channel, f"channel {number}")
        for idx, name in enumerate(top.list_clients(CONFIG)):
            ctx.set(list_port.bus.arid, idx)
            await check(ctx, top.LIST_CLIENTS[name].queue, list_port.bus.arvalid,
                        card.dut.list_bus.arready, name)
    card.run(scenario)


def test_each_queue_has_its_engine_watched(card):
    queues, [watchdog] = card.units["CommandQueue"], card.units["EngineWatchdog"]

    async def scenario(ctx):
        for idx, queue in enumerate(queues):
            ctx.set(queue.engine_busy, 1)
            ctx.set(watchdog.stalled, 1 << idx)
            await ctx.tick().repeat(2)
            assert ctx.get(watchdog.waiting) == 1 << idx
            assert [ctx.get(each.engine_stalled) for each in queues] == [
                each is queue for each in queues]
            ctx.set(queue.engine_busy, 0)
            await ctx.tick().repeat(2)
            assert not ctx.get(watchdog.waiting)
    card.run(scenario)


def test_one_time_out_is_every_ports_and_each_stop_has_its_bit(card):
    [list_port], results, [mover], [watchdog] = (card.units[name] for name in (
        "DmaReadPort", "DmaWritePort", "RowMover", "EngineWatchdog"))
    stops = [(list_port.stopped, StatusBits.LIST_PORT),
             *((port.stopped, StatusBits.RESULT_PORTS) for port in results),
             (mover.read_stopped, StatusBits.ROW_READS),
             (mover.write_stopped, StatusBits.ROW_WRITES)]

    async def scenario(ctx):
        await card.master.write(ctx, "TIMEOUT", 12_345)
        await ctx.tick().repeat(2)
        for unit in (list_port, *results, mover, watchdog):
            assert ctx.get(unit.timeout) == 12_345, type(unit.real).__name__
        before = await card.master.read_value(ctx, "STATUS")
        for signal, bit in stops:
            ctx.set(signal, 1)
            assert await card.master.read_value(ctx, "STATUS") == before | bit
            ctx.set(signal, 0)
    card.run(scenario)


@pytest.mark.parametrize("outstanding", [16, 512])
def test_lists_of_one_row_port_have_small_buffers(outstanding):
    """They hold an entry for each row in flight; several ports have buffers in block RAM."""
    one = replace(preset("tiny"), row_ports=1, outstanding=outstanding)
    words = {name: top.shallow_lists(one)[name] * one.bus_bytes for name in ("rows", "targets")}
    assert words["rows"] >= 8 * outstanding and words["targets"] >= 4 * outstanding
    assert words["rows"] <= max(8 * outstanding, 32 * one.bus_bytes)
    assert not {"rows", "targets"} & set(top.shallow_lists(replace(one, row_ports=2)))
