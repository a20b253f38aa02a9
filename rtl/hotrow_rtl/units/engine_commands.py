"""Commands at the edge of an engine that stands alone: whole records, and one table a transfer."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..interfaces.records import COMMAND_PART, COMMAND_PARTS, Engine, command, packed_address
from ..primitives.replicated_register import replicated

# Ports of a unit with AXI4 masters.
CONTROL = {"timeout": In(32), "restart": In(1), "stopped": Out(1), "ready": Out(1)}


class CommandParts(wiring.Component):
    """Send a command to an engine in parts.

    Attributes
    ----------
    commands : In(stream(command))
    parts : Out(command of `Engine`)
    enable : In(1)
        A command may begin.
    restart : In(1)
        A pulse: the next part is the first of a command.

    Timing
    ------
    One part a cycle.
    """

    def __init__(self, config: Config):
        super().__init__({
            "commands": In(stream.Signature(command)),
            "parts": Out(Engine(config).members["command"].signature),
            "enable": In(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        number, last = Signal(range(COMMAND_PARTS)), Signal()
        record, part = self.commands, self.parts
        m.d.comb += [
            last.eq(number == COMMAND_PARTS - 1),
            part.valid.eq(record.valid & (self.enable | (number != 0))),
            part.p.number.eq(number),
            part.p.data.eq(Value.cast(record.p).word_select(number, COMMAND_PART)),
            part.p.last.eq(last),
            record.ready.eq(part.valid & part.ready & last),
        ]
        with m.If(self.restart):
            m.d.sync += number.eq(0)
        with m.Elif(part.valid & part.ready):
            m.d.sync += number.eq(Mux(last, 0, number + 1))
        return m


def lookup_table(config: Config) -> data.StructLayout:
    """A table of lookups by number: its rows are 0 to `last_row`, and of the directory it has part
    `part` of 2**`parts_log2`."""
    return data.StructLayout({
        "number": config.table_width, "last_row": config.row_width, "parts_log2": 3, "part": 6})


def row_table(config: Config) -> data.StructLayout:
    """A table of rows by number.

    Its rows are 0 to `last_row`, each of `row16` times 16 bytes, `stride16` times 16 bytes apart;
    row 0 is at `weights`. The state of a row has `state4` times 4 bytes and begins at `state`. The
    `type` of its elements, with arithmetic only, is an `ElementType`.
    """
    return data.StructLayout({
        "number": config.table_width, "last_row": config.row_width, "weights": packed_address,
        "row16": 9, "stride16": 12, "state": packed_address, "state4": 4,
        "type": 2 if config.arithmetic else 0})


def memory_region(config: Config) -> data.StructLayout:
    """A region of memory by number: `size` bytes from `base16` times 16."""
    return data.StructLayout({
        "number": log2(config.handles), "writable": 1, "base16": config.address_width - 4,
        "size": packed_address["offset"].width})


def control(m, unit, ports, idle=1, stopped=0, cleared=None):
    """Connect the ports `CONTROL` of a unit.

    Parameters
    ----------
    m : Module
    unit : component
    ports : dict of str to component
        DMA ports by name; they restart in the cycle after a restart.
    idle, stopped : Value, optional
        Of what else drains after a restart.
    cleared : Value, optional
        High once the memories are cleared after reset; later it may fall.

    Returns
    -------
    Signal
        High while the ports drain.
    """
    draining, all_idle = Signal(), Cat(idle, *(port.idle for port in ports.values()))
    idle_q, was_cleared = Signal(len(all_idle)), Signal(init=cleared is None)
    m.d.sync += idle_q.eq(Mux(draining, all_idle, 0))
    with m.If(unit.restart):
        m.d.sync += [draining.eq(1), idle_q.eq(0)]
    with m.Elif(idle_q.all()):
        m.d.sync += draining.eq(0)
    if cleared is not None:
        with m.If(cleared):
            m.d.sync += was_cleared.eq(1)
    for name, port in ports.items():
        m.d.comb += [port.timeout.eq(unit.timeout),
                     port.restart.eq(replicated(m, f"{name}_restart", unit.restart))]
    m.d.comb += [
        unit.stopped.eq(Cat(stopped, *(port.stopped for port in ports.values())).any()),
        unit.ready.eq(was_cleared & ~draining),
    ]
    return draining


def register(m, entries, updates):
    """Write each entry of a stream to tables.

    Parameters
    ----------
    m : Module
    entries : stream
        Of a layout with `number` and the fields of the table. It is always ready.
    updates : sequence of Update
    """
    m.d.comb += entries.ready.eq(1)
    for update in updates:
        m.d.comb += [update.enable.eq(entries.valid), update.index.eq(entries.p.number),
                     update.entry.valid.eq(1)]
        m.d.comb += [Value.cast(update.entry[name]).eq(Value.cast(entries.p[name]))
                     for name, _ in entries.p.shape() if name != "number"]
