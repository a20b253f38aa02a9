"""Commands under way together: which may, in what order they are reported, and what waits."""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import BatchFlag, Opcode, Status, packed_address
from hotrow_rtl.host.command_executor import MAX_IN_FLIGHT, CommandExecutor
from hotrow_sim.testing.benches.command_parts import receive, submit
from hotrow_sim.testing.benches.stream_bench import StreamBench

CONFIG = preset("tiny")
BATCHES = (Opcode.OBSERVE, Opcode.SPLIT)
QUEUE_ONLY = (Opcode.NOP, Opcode.FENCE, Opcode.SIGNAL, Opcode.WAIT)
INPUTS, LENGTHS, RESULTS = 1, 2, 3  # handles


def batch(opcode=Opcode.OBSERVE, source=INPUTS, lengths=0, results=RESULTS, **fields):
    command = {"opcode": opcode, "source": packed_address(source, 0),
               "lengths": packed_address(lengths, 0), **fields}
    if opcode == Opcode.SPLIT:
        command |= {name: packed_address(results, 64 * place) for place, name in enumerate(
            ("slots", "popular", "nonpopular", "misses"))}
    return command


class Queue:
    """An executor between a list of commands, a check that refuses some, and a slow engine.

    Members
    -------
    under_way : list of set of int
        Tags that the engine had in hand whenever it took a command.
    completions : list of (tag, status, start, end)
    """

    def __init__(self, commands, refused=(), failing=(), halt_on_error=0, work=100, gap=0):
        self.commands = [{"tag": tag, **command} for tag, command in enumerate(commands)]
        self.refused, self.failing, self.halt_on_error = refused, failing, halt_on_error
        self.work, self.gap = work, gap
        self.in_hand, self.under_way, self.completions = [], [], []
        self.cycle = 0
        self.dut = CommandExecutor(CONFIG, BATCHES)

    def run(self, expected=None, limit=4000):
        expected = len(self.commands) if expected is None else expected
        bench = StreamBench(self.dut)
        for process in (self._clock, self._check, self._take, self._work, self._events):
            bench.background(process)

        async def collect(ctx):
            dut = self.dut
            ctx.set(dut.enable, 1)
            ctx.set(dut.halt_on_error, self.halt_on_error)
            ctx.set(dut.completions.ready, 1)
            while len(self.completions) < expected:
                _, _, valid, done = await ctx.tick().sample(
                    dut.completions.valid, dut.completions.p.record)
                if valid:
                    self.completions.append((done.tag, done.status, done.start, done.end))
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

    async def _offer(self, ctx, port, payload):
        ctx.set(port.p, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def _check(self, ctx):
        dut = self.dut
        for command in self.commands:
            await self._offer(ctx, dut.commands, command)
            await ctx.tick().repeat(3)
            status = Status.BAD_FLAGS if command["tag"] in self.refused else Status.OK
            ctx.set(dut.checked.p, {"command": command, "status": status})
            ctx.set(dut.checked.valid, 1)
            if status == Status.OK and command["opcode"] not in QUEUE_ONLY:
                await submit(ctx, dut.parts, command)
            else:
                await ctx.tick().until(dut.checked.ready)
            ctx.set(dut.checked.valid, 0)
            await ctx.tick().repeat(self.gap or 1)

    async def _take(self, ctx):
        engine = self.dut.engine
        while True:
            command = await receive(ctx, engine.command)
            self.in_hand.append((command.tag, self.cycle))
            self.under_way.append({tag for tag, _ in self.in_hand})

    async def _work(self, ctx):
        engine = self.dut.engine
        while True:
            while not self.in_hand or self.cycle < self.in_hand[0][1] + self.work:
                await ctx.tick()
            tag = self.in_hand[0][0]
            status = Status.SLVERR if tag in self.failing else Status.OK
            await self._offer(ctx, engine.outcome, {"status": status, "lookups": tag})
            self.in_hand.pop(0)

    async def _events(self, ctx):
        request, reply = self.dut.events.request, self.dut.events.reply
        while True:
            ctx.set(request.ready, 1)
            await ctx.tick().until(request.valid)
            ctx.set(request.ready, 0)
            await self._offer(ctx, reply, 0)


def most_together(queue):
    return max(map(len, queue.under_way))


def test_batches_are_under_way_together():
    queue = Queue([batch()] * 12, work=200).run()
    assert most_together(queue) == MAX_IN_FLIGHT
    starts = [start for _, _, start, _ in queue.completions]
    assert starts == sorted(starts)
    assert queue.completions[-1][3] - starts[0] < 12 * queue.work / 2
    assert not queue.busy


@pytest.mark.parametrize("second, together", [
    (batch(Opcode.SPLIT), 2),
    (batch(source=RESULTS), 1),
    (batch(lengths=RESULTS, flags=BatchFlag.JAGGED), 1),
    (batch(lengths=RESULTS), 2),  # a dense batch has no lengths
    (batch(lengths=LENGTHS, flags=BatchFlag.JAGGED), 2),
], ids=["apart", "ids", "lengths", "unused-lengths", "lengths-apart"])
def test_a_batch_does_not_read_what_a_split_may_still_write(second, together):
    queue = Queue([batch(Opcode.SPLIT), second]).run()
    assert most_together(queue) == together
    once_more = Queue([batch(Opcode.SPLIT), batch(), second]).run()
    assert most_together(once_more) == together + 1
    behind_it = Queue([batch(Opcode.SPLIT), {"opcode": Opcode.NOP}, second]).run()
    assert most_together(behind_it) == 1, "what a finished SPLIT wrote has landed"


@pytest.mark.parametrize("other", [
    Opcode.NOP, Opcode.FENCE, Opcode.SIGNAL, Opcode.WAIT, Opcode.HARVEST, Opcode.INSTALL])
def test_other_commands_run_alone(other):
    queue = Queue([batch(), {"opcode": other}, batch()]).run()
    assert most_together(queue) == 1
    for (_, _, _, end), (_, _, start, _) in zip(queue.completions, queue.completions[1:]):
        assert start >= end


def test_a_refused_batch_is_reported_in_its_turn():
    queue = Queue([batch()] * 5, refused=(2,)).run()
    assert [status for _, status, *_ in queue.completions] == [
        Status.OK, Status.OK, Status.BAD_FLAGS, Status.OK, Status.OK]


def test_a_queue_that_halts_on_errors_takes_one_at_a_time():
    queue = Queue([batch()] * 5, failing=(1,), halt_on_error=1).run(expected=2)
    assert queue.halted and most_together(queue) == 1
    assert not Queue([batch()] * 5, failing=(1,)).run().halted


@pytest.mark.parametrize("seed", range(4))
def test_random_commands_complete_in_order(seed):
    rng = np.random.default_rng(seed)
    kinds = [batch(), batch(Opcode.SPLIT), batch(source=RESULTS), {"opcode": Opcode.NOP},
             {"opcode": Opcode.HARVEST}]
    commands = [kinds[pick] for pick in rng.integers(0, len(kinds), 40)]
    refused = set(rng.choice(40, 5).tolist())
    queue = Queue(commands, refused=refused, work=int(rng.integers(1, 150)),
                  gap=int(rng.integers(0, 9))).run()
    for tag, status, start, end in queue.completions:
        assert start < end
        assert status == (Status.BAD_FLAGS if tag in refused else Status.OK), f"seed {seed}, {tag}"
