"""A command queue: from a ring of commands in memory to a ring of completions."""

from amaranth import Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.command_rules import PLANNING, rules
from ..contract.encoding import QUEUES, Status
from ..interfaces.records import Engine, ReadClient, WriteClient, table_update
from .command_executor import CommandExecutor
from .command_fetch import CommandFetch
from .command_validator import CommandValidator
from .completion_writer import CompletionWriter
from .event_counters import EventPort
from .queue_control import QueueControl
from .queue_regions import QueueRegionPort
from .ring_address import MAX_ENTRIES_LOG2
from .table_range_check import TableRangeCheck


class Doorbell(wiring.Component):
    """Accept a doorbell's value if the ring can hold that many commands, else refuse it.

    Attributes
    ----------
    ring : In(1)
        A pulse: the host has submitted commands up to `submitted`.
    submitted, completed : In(32)
        Since the queue was enabled, modulo 2**32.
    entries : In(5)
        log2 of the ring's entries, 1 to 16; with another number all doorbells are refused.
    enable : In(1)
        While low all doorbells are refused.
    tail : Out(32)
        The last value accepted.
    refused : Out(1)
        A pulse: the value is before `tail`, or further than `entries` after `completed`.

    Timing
    ------
    `tail` or `refused` follows 2 cycles after `ring`.
    """

    def __init__(self):
        super().__init__({
            "ring": In(1),
            "submitted": In(32),
            "completed": In(32),
            "entries": In(5),
            "enable": In(1),
            "tail": Out(32),
            "refused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        ring_q, submitted_count, tail_count = Signal(), Signal(32), Signal(32)  # from `completed`
        submitted, ring_size = Signal(32), Signal(MAX_ENTRIES_LOG2 + 1)  # 0 for more entries
        legal = Signal()
        m.d.sync += [
            ring_q.eq(self.ring),
            submitted.eq(self.submitted),
            submitted_count.eq(self.submitted - self.completed),
            tail_count.eq(self.tail - self.completed),
            ring_size.eq(1 << self.entries),
            legal.eq(self.entries != 0),
            self.refused.eq(0),
        ]
        with m.If(ring_q & self.enable & legal & (submitted_count <= ring_size)
                  & (submitted_count >= tail_count)):
            m.d.sync += self.tail.eq(submitted)
        with m.Elif(ring_q):
            m.d.sync += self.refused.eq(1)
        return m


class CommandQueue(wiring.Component):
    """Commands in order, as if one after the other, and a completion for each.

    The next command is fetched while an engine runs one, and runs while the completion is written;
    several batches may be in flight (see `CommandExecutor`).

    Parameters
    ----------
    config : Config
    queue : str
        One of `contract.QUEUES`.

    Attributes
    ----------
    control : In(QueueControl())
        `start` takes effect once the queue is idle; until then doorbells are refused.
    table_update : In(table_update(config))
    regions : Out(QueueRegionPort(config))
    ring : Out(ReadClient(config))
    completions : Out(WriteClient(config))
    engine : Out(Engine(config))
    events : Out(EventPort(config))
    cycle : In(64)
    restart : In(1)
        Drop everything but the tables. Engine, ports and events restart as well.
    engine_busy : Out(1)
        A command is in the engine, or between its acceptance and completion.
    engine_stalled : In(1)
        A pulse: the engine makes no progress. The queue is faulted until a restart.
    ready : Out(1)
        Low while the tables are cleared after reset.

    Timing
    ------
    Commands without an engine, on a bus of 16 bytes: about 55 cycles and the memory's latency for a
    command, or about 16 cycles and its latency for a completion, whichever is more.
    """

    def __init__(self, config: Config, queue: str):
        if queue not in QUEUES:
            raise ValueError(f"queue must be one of {', '.join(QUEUES)}, not {queue!r}")
        self.config, self.queue = config, queue
        super().__init__({
            "control": In(QueueControl()),
            "table_update": In(table_update(config)),
            "regions": Out(QueueRegionPort(config)),
            "ring": Out(ReadClient(config)),
            "completions": Out(WriteClient(config)),
            "engine": Out(Engine(config)),
            "events": Out(EventPort(config)),
            "cycle": In(64),
            "restart": In(1),
            "engine_busy": Out(1),
            "engine_stalled": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        control, starting, clear = self.control, Signal(), Signal()
        cleared = ResetInserter(clear)
        fetch, writer = CommandFetch(self.config), CompletionWriter(self.config, self.queue)
        validator = CommandValidator(self.config, self.queue)
        served = rules(self.queue, self.config)
        batches = tuple(opcode for opcode, rule in served.items()
                        if rule.is_batch and opcode not in PLANNING)
        executor, doorbell = CommandExecutor(self.config, batches), Doorbell()
        m.submodules.fetch = cleared(fetch)
        m.submodules.validator = cleared(validator)
        m.submodules.executor = cleared(executor)
        m.submodules.writer = cleared(writer)
        m.submodules.doorbell = cleared(doorbell)

        connect, flipped = wiring.connect, wiring.flipped
        connect(m, writer=writer.entry, queue=flipped(self.regions.completion))
        connect(m, fetch=fetch.entry, queue=flipped(self.regions.command))
        connect(m, validator=validator.region, queue=flipped(self.regions.operands))
        connect(m, fetch=fetch.read, queue=flipped(self.ring))
        connect(m, fetch=fetch.commands, validator=validator.words)
        connect(m, validator=validator.commands, executor=executor.commands)
        connect(m, validator=validator.checked, executor=executor.checked)
        connect(m, validator=validator.ranges, executor=executor.ranges)
        connect(m, validator=validator.parts, executor=executor.parts)
        connect(m, executor=executor.engine, queue=flipped(self.engine))
        connect(m, executor=executor.events, queue=flipped(self.events))
        connect(m, executor=executor.completions, writer=writer.completions)
        connect(m, writer=writer.write, queue=flipped(self.completions))

        tables_ready = Const(1)
        if batches or any(rule.batch_flag for rule in served.values()):
            m.submodules.span = span = TableRangeCheck(self.config)
            connect(m, queue=flipped(self.table_update), span=span.table_update)
            connect(m, validator=validator.tables, span=span.client)
            m.d.comb += span.restart.eq(clear)
            tables_ready = span.ready

        busy, faulted, enable = Signal(), Signal(), Signal()
        start = Signal()  # the queue is idle and starts
        stalled = Signal()
        fault = Mux(writer.faulted, writer.fault,
                    Mux(stalled, Status.STALLED, fetch.fault))
        m.d.sync += [
            stalled.eq((stalled | self.engine_stalled) & ~clear),
            start.eq(starting & ~busy & ~start),
            self.regions.last.eq((1 << control.entries) - 1),
            enable.eq(control.enable & ~starting & ~faulted),  # Timing: a register, large fan-out
        ]
        m.d.comb += [
            busy.eq(executor.busy | fetch.busy | writer.busy),
            faulted.eq(writer.faulted | fetch.faulted | stalled),
            self.engine_busy.eq(executor.busy & ~executor.waiting & ~faulted),
            clear.eq(self.restart | start),
            self.ready.eq(tables_ready),
            self.regions.restart.eq(clear),
            self.regions.completion_ring.eq(control.completions),
            self.regions.command_ring.eq(control.commands),
            fetch.space.eq(validator.idle),
            fetch.enable.eq(enable),
            fetch.tail.eq(doorbell.tail),
            executor.cycle.eq(self.cycle),
            executor.enable.eq(enable),
            executor.halt_on_error.eq(control.halt_on_error),
            executor.resume.eq(control.resume),
            executor.abort.eq(control.abort),
            doorbell.ring.eq(control.doorbell),
            doorbell.submitted.eq(control.submitted),
            doorbell.completed.eq(writer.completed),
            doorbell.entries.eq(control.entries),
            doorbell.enable.eq(control.enable & ~starting),
            control.tail.eq(doorbell.tail),
            control.head.eq(fetch.head),
            control.completed.eq(writer.completed),
            control.state.busy.eq(busy),
            control.state.halted.eq(executor.halted),
            control.state.waiting.eq(executor.waiting),
            control.state.faulted.eq(faulted),
            control.state.status.eq(Mux(faulted, fault, executor.status)),
            control.refused.eq(doorbell.refused),
            control.completed_pulse.eq(writer.completed_pulse),
        ]
        with m.If(control.start):
            m.d.sync += starting.eq(1)
        with m.Elif(clear):
            m.d.sync += starting.eq(0)
        return m
