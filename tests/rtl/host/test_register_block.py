"""The register block, with all orders of the AXI4-Lite handshakes."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import PRESETS, preset
from hotrow_rtl.contract.encoding import IDENTITY, QUEUES, VERSION
from hotrow_rtl.contract.registers import GEOMETRY, REGISTERS, Access, registers_of
from hotrow_rtl.host.register_block import _WITH_LOGIC, RegisterBlock

from tests.support.axi_lite_master import AXI4LiteMaster
from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

OKAY, SLVERR = 0, 2
CONFIG = preset("tiny")
UNKNOWN = 1 << 2
STORED = [name for name, register in REGISTERS.items()
          if register.access is Access.READ_WRITE and name not in _WITH_LOGIC]


def run(scenario, config=CONFIG, limit=20000, **delays):
    """Run `scenario(ctx, dut, master)` on a register block."""
    dut = built(RegisterBlock, config)
    bench = StreamBench(dut)
    bench.process("scenario", lambda ctx: scenario(ctx, dut, AXI4LiteMaster(dut.bus, **delays)))
    bench.run(limit)


def collect(dut, enable, *members):
    """Return a background process and the list of `members` at each pulse of `enable`."""
    seen = []

    async def watch(ctx):
        async for _, _, pulse, *values in ctx.tick().sample(enable, *members):
            if pulse:
                seen.append(tuple(values))
    return watch, seen


def serve_events(port, values):
    """Behave like the event counters, on a list of values."""
    async def serve(ctx):
        ctx.set(port.request.ready, 1)
        while True:
            _, _, valid, request = await ctx.tick().sample(port.request.valid, port.request.p)
            if not valid:
                continue
            ctx.set(port.request.ready, 0)
            ctx.set(port.reply.p, values[request.event])
            if request.write:
                values[request.event] = request.value
            ctx.set(port.reply.valid, 1)
            accepted = False
            while not accepted:
                _, _, accepted = await ctx.tick().sample(port.reply.ready)
            ctx.set(port.reply.valid, 0)
            ctx.set(port.request.ready, 1)
    return serve


@pytest.mark.parametrize("config", [*PRESETS.values(),
                                    replace(CONFIG, name="own", events=2, tables=2, handles=8)],
                         ids=lambda config: config.name)
def test_geometry_equals_the_configuration(config):
    async def scenario(ctx, dut, master):
        assert await master.read_value(ctx, "IDENTITY") == IDENTITY
        assert await master.read_value(ctx, "VERSION") == VERSION
        for register, _, parameter in GEOMETRY:
            value = await master.read_value(ctx, register)
            assert value == getattr(config, parameter), register
    run(scenario, config)


@pytest.mark.parametrize("address_delay, data_delay", [(0, 0), (3, 0), (0, 3)],
                         ids=["together", "data first", "address first"])
@pytest.mark.parametrize("response_delay", [0, 4], ids=["ready", "back-pressure"])
def test_registers_return_the_value_written(address_delay, data_delay, response_delay):
    """Each plain register stores random words; a write replaces only bytes with a strobe."""
    rng = np.random.default_rng(3)
    values = dict.fromkeys(STORED, 0)

    async def scenario(ctx, dut, master):
        for name in rng.permutation(STORED * 2):
            value, strobe = int(rng.integers(1 << 32)), int(rng.integers(16))
            assert await master.write(ctx, str(name), value, strobe) == OKAY
            mask = sum(0xFF << 8 * i for i in range(4) if strobe >> i & 1)
            values[name] = values[name] & ~mask | value & mask
        for name in STORED:
            assert await master.read_value(ctx, name) == values[name], name
    run(scenario, address_delay=address_delay, data_delay=data_delay,
        response_delay=response_delay)
    assert sum(map(bool, values.values())) > len(STORED) * 3 // 4, "most are written"


PLANNER = replace(CONFIG, planner=True)


@pytest.mark.parametrize("config", [CONFIG, PLANNER], ids=["usual", "planner"])
def test_every_register_answers(config):
    """Exactly the offsets of the contract are known."""
    async def scenario(ctx, dut, master):
        known = {register.offset: register for register in registers_of(config).values()}
        for offset in [*range(0, 0x200, 4), 0x200, 0x7FC, 0xFFC]:
            ctx.set(dut.events.request.ready, 1)  # EVENT_VALUE reads a counter
            ctx.set(dut.events.reply.valid, 1)
            value, response = await master.read(ctx, offset)
            assert response == (OKAY if offset in known else SLVERR), hex(offset)
            if offset not in known or known[offset].access is Access.WRITE_ONLY:
                assert value == 0
        assert await master.read_value(ctx, "FAULT") == UNKNOWN
    run(scenario, config)


def test_retirements_reach_the_planner():
    async def scenario(ctx, dut, master):
        host = dut.retirement
        ctx.set(host.retired, 0xFFFF_FFFF)
        assert await master.read_value(ctx, "PLAN_RETIRED") == 0xFFFF_FFFF
        assert await master.read_value(ctx, "PLAN_WINDOW") == PLANNER.sweep_batches
        assert await master.write(ctx, "PLAN_RETIRED", 7) == OKAY
        assert ctx.get(host.number) == 7
        ctx.set(host.refused, 1)
        await ctx.tick()
        ctx.set(host.refused, 0)
        assert await master.read_value(ctx, "FAULT") == 1 << 3
        assert await master.write(ctx, "FAULT", 1 << 3) == OKAY
        assert await master.read_value(ctx, "FAULT") == 0
    run(scenario, PLANNER)


@pytest.mark.parametrize("register", ["IDENTITY", "BUS_BYTES", "STATUS", "CYCLE_HIGH",
                                      "LOOKUP_HEAD", "MOVE_STATE"])
def test_a_write_to_a_read_only_register_is_ignored(register):
    async def scenario(ctx, dut, master):
        before = await master.read_value(ctx, register)
        assert await master.write(ctx, register, 0xFFFF_FFFF) == OKAY
        assert await master.read_value(ctx, register) == before
        assert await master.read_value(ctx, "FAULT") == 0
    run(scenario)


def test_faults_are_sticky_and_cleared_one_by_one():
    async def scenario(ctx, dut, master):
        for queue in range(2):
            ctx.set(dut.queues[queue].refused, 1)
            await ctx.tick()
            ctx.set(dut.queues[queue].refused, 0)
        assert await master.write(ctx, 0x1F0, 1) == SLVERR
        assert await master.read_value(ctx, "FAULT") == 0b111
        await master.write(ctx, "FAULT", 0b010)
        assert await master.read_value(ctx, "FAULT") == 0b101
        await master.write(ctx, "FAULT", 0b111, strobe=0b1110)
        assert await master.read_value(ctx, "FAULT") == 0b101
    run(scenario)


def test_interrupts():
    async def scenario(ctx, dut, master):
        async def complete(queue):
            ctx.set(dut.queues[queue].completed_pulse, 1)
            await ctx.tick()
            ctx.set(dut.queues[queue].completed_pulse, 0)
            await ctx.tick()

        await complete(0)
        assert await master.read_value(ctx, "INTERRUPT") == 0b01
        assert not ctx.get(dut.interrupt), "not enabled"
        await master.write(ctx, "CONTROL", 0b100)
        assert not ctx.get(dut.interrupt), "the other queue is enabled"
        await complete(1)
        assert ctx.get(dut.interrupt)
        await master.write(ctx, "INTERRUPT", 0b10)
        assert await master.read_value(ctx, "INTERRUPT") == 0b01
        assert not ctx.get(dut.interrupt)
        assert await master.read_value(ctx, "CONTROL") == 0b100
        await master.write(ctx, "CONTROL", 0b010)
        assert ctx.get(dut.interrupt)
    run(scenario)


def test_an_event_in_the_cycle_of_its_clear_is_kept():
    """The host has not seen it: the interrupt stays pending."""
    async def scenario(ctx, dut, master):
        event, ends = dut.queues[0].completed_pulse, []
        await master.write(ctx, "CONTROL", 0b010)

        async def clear(at):
            """Write INTERRUPT with a completion in cycle `at`; the cycle in which it falls."""
            ctx.set(event, 1)
            await ctx.tick()
            ctx.set(event, 0)
            await ctx.tick()
            calls.append((event, at))
            await master.write(ctx, "INTERRUPT", 0b01)
            await ctx.tick().repeat(5)
            pending = await master.read_value(ctx, "INTERRUPT")
            await master.write(ctx, "INTERRUPT", 0b01)
            ends.append(pending)

        for at in (None, *range(12)):
            await clear(at)
        fell = falls[0]
        assert ends[0] == 0 and fell is not None
        assert ends[1:] == [int(at >= fell - 1) for at in range(12)]
    calls, falls = [], []

    dut = built(RegisterBlock, CONFIG)
    bench = StreamBench(dut)

    async def complete(ctx):
        """Complete a command in the requested cycle after each call; note when the output falls."""
        while True:
            if not calls:
                await ctx.tick()
                continue
            event, at = calls.pop()
            fell = None
            for cycle in range(16):
                ctx.set(event, cycle == at)
                if not ctx.get(dut.interrupt) and fell is None:
                    fell = cycle
                await ctx.tick()
            ctx.set(event, 0)
            falls.append(fell)
    bench.background(complete)
    bench.process("scenario", lambda ctx: scenario(ctx, dut, AXI4LiteMaster(dut.bus)))
    bench.run(5000)


def test_status_shows_readiness_and_stopped_ports():
    async def scenario(ctx, dut, master):
        for bits in range(32):
            ctx.set(dut.ready, bits & 1)
            ctx.set(dut.stopped, bits >> 1)
            assert await master.read_value(ctx, "STATUS") == bits
    run(scenario)


def test_reading_the_cycle_is_atomic():
    """The upper half is of the same cycle as the lower half read before it."""
    async def scenario(ctx, dut, master):
        for top in (7, 1 << 31, 0xFFFF_FFFF):
            ctx.set(dut.cycle, (top << 32) - 4)
            low = await master.read_value(ctx, "CYCLE_LOW")
            await ctx.tick().repeat(20)
            assert ctx.get(dut.cycle) >> 32 == top
            await master.write(ctx, "CYCLE_LOW", 0)  # does nothing
            high = await master.read_value(ctx, "CYCLE_HIGH")
            assert high == (top - 1 if low > 1 << 31 else top)
            assert await master.read_value(ctx, "CYCLE_LOW") > 20
            assert await master.read_value(ctx, "CYCLE_HIGH") == top
    run(scenario)


def test_events_are_read_and_written():
    async def scenario(ctx, dut, master):
        await master.write(ctx, "EVENT_SELECT", 3)
        assert await master.write(ctx, "EVENT_VALUE", 0x11223344) == OKAY
        await master.write(ctx, "EVENT_VALUE", 0xAABBCCDD, strobe=0b0101)
        assert await master.read_value(ctx, "EVENT_VALUE") == 0x11BB33DD
        await master.write(ctx, "EVENT_SELECT", 4)
        assert await master.read_value(ctx, "EVENT_VALUE") == 0
        await master.write(ctx, "EVENT_SELECT", CONFIG.events)
        assert await master.write(ctx, "EVENT_VALUE", 1) == SLVERR
        assert await master.read(ctx, "EVENT_VALUE") == (0, SLVERR)
        assert await master.read_value(ctx, "FAULT") == UNKNOWN

    dut = built(RegisterBlock, CONFIG)
    bench, values = StreamBench(dut), [0] * CONFIG.events
    bench.process("scenario", lambda ctx: scenario(ctx, dut, AXI4LiteMaster(dut.bus)))
    bench.background(serve_events(dut.events, values))
    bench.run(1000)
    assert values == [0, 0, 0, 0x11BB33DD, 0, 0, 0, 0]


def test_commits_reach_every_table():
    base, size = 0xFEDC_BA98_7654_3210, 0x8765_4321_0FED
    weights, state = 0x0012_3456_789A_BCD0, 0x0023_0000_0000_1234

    async def scenario(ctx, dut, master):
        await master.write(ctx, "REGION_HANDLE", 5)
        await master.write_wide(ctx, "REGION_BASE", base)
        await master.write_wide(ctx, "REGION_SIZE", size)
        await master.write(ctx, "REGION_COMMIT", 0b11)
        await master.write(ctx, "REGION_COMMIT", 0b01)
        await master.write(ctx, "REGION_COMMIT", 0b00)
        await master.write(ctx, "REGION_COMMIT", 0b11, strobe=0b1110)
        await master.write(ctx, "REGION_HANDLE", CONFIG.handles)
        assert await master.write(ctx, "REGION_COMMIT", 0b11) == SLVERR
        await master.write(ctx, "TABLE_NUMBER", CONFIG.tables - 1)
        await master.write(ctx, "TABLE_LAST_ROW", 0xFFFF_FFFF)
        await master.write_wide(ctx, "TABLE_WEIGHTS", weights)
        await master.write_wide(ctx, "TABLE_STATE", state)
        await master.write(ctx, "TABLE_ROW", 65520 << 16 | 4096)
        await master.write(ctx, "TABLE_FORMAT", 2 << 8 | 32)
        await master.write(ctx, "TABLE_PARTITION", 5 << 8 | 3)
        await master.write(ctx, "TABLE_COMMIT", 1)
        await master.write(ctx, "TABLE_COMMIT", 0)
        await master.write(ctx, "TABLE_NUMBER", CONFIG.tables)
        assert await master.write(ctx, "TABLE_COMMIT", 1) == SLVERR
        assert await master.read_value(ctx, "FAULT") == UNKNOWN

    dut = built(RegisterBlock, CONFIG)
    bench = StreamBench(dut)
    bench.process("scenario", lambda ctx: scenario(ctx, dut, AXI4LiteMaster(dut.bus)))
    region, table = dut.region_update, dut.table_update
    watch, regions = collect(dut, region.enable, region.index, region.entry)
    bench.background(watch)
    watch, tables = collect(dut, table.enable, table.index, table.entry)
    bench.background(watch)
    bench.run(1000)

    assert [index for index, _ in regions] == [5, 5, 5]
    assert [(entry.valid, entry.writable) for _, entry in regions] == [(1, 1), (1, 0), (0, 0)]
    assert {(entry.base16 << 4, entry.size) for _, entry in regions} == {(base, size)}
    assert [(index, entry.valid) for index, entry in tables] == [(CONFIG.tables - 1, 1),
                                                                  (CONFIG.tables - 1, 0)]
    entry = tables[0][1]
    assert entry.last_row == 0xFFFF_FFFF
    assert entry.weights.as_bits() == weights and entry.state.as_bits() == state
    assert (entry.row16, entry.stride16, entry.state4) == (256, 4095, 8)
    assert (entry.parts_log2, entry.part) == (3, 5)


@pytest.mark.parametrize("written, committed", [
    (0, 0), ((1 << 28) - 2, (1 << 28) - 2), ((1 << 28) - 1, (1 << 28) - 1),
    (1 << 28, (1 << 28) - 1), (0xFFFF_FFFF, (1 << 28) - 1)])
def test_the_last_row_is_limited_by_the_address_width(written, committed):
    async def scenario(ctx, dut, master):
        await master.write(ctx, "TABLE_LAST_ROW", written)
        assert await master.read_value(ctx, "TABLE_LAST_ROW") == written
        await master.write(ctx, "TABLE_COMMIT", 1)

    dut = built(RegisterBlock, replace(CONFIG, address_width=32))
    bench = StreamBench(dut)
    bench.process("scenario", lambda ctx: scenario(ctx, dut, AXI4LiteMaster(dut.bus)))
    table = dut.table_update
    watch, tables = collect(dut, table.enable, table.index, table.entry)
    bench.background(watch)
    bench.run(1000)
    assert [entry.last_row for _, entry in tables] == [committed]


@pytest.mark.parametrize("number, queue", list(enumerate(QUEUES)))
def test_queue_control(number, queue):
    name = queue.upper()
    pulses = []

    async def scenario(ctx, dut, master):
        control = dut.queues[number]
        await master.write_wide(ctx, f"{name}_COMMANDS", 0x0001_0000_0000_0040)
        await master.write_wide(ctx, f"{name}_COMPLETIONS", 0x0002_0000_0000_0080)
        await master.write(ctx, f"{name}_ENTRIES", 4)
        commands, completions = ctx.get(control.commands), ctx.get(control.completions)
        assert (commands.handle, commands.offset) == (1, 0x40)
        assert (completions.handle, completions.offset) == (2, 0x80)
        assert ctx.get(control.entries) == 4
        await master.write(ctx, f"{name}_ENTRIES", 36)
        assert ctx.get(control.entries) == 0, "36 is not truncated to 4"

        await master.write(ctx, f"{name}_CONTROL", 0b0011)
        await master.write(ctx, f"{name}_CONTROL", 0b0111)
        await master.write(ctx, f"{name}_CONTROL", 0b1001)
        assert await master.read_value(ctx, f"{name}_CONTROL") == 0b01
        await master.write(ctx, f"{name}_TAIL", 0x8000_0001)
        ctx.set(control.tail, 11)
        ctx.set(control.head, 12)
        ctx.set(control.completed, 13)
        ctx.set(control.state, {"faulted": 1, "status": 14})
        assert await master.read_value(ctx, f"{name}_TAIL") == 11
        assert await master.read_value(ctx, f"{name}_HEAD") == 12
        assert await master.read_value(ctx, f"{name}_COMPLETED") == 13
        assert await master.read_value(ctx, f"{name}_STATE") == 14 << 8 | 0b1000
        await master.write(ctx, "CONTROL", 1)
        assert await master.read_value(ctx, "CONTROL") == 0
        assert await master.read_value(ctx, f"{name}_CONTROL") == 0, "a soft reset disables"
        await master.write(ctx, f"{name}_CONTROL", 0b0001)

    async def watch(ctx):
        control = dut.queues[number]
        async for _, _, start, abort, resume, rung, submitted, reset in ctx.tick().sample(
                control.start, control.abort, control.resume, control.doorbell,
                control.submitted, dut.soft_reset):
            pulses.extend(["start"] * start + ["abort"] * abort + ["resume"] * resume
                          + [submitted] * rung + ["reset"] * reset)

    dut = built(RegisterBlock, CONFIG)
    bench = StreamBench(dut)
    bench.process("scenario", lambda ctx: scenario(ctx, dut, AXI4LiteMaster(dut.bus)))
    bench.background(watch)
    bench.run(1000)
    assert pulses == ["start", "abort", "resume", 0x8000_0001, "reset", "start"]


def test_reads_and_writes_alternate():
    """A master with reads and writes pending at all times gets responses on both channels."""
    served = []

    async def writes(ctx):
        bus = dut.bus
        ctx.set(bus.awaddr, REGISTERS["TIMEOUT"].offset)
        for signal in (bus.awvalid, bus.wvalid, bus.bready):
            ctx.set(signal, 1)
        for _ in range(10):
            await ctx.tick().until(bus.bvalid)
            served.append("write")

    async def reads(ctx):
        bus = dut.bus
        for signal in (bus.arvalid, bus.rready):
            ctx.set(signal, 1)
        for _ in range(10):
            await ctx.tick().until(bus.rvalid)
            served.append("read")

    dut = built(RegisterBlock, CONFIG)
    bench = StreamBench(dut)
    bench.process("writes", writes)
    bench.process("reads", reads)
    bench.run(300)
    assert served[1:19] in (["read", "write"] * 9, ["write", "read"] * 9), served
