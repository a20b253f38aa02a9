"""A lookup engine with a planner in Amaranth's simulator, compared with the model."""

from types import SimpleNamespace

import numpy as np
from hotrow_rtl.contract.encoding import OPERANDS, BatchFlag, Opcode
from hotrow_rtl.lookup.dispatch.result_addresses import LISTS_OF, RESULT_WRITERS, STRIPED_LIST
from hotrow_rtl.lookup.engine import LookupEngine
from hotrow_sim.model.lookup_engine import LookupEngine as Model

from ..simulation import built
from .command_parts import drop, register, submit
from .list_bench import ListMemory
from .stream_bench import STEADY, StreamBench

COUNTS = ("status", "error_index", "lookups", "hits", "misses", "unique", "popular", "entries",
          "refused", "evictions", "bypasses", "wait_for")


class ModelMemory:
    """Memory of the model: reads a `ListMemory`, and stores its own results by address."""

    def __init__(self, memory):
        self.memory, self.written = memory, {}

    def read_list(self, address, dtype, count):
        """See `model.memory.Memory`."""
        octets = self.memory.bytes[address:address + count * dtype.itemsize]
        word = self.memory.config.bus_bytes
        faults = [self.memory.read_faults.get((address + at) // word * word, 0)
                  for at in range(0, len(octets), dtype.itemsize)]
        return np.frombuffer(octets, dtype).copy(), np.array(faults)

    def write(self, address, octets):
        """See `model.memory.Memory`; never faults."""
        self.written[address] = bytes(octets)
        return 0


class PlanBench:
    """Commands and retirements for the engine, with the expected outcomes of the model.

    Parameters
    ----------
    config : Config
    last_rows : sequence of int
        Last row of each registered table.
    gaps, pauses : sequence of int
        As for `ListMemory`.
    """

    def __init__(self, config, last_rows, gaps=STEADY, pauses=STEADY):
        self.config, self.pauses = config, pauses
        self.dut = built(LookupEngine, config)
        self.bench = StreamBench(self.dut)
        self.memory = ListMemory(self.bench, config, gaps=gaps, pauses=pauses)
        most = config.directory_partitions.bit_length() - 1
        self.tables = {number: SimpleNamespace(last_row=last, parts_log2=min(number, most), part=0)
                       for number, last in enumerate(last_rows)}
        self.model_memory = ModelMemory(self.memory)
        self.model = Model(config, self.model_memory, self.tables)
        self.steps, self.wanted, self.rooms = [], [], []
        self.outcomes = []  # of the model, per command

    def batch(self, opcode, number, ids, samples=None, tables=1, flags=0, lengths=None, first=0):
        """Queue a PLAN, MARK, OBSERVE or SPLIT; return the outcome of the model."""
        ids = np.asarray(ids, np.uint64 if flags & BatchFlag.ID64 else np.uint32)
        command = {"opcode": opcode, "value": number & 0xFFFF_FFFF, "flags": int(flags),
                   "count": len(ids), "samples": len(ids) // tables if samples is None else samples,
                   "first_table": first, "table_count": tables, "source": self.memory.place(ids)}
        if lengths is not None:
            command["lengths"] = self.memory.place(np.asarray(lengths, np.uint16))
        return self.command(command, 8 * len(ids))

    def list(self, opcode, rows, flags=0):
        """Queue an INSTALL or REMOVE of (table, row) pairs; without pairs, a REMOVE with ALL."""
        entries = np.array([(row, table) for table, row in rows], np.uint32)
        return self.command({"opcode": opcode, "flags": int(flags) | (not len(rows)),
                             "count": len(rows), "source": self.memory.place(entries)},
                            4 * len(rows))

    def command(self, command, room):
        """Queue any command, with `room` bytes for each result."""
        room = max(room, 4 * command.get("samples", 0)) + 2 * self.config.burst_beats * \
            self.config.bus_bytes
        for name in LISTS_OF.get(command["opcode"], ()):
            command[name] = self.memory.room(room)
            self.rooms.append((len(self.outcomes), name, command[name]))
        whole = dict.fromkeys(OPERANDS, 0) | command
        outcome = self.model.execute(whole, whole)
        self.steps.append(command)
        self.outcomes.append(outcome)
        self.wanted.append({name: int(getattr(outcome, name)) for name in COUNTS})
        return outcome

    def retire(self, number):
        """Queue a write of PLAN_RETIRED after all commands so far; return whether the card accepts
        it."""
        accepted = self.model.planning.retire(number & 0xFFFF_FFFF)
        self.steps.append((number & 0xFFFF_FFFF, accepted, self.model.planning.retired))
        return accepted

    def dropped(self, opcode, number, ids, cycles):
        """Queue a command and restart the engine `cycles` after its transfer. The bench ignores the
        results and the model does not see the command: follow with a REMOVE with ALL."""
        ids = np.asarray(ids, np.uint32)
        self.steps.append((
            {"opcode": opcode, "value": number, "count": len(ids), "samples": len(ids),
             "table_count": 1, "source": self.memory.place(ids)}
            | {name: self.memory.room(8 * len(ids) + 256) for name in LISTS_OF[Opcode.PLAN]},
            cycles))

    def run(self, limit=200_000):
        """Run all steps and compare every outcome and every byte; return the cycles from each
        command to its outcome."""
        self._begun, self._cycles, self.ended = [], [], 0
        self._serve()
        self.bench.process("steps", self._play)
        self.bench.process("outcomes", self._check)
        self.bench.run(limit)
        for number, name, address in self.rooms:
            wanted = self.model_memory.written.get(address, b"")
            got = bytes(self.memory.bytes[address:address + len(wanted)])
            where = f"{name} of command {number}"
            assert got == wanted, f"{where}: {np.frombuffer(got, np.uint32)}, " \
                                  f"not {np.frombuffer(wanted, np.uint32)}"
            self.memory.array(address, len(wanted), np.uint8)
        assert not self.memory.open
        return np.subtract(self._cycles, self._begun)

    def _serve(self):
        for name in ("source", "lengths"):
            self.memory.serve(getattr(self.dut, name))
        for number, name in enumerate(RESULT_WRITERS):
            self.memory.accept(getattr(self.dut, name),
                               striped=self.config.striped_misses and number >= STRIPED_LIST,
                               whole=self.dut.bypass_striping)

    async def _play(self, ctx):
        await self.register_tables(ctx)
        begun = 0
        for step in self.steps:
            if isinstance(step, dict):
                await self.submit(ctx, step)
                self._begun.append(self.bench.cycles)
                begun += 1
                continue
            while self.ended < begun:
                await ctx.tick()
            await (self._drop if isinstance(step[0], dict) else self._retire)(ctx, *step)

    async def register_tables(self, ctx):
        """Write the tables to the engine once it is ready."""
        await ctx.tick().until(self.dut.ready)
        await register(ctx, self.dut.table_update, {
            number: {"valid": 1, **vars(table)} for number, table in self.tables.items()})

    async def submit(self, ctx, command):
        """Transfer a command."""
        await submit(ctx, self.dut.engine.command, command)

    async def _drop(self, ctx, command, cycles):
        await drop(ctx, self.dut, self.memory, command, cycles)

    async def _retire(self, ctx, number, accepted, retired):
        host = self.dut.retirement
        ctx.set(host.write, 1)
        ctx.set(host.number, number)
        await ctx.tick()
        ctx.set(host.write, 0)
        await ctx.tick()
        assert ctx.get(host.refused) == (not accepted), f"retire {number}"
        assert ctx.get(host.retired) == retired

    async def _check(self, ctx):
        port = self.dut.engine.outcome
        for number, want in enumerate(self.wanted):
            for _ in range(self.pauses[number % len(self.pauses)]):
                await ctx.tick()
            ctx.set(port.ready, 1)
            (got,) = await ctx.tick().sample(port.p).until(port.valid)
            ctx.set(port.ready, 0)
            self._cycles.append(self.bench.cycles)
            got = {name: int(getattr(got, name)) for name in want}
            assert got == want, f"command {number}: {got}, not {want}"
            self.ended += 1
