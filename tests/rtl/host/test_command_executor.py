"""Commands in flight together: their conditions, and the order of completions."""

from itertools import pairwise

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import BatchFlag, Opcode, Status, packed_address
from hotrow_rtl.host.command_executor import CommandExecutor
from hotrow_rtl.interfaces.records import BATCHES_IN_FLIGHT
from hotrow_sim.golden.region_check import unpack_address

from tests.support.benches.command_parts import receive, submit
from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

CONFIG = preset("tiny")
BATCHES = (Opcode.OBSERVE, Opcode.SPLIT)
QUEUE_ONLY = (Opcode.NOP, Opcode.FENCE, Opcode.SIGNAL, Opcode.WAIT)
INPUTS, LENGTHS, RESULTS, OTHERS = 1, 2, 3, 4  # handles
SPLIT_RESULTS = ("slots", "popular", "nonpopular", "misses")


def batch(opcode=Opcode.OBSERVE, source=INPUTS, lengths=0, results=RESULTS, **fields):
    command = {"opcode": opcode, "source": packed_address(source, 0),
               "lengths": packed_address(lengths, 0), **fields}
    if opcode == Opcode.SPLIT:
        command |= {name: packed_address(results, 64 * place)
                    for place, name in enumerate(SPLIT_RESULTS)}
    return command


def ranges(command):
    """The lists of a batch, with handles as addresses."""
    if command["opcode"] not in BATCHES:
        return
    jagged = command.get("flags", 0) & BatchFlag.JAGGED
    results = SPLIT_RESULTS if command["opcode"] == Opcode.SPLIT else ()
    for name in ("source", *(["lengths"] if jagged else ()), *results):
        handle, offset = unpack_address(command[name])
        yield {"first": (handle << 20) + offset // 64, "bytes": 64, "write": name in results}


class Queue:
    """An executor with a list of commands, a validator that refuses some, and a slow engine.

    Attributes
    ----------
    in_flight : list of set of int
        Tags of the commands in the engine, for each command that it accepts.
    completions : list of (tag, status, start, end)
    """

    def __init__(self, commands, refused=(), failing=(), halt_on_error=0, work=100, gap=0):
        self.commands = [{"tag": tag, **command} for tag, command in enumerate(commands)]
        self.refused, self.failing, self.halt_on_error = refused, failing, halt_on_error
        self.work, self.gap = work, gap
        self.running, self.in_flight, self.completions = [], [], []
        self.cycle = 0
        self.dut = built(CommandExecutor, CONFIG, BATCHES)

    def run(self, expected=None, limit=4000):
        expected = len(self.commands) if expected is None else expected
        bench = StreamBench(self.dut)
        for process in (self._clock, self._check, self._accept, self._finish, self._events):
            bench.background(process)

        async def collect(ctx):
            dut = self.dut
            ctx.set(dut.enable, 1)
            ctx.set(dut.halt_on_error, self.halt_on_error)
            ctx.set(dut.completions.ready, 1)
            while len(self.completions) < expected:
                _, _, valid, done = await ctx.tick().sample(
                    dut.completions.valid, dut.completions.p)
                if valid:
                    result = done.outcome if done.by_engine else done.check
                    self.completions.append((done.tag, result.status, done.start, done.end))
            await ctx.tick().repeat(20)
            self.halted = ctx.get(dut.halted)
            self.busy = ctx.get(dut.busy)
        bench.process("collect", collect)
        bench.run(limit)
        assert [tag for tag, *_ in self.completions] == list(range(expected)), "in order"
        return self

    async def _clock(self, ctx):
        while True:
            ctx.set(self.dut.cycle, self.cycle)
            self.cycle += 1
            await ctx.tick()

    async def _send(self, ctx, port, payload):
        ctx.set(port.p, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def _check(self, ctx):
        dut = self.dut
        for command in self.commands:
            await self._send(ctx, dut.commands, {
                name: command[name] for name in ("tag", "opcode")})
            for access in ranges(command):
                await self._send(ctx, dut.ranges, access)
            await ctx.tick().repeat(3)
            status = Status.BAD_FLAGS if command["tag"] in self.refused else Status.OK
            ctx.set(dut.checked.p, {
                **{name: command.get(name, 0) for name in ("opcode", "event", "value")},
                "check": {"status": status}})
            ctx.set(dut.checked.valid, 1)
            if status == Status.OK and command["opcode"] not in QUEUE_ONLY:
                await submit(ctx, dut.parts, command)
            else:
                await ctx.tick().until(dut.checked.ready)
            ctx.set(dut.checked.valid, 0)
            await ctx.tick().repeat(self.gap or 1)

    async def _accept(self, ctx):
        engine = self.dut.engine
        while True:
            command = await receive(ctx, engine.command)
            self.running.append((command.tag, self.cycle))
            self.in_flight.append({tag for tag, _ in self.running})

    async def _finish(self, ctx):
        engine = self.dut.engine
        while True:
            while not self.running or self.cycle < self.running[0][1] + self.work:
                await ctx.tick()
            tag = self.running[0][0]
            status = Status.SLVERR if tag in self.failing else Status.OK
            await self._send(ctx, engine.outcome, {"status": status, "lookups": tag})
            self.running.pop(0)

    async def _events(self, ctx):
        request, reply = self.dut.events.request, self.dut.events.reply
        while True:
            ctx.set(request.ready, 1)
            await ctx.tick().until(request.valid)
            ctx.set(request.ready, 0)
            await self._send(ctx, reply, 0)


def max_in_flight(queue):
    return max(map(len, queue.in_flight))


def test_batches_overlap():
    queue = Queue([batch()] * 12, work=200).run()
    assert max_in_flight(queue) == BATCHES_IN_FLIGHT
    starts = [start for _, _, start, _ in queue.completions]
    assert starts == sorted(starts)
    assert queue.completions[-1][3] - starts[0] < 12 * queue.work / 2
    assert not queue.busy


@pytest.mark.parametrize("second, together", [
    (batch(Opcode.SPLIT, results=OTHERS), 2),
    (batch(Opcode.SPLIT), 1),
    (batch(source=RESULTS), 1),
    (batch(lengths=RESULTS, flags=BatchFlag.JAGGED), 1),
    (batch(lengths=RESULTS), 2),  # a dense batch has no lengths
    (batch(lengths=LENGTHS, flags=BatchFlag.JAGGED), 2),
], ids=["apart", "results", "ids", "lengths", "unused-lengths", "lengths-apart"])
def test_a_batch_waits_for_a_split_that_may_write_its_lists(second, together):
    queue = Queue([batch(Opcode.SPLIT), second], work=400).run()
    assert max_in_flight(queue) == together
    with_another = Queue([batch(Opcode.SPLIT), batch(), second], work=400).run()
    assert max_in_flight(with_another) == together + 1
    after_nop = Queue([batch(Opcode.SPLIT), {"opcode": Opcode.NOP}, second]).run()
    assert max_in_flight(after_nop) == 1, "the SPLIT has completed"


@pytest.mark.parametrize("other", [
    Opcode.NOP, Opcode.FENCE, Opcode.SIGNAL, Opcode.WAIT, Opcode.HARVEST, Opcode.INSTALL])
def test_other_commands_run_alone(other):
    queue = Queue([batch(), {"opcode": other}, batch()]).run()
    assert max_in_flight(queue) == 1
    for (_, _, _, end), (_, _, start, _) in pairwise(queue.completions):
        assert start >= end


def test_a_refused_batch_is_reported_in_order():
    queue = Queue([batch()] * 5, refused=(2,)).run()
    assert [status for _, status, *_ in queue.completions] == [
        Status.OK, Status.OK, Status.BAD_FLAGS, Status.OK, Status.OK]


def test_a_queue_that_halts_on_errors_runs_one_batch_at_a_time():
    queue = Queue([batch()] * 5, failing=(1,), halt_on_error=1).run(expected=2)
    assert queue.halted and max_in_flight(queue) == 1
    assert not Queue([batch()] * 5, failing=(1,)).run().halted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_commands_complete_in_order(seed):
    rng = np.random.default_rng(seed)
    kinds = [batch(), batch(Opcode.SPLIT), batch(Opcode.SPLIT, results=OTHERS),
             batch(source=RESULTS), {"opcode": Opcode.NOP},
             {"opcode": Opcode.HARVEST}]
    commands = [kinds[pick] for pick in rng.integers(0, len(kinds), 40)]
    refused = set(rng.choice(40, 5).tolist())
    queue = Queue(commands, refused=refused, work=int(rng.integers(1, 150)),
                  gap=int(rng.integers(0, 9))).run(limit=10_000)
    for tag, status, start, end in queue.completions:
        assert start < end
        assert status == (Status.BAD_FLAGS if tag in refused else Status.OK), f"seed {seed}, {tag}"
