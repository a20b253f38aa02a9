"""Move control: start everything that a command needs, one at a time."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .command_rules import SPANS
from .config import Config, log2
from .contract import ROW_ENTRY_BYTES, GatherFlag, Opcode
from .layouts import Fetch, command
from .row_layouts import move_setting

TARGET_BYTES = 4


class MoveControl(wiring.Component):
    """Take a command, ask for its lists, hold its settings until it is over.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
    rows_request, targets_request : Out(stream)
        As of `Fetch`; targets only for a command that is LISTED, neither for a span.
    rows_start, targets_start : Out(stream)
        The `count` of elements, for the unpackers.
    start : Out(1)
        A pulse in the cycle after a command is taken, from which on its settings are there.
    over : In(1)
        A pulse when its outcome has been taken.
    setting : Out(move_setting())
        The `slots` of a span are its destination, its `count` that of its pieces.
    fills : Out(1)
        The command is a span whose bytes are not read, but of `pattern`.
    pattern : Out(32)
    """

    def __init__(self, config: Config):
        self.config = config
        request = Fetch(config).members["request"].signature
        count = stream.Signature(data.StructLayout({"count": 32}))
        super().__init__({
            "command": In(stream.Signature(command)),
            "rows_request": Out(request),
            "targets_request": Out(request),
            "rows_start": Out(count),
            "targets_start": Out(count),
            "start": Out(1),
            "over": In(1),
            "setting": Out(move_setting()),
            "fills": Out(1),
            "pattern": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        wanted, setting, busy, taken = self.command.p, self.setting, Signal(), Signal()
        listed = (wanted.flags & GatherFlag.LISTED) != 0
        to_tables, fills = wanted.opcode == Opcode.SCATTER, wanted.opcode == Opcode.FILL
        spans = Cat(wanted.opcode == each for each in SPANS).any()
        piece = self.config.row_bytes  # a power of two
        rest = wanted.count[:log2(piece)]
        orders = (self.rows_request, self.targets_request, self.rows_start, self.targets_start)
        m.d.comb += [
            self.command.ready.eq(~busy),
            taken.eq(self.command.valid & ~busy),
            self.rows_request.p.bytes.eq(setting.count * ROW_ENTRY_BYTES),
            self.targets_request.p.bytes.eq(setting.count * TARGET_BYTES),
            self.rows_start.p.count.eq(setting.count),
            self.targets_start.p.count.eq(setting.count),
        ]
        for order in orders:
            with m.If(order.ready):
                m.d.sync += order.valid.eq(0)
        with m.If(self.over):
            m.d.sync += busy.eq(0)
        m.d.sync += self.start.eq(taken)
        with m.If(taken):
            m.d.sync += [
                busy.eq(1),
                self.rows_request.valid.eq(~spans),
                self.rows_request.p.address.eq(wanted.source),
                self.rows_start.valid.eq(~spans),
                self.targets_request.valid.eq(listed),  # a flag that spans do not have
                self.targets_request.p.address.eq(wanted.targets),
                self.targets_start.valid.eq(listed),
                setting.listed.eq(listed),
                setting.with_state.eq((wanted.flags & GatherFlag.STATE) != 0),
                setting.count.eq(Mux(
                    spans, (wanted.count >> log2(piece)) + rest.any(), wanted.count)),
                setting.stride.eq(Mux(spans, piece, wanted.stride)),
                setting.spans.eq(spans),
                self.fills.eq(fills),
                setting.source.eq(Mux(fills, wanted.destination, wanted.source)),
                setting.final_bytes.eq(Mux(rest.any(), rest, piece)),
                self.pattern.eq(wanted.value),
                setting.to_tables.eq(to_tables),
                setting.slots.eq(Mux(to_tables, wanted.rows, wanted.destination)),
                setting.state_slots.eq(Mux(to_tables, wanted.state_rows, wanted.state_destination)),
            ]
        return m
