"""Test bench of a command queue: memory, engine and event counters."""

from itertools import cycle

import numpy as np
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import (
    COMMAND_BYTES,
    COMPLETION_BYTES,
    OPERANDS,
    Opcode,
    packed_address,
)
from hotrow_rtl.host.command_queue import CommandQueue
from hotrow_rtl.host.queue_regions import QueueRegions
from hotrow_rtl.interfaces.records import COMMAND_PART, region_update
from hotrow_rtl.interfaces.records import command as command_layout
from hotrow_sim.golden.records import COMMAND_RECORD, COMPLETION_RECORD, decode, encode

from tests.support.benches.stream_bench import STEADY, StreamBench
from tests.support.simulation import built

CONFIG = preset("tiny")
COMMANDS_AT, COMPLETIONS_AT, LISTS_AT = 0x1000, 0x8000, 0x1_0000
COMMANDS, COMPLETIONS, READ_ONLY, LISTS = 1, 2, 3, 4  # handles
ENGINE_CYCLES = 30
OUTCOME = {"lookups": 1, "hits": 2, "misses": 3, "unique": 4, "popular": 5, "entries": 6,
           "refused": 7, "bytes": 8 << 32}


class CheckedQueue(wiring.Component):
    """A command queue and its region check."""

    def __init__(self, config, queue):
        self.queue = CommandQueue(config, queue)
        self.region_check = QueueRegions(config, queues=1)
        self.ports = {name: member for name, member in self.queue.signature.members.items()
                      if name != "regions"}
        super().__init__({**self.ports, "region_update": In(region_update(config))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue, m.submodules.regions = queue, regions = self.queue, self.region_check
        wiring.connect(m, queue=queue.regions, regions=regions.queues[0])
        wiring.connect(m, bench=wiring.flipped(self.region_update), regions=regions.region_update)
        for name, member in self.ports.items():
            inner, outer = getattr(queue, name), getattr(self, name)
            if member.is_signature:
                wiring.connect(m, queue=inner, bench=wiring.flipped(outer))
            elif member.flow is In:
                m.d.comb += inner.eq(outer)
            else:
                m.d.comb += outer.eq(inner if name != "ready" else inner & regions.ready)
        return m


class Host:
    """A command queue with the units that it uses.

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
        self.dut = built(CheckedQueue, config, queue)
        self.memory = np.zeros(1 << 16, np.uint8)
        self.read_faults, self.write_faults = {}, {}  # number of the access -> fault
        self.fault_beat = 1  # of a read with a fault; -1 for the last
        self.reads, self.writes = [], []  # addresses
        self.events = [0] * config.events
        self.engine_commands, self.engine_outcomes = [], {}  # commands; tag -> outcome
        self.cycle = self.submitted = 0
        self.refused = self.completions = self.restarts = 0
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
        """Register the regions and two tables, configure the rings, enable the queue."""
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
        """Ring the doorbell; return whether the value was accepted."""
        before = self.refused
        ctx.set(self.dut.control.submitted, submitted)
        await self.pulse(ctx, self.dut.control.doorbell)
        await ctx.tick().repeat(3)
        return self.refused == before

    async def submit(self, ctx, *commands):
        """Write commands to the ring and ring the doorbell."""
        for command in commands:
            at = COMMANDS_AT + self.submitted % self.entries * COMMAND_BYTES
            self.memory[at:at + COMMAND_BYTES] = encode(COMMAND_RECORD, **command)
            self.submitted += 1
        assert await self.ring(ctx, self.submitted)

    async def completed(self, ctx, count):
        """Wait for `count` completions."""
        while ctx.get(self.dut.control.completed) != count:
            await ctx.tick()
        await ctx.tick()  # until `completions` is updated

    async def until(self, ctx, **bits):
        """Wait until the STATE register has these bits."""
        while any(getattr(ctx.get(self.dut.control.state), name) != value
                  for name, value in bits.items()):
            await ctx.tick()

    def completion(self, number):
        at = COMPLETIONS_AT + number % self.entries * COMPLETION_BYTES
        return decode(COMPLETION_RECORD, self.memory[at:at + COMPLETION_BYTES])

    async def _clock(self, ctx):
        control = self.dut.control
        async for _, _, refused, completed in ctx.tick().sample(
                control.refused, control.completed_pulse):
            self.cycle += 1
            self.refused += refused
            self.completions += completed
            ctx.set(self.dut.cycle, self.cycle)

    async def soft_reset(self, ctx):
        """Restart the queue and, as the top does, the units that it uses."""
        ctx.set(self.dut.control.enable, 0)
        self.restarts += 1
        await self.pulse(ctx, self.dut.restart)

    async def _request(self, ctx, request):
        """Accept a request, except in a restart; return its payload and the restarts so far."""
        ctx.set(request.ready, 1)
        valid = restart = 0
        while not valid or restart:
            _, _, valid, payload, restart = await ctx.tick().sample(
                request.valid, request.p, self.dut.restart)
        ctx.set(request.ready, 0)
        return payload, self.restarts

    async def _send(self, ctx, stream, restarts):
        """Send a stream's payload; return whether it was accepted before a restart."""
        ctx.set(stream.valid, restarts == self.restarts)
        accepted = False
        while not accepted and restarts == self.restarts:
            _, _, accepted = await ctx.tick().sample(stream.ready)
        ctx.set(stream.valid, 0)
        return accepted

    async def _read(self, ctx):
        words = self.dut.ring.words
        while True:
            request, restarts = await self._request(ctx, self.dut.ring.request)
            fault = self.read_faults.get(len(self.reads), 0)
            self.reads.append(request.address)
            await ctx.tick().repeat(self.latency)
            count = request.bytes // self.config.bus_bytes
            for beat in range(count):
                await ctx.tick().repeat(1 + next(self.gaps))
                at = request.address + beat * self.config.bus_bytes
                ctx.set(words.p, {
                    "data": int.from_bytes(self.memory[at:at + self.config.bus_bytes].tobytes(),
                                           "little"),
                    "fault": fault if beat == self.fault_beat % count else 0,
                    "last": beat == count - 1})
                if not await self._send(ctx, words, restarts):
                    break

    async def _write(self, ctx):
        client = self.dut.completions
        while True:
            request, restarts = await self._request(ctx, client.request)
            address, last = request.address, False
            fault = self.write_faults.get(len(self.writes), 0)
            self.writes.append(address)
            while not last and restarts == self.restarts:
                ctx.set(client.words.ready, 0)
                await ctx.tick().repeat(1 + next(self.gaps))
                ctx.set(client.words.ready, 1)
                _, _, valid, word = await ctx.tick().sample(client.words.valid, client.words.p)
                if valid:
                    assert word.strobe == (1 << self.config.bus_bytes) - 1
                    if not fault:
                        octets = word.data.to_bytes(self.config.bus_bytes, "little")
                        self.memory[address:address + len(octets)] = np.frombuffer(octets, np.uint8)
                    address, last = address + self.config.bus_bytes, word.last
            ctx.set(client.words.ready, 0)
            await ctx.tick().repeat(self.latency)
            ctx.set(client.outcome.p.fault, fault)
            await self._send(ctx, client.outcome, restarts)

    async def _engine(self, ctx):
        """Accept a command, wait, return `OUTCOME` or the test's outcome for its tag."""
        engine = self.dut.engine
        while True:
            bits, last = 0, False
            while not last:
                part, restarts = await self._request(ctx, engine.command)
                bits = (bits if part.number else 0) | part.data << part.number * COMMAND_PART
                last = part.last
            command = command_layout.from_bits(bits)
            self.engine_commands.append({name: command[name] for name in OPERANDS})
            await ctx.tick().repeat(ENGINE_CYCLES)
            ctx.set(engine.outcome.p, self.engine_outcomes.get(command.tag, OUTCOME))
            await self._send(ctx, engine.outcome, restarts)

    async def _serve_events(self, ctx):
        request, reply = self.dut.events.request, self.dut.events.reply
        while True:
            access, restarts = await self._request(ctx, request)
            ctx.set(reply.p, self.events[access.event])
            if access.write:
                self.events[access.event] = access.value
            await self._send(ctx, reply, restarts)


def nop(tag, **fields):
    return {"opcode": Opcode.NOP, "tag": tag, **fields}


def install(tag, count=4):
    """A command for the engine."""
    return {"opcode": Opcode.INSTALL, "tag": tag, "count": count,
            "source": packed_address(LISTS, 0x40), "slots": packed_address(LISTS, 0x80)}
