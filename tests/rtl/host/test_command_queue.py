"""A command queue from the command ring to the completion ring."""

import pytest
from hotrow_rtl.contract.encoding import (
    COMMAND_BYTES,
    COMPLETION_BYTES,
    Opcode,
    Status,
    packed_address,
)
from hotrow_rtl.interfaces.records import UNSET

from tests.rtl.host.command_queue_host import (
    COMMANDS_AT,
    COMPLETIONS_AT,
    CONFIG,
    ENGINE_CYCLES,
    LISTS,
    LISTS_AT,
    OUTCOME,
    Host,
    install,
    nop,
)
from tests.support.benches.stream_bench import RAGGED, STEADY


def reported(queue):
    """The counters of `OUTCOME` that the engine of a queue sets."""
    return {name: value * (name not in UNSET[queue]) for name, value in OUTCOME.items()}


@pytest.mark.parametrize("entries_log2", [
    1, pytest.param(2, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("latency, gaps", [
    pytest.param(1, STEADY, id="near", marks=pytest.mark.long),
    pytest.param(40, RAGGED, id="far")])
def test_commands_complete_in_order_around_the_rings(entries_log2, latency, gaps):
    """Three rounds of NOPs, engine commands and refused commands."""
    count = 3 << entries_log2

    async def scenario(ctx, host):
        for number in range(count):
            while number - ctx.get(host.dut.control.completed) >= host.entries:
                await ctx.tick()
            command = (nop(number), install(number), nop(number, flags=1))[number % 3]
            await host.submit(ctx, command)
        await host.completed(ctx, count)
        assert ctx.get(host.dut.control.head) == count
        assert ctx.get(host.dut.control.tail) == count
        assert not ctx.get(host.dut.control.state.busy)
        completions.extend(host.completion(number) for number in range(count - host.entries, count))

    completions = []
    host = Host(entries_log2, latency, gaps)
    host.run(scenario, limit=20000)
    assert host.completions == count
    assert host.reads == [COMMANDS_AT + number % host.entries * COMMAND_BYTES
                          for number in range(count)]
    assert host.writes == [COMPLETIONS_AT + number % host.entries * COMPLETION_BYTES
                           for number in range(count)]
    end = 0
    for number, completion in enumerate(completions, count - host.entries):
        assert completion["tag"] == number and completion["sequence"] == number + 1
        kind = number % 3
        assert completion["status"] == (Status.BAD_FLAGS if kind == 2 else Status.OK)
        assert completion["error_index"] == (1 if kind == 2 else 0)
        assert {name: completion[name] for name in OUTCOME} == (
            reported("lookup") if kind == 1 else dict.fromkeys(OUTCOME, 0))
        assert end <= completion["start"] < completion["end"], "one after the other"
        assert (completion["end"] - completion["start"] > ENGINE_CYCLES) == (kind == 1)
        end = completion["end"]


@pytest.mark.parametrize("queue, opcode, extra", [
    ("lookup", Opcode.INSTALL, {}), ("move", Opcode.GATHER, {"stride": 64})])
def test_the_engine_receives_byte_addresses(queue, opcode, extra):
    async def scenario(ctx, host):
        await host.submit(ctx, install(9) | {"opcode": opcode} | extra | {
            "destination": packed_address(LISTS, 0x100)})
        await host.completed(ctx, 1)
        completion = host.completion(0)
        assert completion["status"] == Status.OK
        assert {name: completion[name] for name in OUTCOME} == reported(queue)

    host = Host(queue=queue)
    host.run(scenario)
    command, = host.engine_commands
    assert command["source"] == LISTS_AT + 0x40
    assert command["tag"] == 9 and command["count"] == 4
    if queue == "lookup":
        assert command["slots"] == LISTS_AT + 0x80
    else:
        assert command["destination"] == packed_address(LISTS, 0x100), "stays packed"


def test_an_error_of_the_engine_is_reported():
    error = {"status": Status.ROW_OUT_OF_RANGE, "error_index": 3 << 33,
             "error_address": packed_address(LISTS, 0x777), "entries": 2}

    async def scenario(ctx, host):
        host.engine_outcomes[5] = error
        await host.submit(ctx, install(5))
        await host.completed(ctx, 1)
        completion = host.completion(0)
        assert {name: completion[name] for name in error} == error
        assert completion["hits"] == 0
    Host().run(scenario)


def test_completed_increases_after_the_write():
    async def scenario(ctx, host):
        await host.submit(ctx, nop(1))
        while not host.writes:
            assert ctx.get(host.dut.control.completed) == 0
            await ctx.tick()
        await ctx.tick().repeat(host.latency)
        assert ctx.get(host.dut.control.completed) == 0, "no outcome yet"
        assert ctx.get(host.dut.control.state.busy)
        await host.completed(ctx, 1)
    Host(latency=60).run(scenario)


def test_the_next_command_is_fetched_while_one_runs():
    """The second engine command starts while the completion of the first is being written."""
    async def scenario(ctx, host):
        await host.submit(ctx, install(0), install(1))
        await host.completed(ctx, 2)
        gap = host.completion(1)["start"] - host.completion(0)["end"]
        words = COMPLETION_BYTES // CONFIG.bus_bytes
        assert gap <= words + 21, f"{gap} cycles between two commands"
    Host(latency=20).run(scenario)


@pytest.mark.parametrize("value, event, reached", [
    (5, 4, False), (5, 5, True), (5, 6, True), (0, 0xFFFF_FFFF, False), (0xFFFF_FFFF, 0, True),
    (0, 1 << 31, False), (0, (1 << 31) - 1, True)])
def test_wait(value, event, reached):
    """A counter has reached a value if it is at most 2**31 - 1 larger, modulo 2**32."""
    async def scenario(ctx, host):
        host.events[3] = event
        await host.submit(ctx, {"opcode": Opcode.WAIT, "event": 3, "value": value}, nop(1))
        if not reached:
            await host.until(ctx, waiting=1)
            await ctx.tick().repeat(100)
            assert ctx.get(host.dut.control.completed) == 0
            assert ctx.get(host.dut.control.state.busy)
            host.events[3] = value
        await host.completed(ctx, 2)
        assert host.completion(0)["status"] == Status.OK
        assert not ctx.get(host.dut.control.state.waiting)
    Host().run(scenario)


def test_signal_follows_the_commands_before_it():
    async def scenario(ctx, host):
        await host.submit(ctx, install(1), {"opcode": Opcode.SIGNAL, "event": 2, "value": 1 << 31})
        while not host.engine_commands:
            await ctx.tick()
        await ctx.tick().repeat(ENGINE_CYCLES)
        assert host.events[2] == 0
        await host.completed(ctx, 2)
        assert host.events == [0, 0, 1 << 31, 0, 0, 0, 0, 0]
    Host().run(scenario)


@pytest.mark.parametrize("halt", [0, 1])
def test_abort_of_a_wait(halt):
    async def scenario(ctx, host):
        control = host.dut.control
        ctx.set(control.halt_on_error, halt)
        await host.pulse(ctx, control.abort)  # without a WAIT it has no effect
        await host.submit(ctx, {"opcode": Opcode.WAIT, "event": 0, "value": 1}, nop(2))
        await host.until(ctx, waiting=1)
        await host.pulse(ctx, control.abort)
        await host.completed(ctx, 1)
        assert host.completion(0)["status"] == Status.ABORTED
        if halt:
            await host.until(ctx, halted=1, busy=0, status=Status.ABORTED)
            await host.pulse(ctx, control.resume)
        await host.completed(ctx, 2)
        assert host.completion(1)["status"] == Status.OK
    Host().run(scenario)


@pytest.mark.parametrize("halt", [0, 1])
def test_halt_on_error_and_resume(halt):
    async def scenario(ctx, host):
        control = host.dut.control
        ctx.set(control.halt_on_error, halt)
        await host.submit(ctx, nop(1), nop(2, flags=4), nop(3))
        if halt:
            await host.completed(ctx, 2)
            await ctx.tick().repeat(100)
            state = ctx.get(control.state)
            assert (state.halted, state.busy, state.status) == (1, 0, Status.BAD_FLAGS)
            assert ctx.get(control.completed) == 2
            await host.pulse(ctx, control.resume)
        await host.completed(ctx, 3)
        state = ctx.get(control.state)
        assert (state.halted, state.status) == (0, Status.OK)
    Host().run(scenario)


def test_doorbells():
    async def scenario(ctx, host):
        control = host.dut.control
        for tag in range(4):
            await host.submit(ctx, nop(tag))
        await host.completed(ctx, 4)
        assert not await host.ring(ctx, 9), "more than the ring has entries"
        assert not await host.ring(ctx, 3), "less than the tail"
        assert not await host.ring(ctx, 0xFFFF_FFFF), "far less than the tail"
        assert ctx.get(control.tail) == 4
        assert await host.ring(ctx, 4), "the same value"
        assert await host.ring(ctx, 8), "a full ring"
        await host.completed(ctx, 8)
        assert host.refused == 3
        ctx.set(control.enable, 0)
        assert not await host.ring(ctx, 9), "not enabled"
        assert ctx.get(control.tail) == 8
    Host().run(scenario)


def test_a_doorbell_never_decreases_the_tail():
    async def scenario(ctx, host):
        await host.submit(ctx, {"opcode": Opcode.WAIT, "value": 1}, nop(1), nop(2))
        assert not await host.ring(ctx, 2), "less than the tail, but more than completed"
        assert not await host.ring(ctx, 0)
        assert ctx.get(host.dut.control.tail) == 3
        host.events[0] = 1
        await host.completed(ctx, 3)
    Host().run(scenario)
