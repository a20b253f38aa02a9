"""A command queue with faults of its rings, and one that is restarted."""

import pytest
from hotrow_rtl.contract.encoding import Opcode, Status, packed_address
from hotrow_rtl.interfaces.records import FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT

from tests.rtl.host.command_queue_host import (
    COMPLETIONS,
    CONFIG,
    LISTS,
    OUTCOME,
    READ_ONLY,
    Host,
    install,
    nop,
)


@pytest.mark.parametrize("entries, accepted", [(0, False), (1, True), (16, True), (17, False),
                                               (31, False)])
def test_rings_of_an_illegal_size_are_refused(entries, accepted):
    async def scenario(ctx, host):
        ctx.set(host.dut.control.entries, entries)
        await host.enable(ctx)
        assert await host.ring(ctx, 1) == accepted
    Host().run(scenario)


@pytest.mark.parametrize("fault, status", [
    (FAULT_SLVERR, Status.SLVERR), (FAULT_DECERR, Status.DECERR), (FAULT_TIMEOUT, Status.TIMEOUT)])
@pytest.mark.parametrize("beat", [0, 3, -1], ids=["first", "middle", "last"])
def test_a_ring_that_cannot_be_read(fault, status, beat):
    """The queue stops; after it is enabled again it starts with the first entry."""
    async def scenario(ctx, host):
        control = host.dut.control
        host.read_faults[1] = fault
        await host.submit(ctx, nop(1), nop(2))
        await host.until(ctx, faulted=1)
        await host.completed(ctx, 1)
        await ctx.tick().repeat(100)
        state = ctx.get(control.state)
        assert (state.faulted, state.status, state.busy) == (1, status, 0)
        assert (ctx.get(control.head), ctx.get(control.completed)) == (1, 1)
        await host.enable(ctx)
        assert ctx.get(control.state.as_value()) == 0
        assert ctx.get(control.tail) == ctx.get(control.head) == ctx.get(control.completed) == 0
        await host.submit(ctx, nop(3))
        await host.completed(ctx, 1)
        assert host.completion(0)["tag"] == 3 and host.completion(0)["sequence"] == 1
    host = Host()
    host.fault_beat = beat
    host.run(scenario)


@pytest.mark.parametrize("fault, status", [(FAULT_SLVERR, Status.SLVERR),
                                           (FAULT_TIMEOUT, Status.TIMEOUT)])
def test_a_completion_ring_that_cannot_be_written(fault, status):
    async def scenario(ctx, host):
        control = host.dut.control
        host.write_faults[1] = fault
        await host.submit(ctx, nop(1), nop(2), nop(3), install(4))
        await host.until(ctx, faulted=1, busy=0)
        await ctx.tick().repeat(100)
        assert not host.engine_commands, "no command starts after the fault"
        assert ctx.get(control.state.status) == status
        assert ctx.get(control.completed) == host.completions == 1
        assert len(host.writes) == 2, "nothing is written after the fault"
        await host.enable(ctx)
        await host.submit(ctx, nop(5))
        await host.completed(ctx, 1)
        assert host.completion(0)["tag"] == 5
    Host().run(scenario)


@pytest.mark.parametrize("ring", ["commands", "completions"])
@pytest.mark.parametrize("address, status", [
    (packed_address(COMPLETIONS, 0x200), Status.REGION),
    (packed_address(20, 0), Status.REGION),
    (packed_address(COMPLETIONS, (1 << 48) - 64), Status.REGION),
    (packed_address(COMPLETIONS, 0x50), Status.MISALIGNED),
])
def test_rings_outside_the_regions(ring, address, status):
    """No access is made at these addresses."""
    async def scenario(ctx, host):
        ctx.set(getattr(host.dut.control, ring).as_value(), address)
        await host.enable(ctx)
        await host.submit(ctx, nop(1), nop(2))
        await host.until(ctx, faulted=1, busy=0)
        assert ctx.get(host.dut.control.state.status) == status
        assert not (host.reads if ring == "commands" else host.writes)
    Host().run(scenario)


def test_a_ring_longer_than_its_region_faults_at_the_entry():
    async def scenario(ctx, host):
        ctx.set(host.dut.control.entries, 3)
        await host.enable(ctx)
        host.entries = 8
        await host.submit(ctx, *(nop(tag) for tag in range(5)))
        await host.until(ctx, faulted=1, busy=0)
        assert ctx.get(host.dut.control.state.status) == Status.REGION
        assert ctx.get(host.dut.control.head) == 4
    Host(entries_log2=2).run(scenario)


def test_completions_need_a_writable_region():
    async def scenario(ctx, host):
        ctx.set(host.dut.control.completions.as_value(), packed_address(READ_ONLY, 0))
        await host.enable(ctx)
        await host.submit(ctx, nop(1))
        await host.until(ctx, faulted=1)
        assert ctx.get(host.dut.control.state.status) == Status.READ_ONLY
        assert not host.writes and ctx.get(host.dut.control.completed) == 0
    Host().run(scenario)


def test_a_start_waits_until_the_queue_is_idle():
    """A start while a command runs neither loses nor repeats a completion."""
    async def scenario(ctx, host):
        control = host.dut.control
        await host.submit(ctx, install(1))
        while not host.engine_commands:
            await ctx.tick()
        ctx.set(control.enable, 0)
        await ctx.tick()
        ctx.set(control.enable, 1)
        await host.pulse(ctx, control.start)
        assert not await host.ring(ctx, 1), "refused until the queue has started"
        await host.until(ctx, busy=0)
        await ctx.tick().repeat(3)
        assert host.completions == 1 and ctx.get(control.completed) == 0
        host.submitted = 0
        await host.submit(ctx, nop(2))
        await host.completed(ctx, 1)
        assert host.completion(0)["tag"] == 2
    Host().run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("after", [*range(1, 100, 14), *range(47, 53, 2), *(
    pytest.param(after, marks=pytest.mark.long)
    for after in (*range(8, 100, 14), *range(46, 55, 2), *range(100, 104)))])
def test_soft_reset_in_flight(after):
    """After a restart in any cycle the queue is idle, and runs new commands once enabled."""
    async def scenario(ctx, host):
        control = host.dut.control
        await host.submit(ctx, install(1), nop(2), {"opcode": Opcode.WAIT, "value": 1})
        await ctx.tick().repeat(after)
        await host.soft_reset(ctx)
        assert ctx.get(control.state.as_value()) == 0
        assert ctx.get(control.tail) == ctx.get(control.head) == ctx.get(control.completed) == 0
        await ctx.tick().repeat(200)
        assert ctx.get(control.completed) == 0
        await host.enable(ctx)
        await host.submit(ctx, install(7), nop(8))
        await host.completed(ctx, 2)
        assert [host.completion(number)["tag"] for number in range(2)] == [7, 8]
        assert host.completion(0)["entries"] == OUTCOME["entries"]
    Host().run(scenario)


@pytest.mark.slow
def test_a_restart_drops_the_checks_in_progress():
    """A verdict about the tables or a region of a dropped command is not the next command's."""
    batch = {"opcode": Opcode.OBSERVE, "source": packed_address(LISTS, 0), "count": 8, "samples": 4,
             "table_count": 2}
    unknown = batch | {"table_count": CONFIG.tables, "count": 4 * CONFIG.tables}
    beyond = batch | {"source": packed_address(LISTS, 4096)}

    async def scenario(ctx, host):
        for after in range(22, 50, 5):
            for wrong in (unknown, beyond):
                await host.submit(ctx, wrong)
                await ctx.tick().repeat(after)
                await host.soft_reset(ctx)
                await host.enable(ctx)
                await host.submit(ctx, batch | {"tag": after})
                await host.completed(ctx, 1)
                found = host.completion(0)
                assert (found["tag"], found["status"]) == (after, Status.OK), (
                    f"a restart {after} cycles after the doorbell: {Status(found['status']).name}")
                await host.soft_reset(ctx)
                await host.enable(ctx)
        for wrong, status in ((unknown, Status.TABLE_UNKNOWN), (beyond, Status.REGION)):
            await host.submit(ctx, wrong)
            await host.completed(ctx, host.submitted)
            assert host.completion(host.submitted - 1)["status"] == status
    Host().run(scenario, limit=30000)


@pytest.mark.parametrize("moment", ["engine", "idle"])
def test_a_stalled_engine_faults_the_queue(moment):
    """Until a soft reset, also if the engine answers after all."""
    async def scenario(ctx, host):
        control = host.dut.control
        await host.submit(ctx, install(1))
        if moment == "engine":
            await ctx.tick().until(host.dut.engine_busy)
        else:
            await host.completed(ctx, 1)
            assert not ctx.get(host.dut.engine_busy)
        await host.pulse(ctx, host.dut.engine_stalled)
        await ctx.tick().repeat(2)
        assert not ctx.get(host.dut.engine_busy), "reported once"
        await ctx.tick().repeat(100)
        assert (ctx.get(control.state.faulted), ctx.get(control.state.status)) == (
            1, Status.STALLED)
        await host.submit(ctx, nop(2))
        await ctx.tick().repeat(100)
        assert ctx.get(control.head) == 1, "nothing further starts"
        await host.soft_reset(ctx)
        assert ctx.get(control.state.as_value()) == 0
        await host.enable(ctx)
        await host.submit(ctx, nop(3))
        await host.completed(ctx, 1)
        assert host.completion(0)["tag"] == 3
    Host().run(scenario)


def test_a_wait_is_no_stall():
    async def scenario(ctx, host):
        await host.submit(ctx, {"opcode": Opcode.WAIT, "value": 1})
        await host.until(ctx, waiting=1)
        for _ in range(50):
            assert not ctx.get(host.dut.engine_busy)
            await ctx.tick()
    Host().run(scenario)
