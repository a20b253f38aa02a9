"""A command queue from ring to ring, with a memory, an engine and events written here."""

from itertools import cycle

import numpy as np
import pytest
from hotrow_rtl.command_queue import CommandQueue
from hotrow_rtl.config import preset
from hotrow_rtl.contract import (
    COMMAND_BYTES,
    COMPLETION_BYTES,
    OPERANDS,
    Opcode,
    Status,
    packed_address,
)
from hotrow_rtl.layouts import COMMAND_PART, FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT
from hotrow_rtl.layouts import command as command_layout
from hotrow_sim.golden.records import COMMAND_RECORD, COMPLETION_RECORD, decode, encode
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

CONFIG = preset("tiny")
COMMANDS_AT, COMPLETIONS_AT, LISTS_AT = 0x1000, 0x8000, 0x1_0000
COMMANDS, COMPLETIONS, READ_ONLY, LISTS = 1, 2, 3, 4  # handles
ENGINE_CYCLES = 30
OUTCOME = {"lookups": 1, "hits": 2, "misses": 3, "unique": 4, "popular": 5, "entries": 6,
           "refused": 7, "bytes": 8 << 32}


class Host:
    """One queue with everything around it.

    Parameters
    ----------
    entries_log2 : int
    latency : int
        Cycles of a memory access.
    gaps : sequence of int
        Idle cycles of the memory between words.
    """

    def __init__(self, entries_log2=2, latency=5, gaps=STEADY, config=CONFIG, queue="lookup"):
        self.config, self.entries, self.entries_log2 = config, 1 << entries_log2, entries_log2
        self.latency, self.gaps = latency, cycle(gaps)
        self.dut = CommandQueue(config, queue)
        self.memory = np.zeros(1 << 16, np.uint8)
        self.read_faults, self.write_faults = {}, {}  # number of the access -> fault
        self.reads, self.writes = [], []  # addresses
        self.events = [0] * config.events
        self.engine_took, self.engine_answers = [], {}  # tags; tag -> outcome
        self.cycle = self.submitted = 0
        self.refused = self.landed = self.restarts = 0
        self.bench = StreamBench(self.dut)
        for process in (self._clock, self._read, self._write, self._engine, self._serve_events):
            self.bench.background(process)

    def run(self, scenario, limit=4000):
        async def prepared(ctx):
            await self._prepare(ctx)
            await scenario(ctx, self)
        self.bench.process("scenario", prepared)
        return self.bench.run(limit)

    async def _prepare(self, ctx):
        """Register the regions and two tables, set the rings up, enable."""
        dut, control = self.dut, self.dut.control
        await ctx.tick().until(dut.ready)
        rings = self.entries * COMMAND_BYTES
        for handle, base, size, writable in (
                (COMMANDS, COMMANDS_AT, rings, 0), (COMPLETIONS, COMPLETIONS_AT, rings, 1),
                (READ_ONLY, COMPLETIONS_AT, rings, 0), (LISTS, LISTS_AT, 4096, 1)):
            ctx.set(dut.region_update.index, handle)
            ctx.set(dut.region_update.entry, {
                "valid": 1, "writable": writable, "base16": base >> 4, "size": size})
            ctx.set(dut.region_update.enable, 1)
            await ctx.tick()
        ctx.set(dut.region_update.enable, 0)
        ctx.set(dut.table_update.entry.valid, 1)
        for number in range(2):
            ctx.set(dut.table_update.index, number)
            ctx.set(dut.table_update.enable, 1)
            await ctx.tick()
        ctx.set(dut.table_update.enable, 0)
        ctx.set(control.commands.as_value(), packed_address(COMMANDS, 0))
        ctx.set(control.completions.as_value(), packed_address(COMPLETIONS, 0))
        ctx.set(control.entries, self.entries_log2)
        await self.enable(ctx)

    async def enable(self, ctx):
        ctx.set(self.dut.control.enable, 1)
        await self.pulse(ctx, self.dut.control.start)
        self.submitted = 0
        await ctx.tick().repeat(3)

    async def pulse(self, ctx, signal):
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)

    async def ring(self, ctx, submitted):
        """Write the doorbell; return whether it was taken."""
        before = self.refused
        ctx.set(self.dut.control.submitted, submitted)
        await self.pulse(ctx, self.dut.control.doorbell)
        await ctx.tick().repeat(3)
        return self.refused == before

    async def submit(self, ctx, *commands):
        """Put commands into the ring and ring the doorbell."""
        for command in commands:
            at = COMMANDS_AT + self.submitted % self.entries * COMMAND_BYTES
            self.memory[at:at + COMMAND_BYTES] = encode(COMMAND_RECORD, **command)
            self.submitted += 1
        assert await self.ring(ctx, self.submitted)

    async def completed(self, ctx, count):
        """Wait for that many completions."""
        while ctx.get(self.dut.control.completed) != count:
            await ctx.tick()
        await ctx.tick()  # until `landed` has been counted

    async def until(self, ctx, **bits):
        """Wait until the STATE register shows these bits."""
        while any(getattr(ctx.get(self.dut.control.state), name) != value
                  for name, value in bits.items()):
            await ctx.tick()

    def completion(self, number):
        at = COMPLETIONS_AT + number % self.entries * COMPLETION_BYTES
        return decode(COMPLETION_RECORD, self.memory[at:at + COMPLETION_BYTES])

    async def _clock(self, ctx):
        control = self.dut.control
        async for _, _, refused, landed in ctx.tick().sample(control.refused, control.landed):
            self.cycle += 1
            self.refused += refused
            self.landed += landed
            ctx.set(self.dut.cycle, self.cycle)

    async def soft_reset(self, ctx):
        """Restart the queue and, as the top would, everything around it."""
        ctx.set(self.dut.control.enable, 0)
        self.restarts += 1
        await self.pulse(ctx, self.dut.restart)

    async def _request(self, ctx, request):
        """Take a request, unless in a restart: its payload and the number of restarts before."""
        ctx.set(request.ready, 1)
        asked = restart = 0
        while not asked or restart:
            _, _, asked, wanted, restart = await ctx.tick().sample(
                request.valid, request.p, self.dut.restart)
        ctx.set(request.ready, 0)
        return wanted, self.restarts

    async def _offer(self, ctx, stream, restarts):
        """Offer a stream's payload until it is taken, or until a restart; tell which."""
        ctx.set(stream.valid, restarts == self.restarts)
        taken = False
        while not taken and restarts == self.restarts:
            _, _, taken = await ctx.tick().sample(stream.ready)
        ctx.set(stream.valid, 0)
        return taken

    async def _read(self, ctx):
        words = self.dut.ring.words
        while True:
            wanted, restarts = await self._request(ctx, self.dut.ring.request)
            fault = self.read_faults.get(len(self.reads), 0)
            self.reads.append(wanted.address)
            await ctx.tick().repeat(self.latency)
            count = wanted.bytes // self.config.bus_bytes
            for beat in range(count):
                await ctx.tick().repeat(1 + next(self.gaps))
                at = wanted.address + beat * self.config.bus_bytes
                ctx.set(words.p, {
                    "data": int.from_bytes(self.memory[at:at + self.config.bus_bytes].tobytes(),
                                           "little"),
                    "fault": fault if beat == count // 2 else 0, "last": beat == count - 1})
                if not await self._offer(ctx, words, restarts):
                    break

    async def _write(self, ctx):
        deposit = self.dut.completions
        while True:
            wanted, restarts = await self._request(ctx, deposit.request)
            address, last = wanted.address, False
            fault = self.write_faults.get(len(self.writes), 0)
            self.writes.append(address)
            while not last and restarts == self.restarts:
                ctx.set(deposit.words.ready, 0)
                await ctx.tick().repeat(1 + next(self.gaps))
                ctx.set(deposit.words.ready, 1)
                _, _, valid, word = await ctx.tick().sample(deposit.words.valid, deposit.words.p)
                if valid:
                    assert word.strobe == (1 << self.config.bus_bytes) - 1
                    if not fault:
                        octets = word.data.to_bytes(self.config.bus_bytes, "little")
                        self.memory[address:address + len(octets)] = np.frombuffer(octets, np.uint8)
                    address, last = address + self.config.bus_bytes, word.last
            ctx.set(deposit.words.ready, 0)
            await ctx.tick().repeat(self.latency)
            ctx.set(deposit.outcome.p.fault, fault)
            await self._offer(ctx, deposit.outcome, restarts)

    async def _engine(self, ctx):
        """Take a command, work, report `OUTCOME` or what the test prepared for its tag."""
        engine = self.dut.engine
        while True:
            bits, last = 0, False
            while not last:
                part, restarts = await self._request(ctx, engine.command)
                bits = (bits if part.number else 0) | part.data << part.number * COMMAND_PART
                last = part.last
            command = command_layout.from_bits(bits)
            self.engine_took.append({name: command[name] for name in OPERANDS})
            await ctx.tick().repeat(ENGINE_CYCLES)
            ctx.set(engine.outcome.p, self.engine_answers.get(command.tag, OUTCOME))
            await self._offer(ctx, engine.outcome, restarts)

    async def _serve_events(self, ctx):
        request, reply = self.dut.events.request, self.dut.events.reply
        while True:
            wanted, restarts = await self._request(ctx, request)
            ctx.set(reply.p, self.events[wanted.event])
            if wanted.write:
                self.events[wanted.event] = wanted.value
            await self._offer(ctx, reply, restarts)


def nop(tag, **fields):
    return {"opcode": Opcode.NOP, "tag": tag, **fields}


def install(tag, count=4):
    """A command for the engine."""
    return {"opcode": Opcode.INSTALL, "tag": tag, "count": count,
            "source": packed_address(LISTS, 0x40), "slots": packed_address(LISTS, 0x80)}


@pytest.mark.parametrize("entries_log2", [1, 2, 4])
@pytest.mark.parametrize("latency, gaps", [(1, STEADY), (40, RAGGED)], ids=["near", "far"])
def test_commands_complete_in_order_around_the_rings(entries_log2, latency, gaps):
    """Three laps of NOPs, checked and engine commands; every completion says which it was."""
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
        finished.extend(host.completion(number) for number in range(count - host.entries, count))

    finished = []
    host = Host(entries_log2, latency, gaps)
    host.run(scenario, limit=20000)
    assert host.landed == count
    assert host.reads == [COMMANDS_AT + number % host.entries * COMMAND_BYTES
                          for number in range(count)]
    assert host.writes == [COMPLETIONS_AT + number % host.entries * COMPLETION_BYTES
                           for number in range(count)]
    end = 0
    for number, completion in enumerate(finished, count - host.entries):
        assert completion["tag"] == number and completion["sequence"] == number + 1
        kind = number % 3
        assert completion["status"] == (Status.BAD_FLAGS if kind == 2 else Status.OK)
        assert completion["error_index"] == (1 if kind == 2 else 0)
        assert {name: completion[name] for name in OUTCOME} == (
            OUTCOME if kind == 1 else dict.fromkeys(OUTCOME, 0))
        assert end <= completion["start"] < completion["end"], "one after the other"
        assert (completion["end"] - completion["start"] > ENGINE_CYCLES) == (kind == 1)
        end = completion["end"]


@pytest.mark.parametrize("queue, opcode, extra", [
    ("lookup", Opcode.INSTALL, {}), ("move", Opcode.GATHER, {"stride": 64})])
def test_the_engine_gets_byte_addresses(queue, opcode, extra):
    async def scenario(ctx, host):
        await host.submit(ctx, install(9) | {"opcode": opcode} | extra | {
            "destination": packed_address(LISTS, 0x100)})
        await host.completed(ctx, 1)
        assert host.completion(0)["status"] == Status.OK

    host = Host(queue=queue)
    host.run(scenario)
    command, = host.engine_took
    assert command["source"] == LISTS_AT + 0x40
    assert command["tag"] == 9 and command["count"] == 4
    if queue == "lookup":
        assert command["slots"] == LISTS_AT + 0x80
    else:
        assert command["destination"] == packed_address(LISTS, 0x100), "stays packed"


def test_an_engines_error_is_reported():
    error = {"status": Status.ROW_OUT_OF_RANGE, "error_index": 3 << 33,
             "error_address": packed_address(LISTS, 0x777), "entries": 2}

    async def scenario(ctx, host):
        host.engine_answers[5] = error
        await host.submit(ctx, install(5))
        await host.completed(ctx, 1)
        completion = host.completion(0)
        assert {name: completion[name] for name in error} == error
        assert completion["hits"] == 0
    Host().run(scenario)


def test_a_completion_is_announced_only_after_it_landed():
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
    """The second of two engine commands starts when the first one's completion is on its way."""
    async def scenario(ctx, host):
        await host.submit(ctx, install(0), install(1))
        await host.completed(ctx, 2)
        gap = host.completion(1)["start"] - host.completion(0)["end"]
        words = COMPLETION_BYTES // CONFIG.bus_bytes
        assert gap <= words + 19, f"{gap} cycles between two commands"
    Host(latency=20).run(scenario)


@pytest.mark.parametrize("value, event, reached", [
    (5, 4, False), (5, 5, True), (5, 6, True), (0, 0xFFFF_FFFF, False), (0xFFFF_FFFF, 0, True),
    (0, 1 << 31, False), (0, (1 << 31) - 1, True)])
def test_wait(value, event, reached):
    """Half-range: the counter has reached a value that it is at most 2**31 - 1 beyond."""
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


def test_signal_comes_after_what_preceded_it():
    async def scenario(ctx, host):
        await host.submit(ctx, install(1), {"opcode": Opcode.SIGNAL, "event": 2, "value": 1 << 31})
        while not host.engine_took:
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
        await host.pulse(ctx, control.abort)  # nothing waits: without effect
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
        assert not await host.ring(ctx, 9), "more than the ring holds"
        assert not await host.ring(ctx, 3), "behind"
        assert not await host.ring(ctx, 0xFFFF_FFFF), "far behind"
        assert ctx.get(control.tail) == 4
        assert await host.ring(ctx, 4), "nothing more"
        assert await host.ring(ctx, 8), "a full ring"
        await host.completed(ctx, 8)
        assert host.refused == 3
        ctx.set(control.enable, 0)
        assert not await host.ring(ctx, 9), "not enabled"
        assert ctx.get(control.tail) == 8
    Host().run(scenario)


def test_a_doorbell_does_not_take_commands_back():
    async def scenario(ctx, host):
        await host.submit(ctx, {"opcode": Opcode.WAIT, "value": 1}, nop(1), nop(2))
        assert not await host.ring(ctx, 2), "behind, though ahead of what has completed"
        assert not await host.ring(ctx, 0)
        assert ctx.get(host.dut.control.tail) == 3
        host.events[0] = 1
        await host.completed(ctx, 3)
    Host().run(scenario)


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
def test_a_ring_that_cannot_be_read(fault, status):
    """The queue stops; enabling it again starts afresh."""
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
    Host().run(scenario)


@pytest.mark.parametrize("fault, status", [(FAULT_SLVERR, Status.SLVERR),
                                           (FAULT_TIMEOUT, Status.TIMEOUT)])
def test_a_completion_ring_that_cannot_be_written(fault, status):
    async def scenario(ctx, host):
        control = host.dut.control
        host.write_faults[1] = fault
        await host.submit(ctx, nop(1), nop(2), nop(3), install(4))
        await host.until(ctx, faulted=1, busy=0)
        await ctx.tick().repeat(100)
        assert not host.engine_took, "no command is taken up after the fault"
        assert ctx.get(control.state.status) == status
        assert ctx.get(control.completed) == host.landed == 1
        assert len(host.writes) == 2, "nothing is written beyond"
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
    """Nothing is read or written there. A ring may also leave its region at a later entry."""
    async def scenario(ctx, host):
        ctx.set(getattr(host.dut.control, ring).as_value(), address)
        await host.enable(ctx)
        await host.submit(ctx, nop(1), nop(2))
        await host.until(ctx, faulted=1, busy=0)
        assert ctx.get(host.dut.control.state.status) == status
        assert not (host.reads if ring == "commands" else host.writes)
    Host().run(scenario)


def test_a_ring_that_leaves_its_region_faults_at_the_entry():
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
    """Enabling a queue that still runs a command does not lose or repeat a completion."""
    async def scenario(ctx, host):
        control = host.dut.control
        await host.submit(ctx, install(1))
        while not host.engine_took:
            await ctx.tick()
        ctx.set(control.enable, 0)
        await ctx.tick()
        ctx.set(control.enable, 1)
        await host.pulse(ctx, control.start)
        assert not await host.ring(ctx, 1), "refused until the start has taken effect"
        await host.until(ctx, busy=0)
        await ctx.tick().repeat(3)
        assert host.landed == 1 and ctx.get(control.completed) == 0
        host.submitted = 0
        await host.submit(ctx, nop(2))
        await host.completed(ctx, 1)
        assert host.completion(0)["tag"] == 2
    Host().run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("after", [*range(1, 100, 7), *range(45, 55), *range(100, 104)])
def test_soft_reset_in_flight(after):
    """Whenever it comes, the queue forgets its work and, enabled again, does what it is told."""
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
