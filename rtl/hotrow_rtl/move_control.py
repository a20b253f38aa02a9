"""Move control: start everything that a command needs, one at a time."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .contract import ROW_ENTRY_BYTES, GatherFlag, Opcode
from .layouts import Fetch, command, packed_address

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
        As of `Fetch`; targets only for a command that is LISTED.
    rows_start, targets_start : Out(stream)
        The `count` of elements, for the unpackers.
    start : Out(1)
        A pulse in the cycle after a command is taken, from which on its settings are there.
    over : In(1)
        A pulse when its outcome has been taken.
    listed, with_state, count, stride : Out
        Settings of the command.
    to_tables : Out(1)
        Rows go from slots to tables, else from tables to slots.
    slots, state_slots : Out(packed_address)
        Slot 0 of rows and of their state.
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
            "listed": Out(1),
            "with_state": Out(1),
            "count": Out(32),
            "stride": Out(16),
            "to_tables": Out(1),
            "slots": Out(packed_address),
            "state_slots": Out(packed_address),
        })

    def elaborate(self, platform):
        m = Module()
        wanted, busy, taken = self.command.p, Signal(), Signal()
        listed = (wanted.flags & GatherFlag.LISTED) != 0
        to_tables = wanted.opcode == Opcode.SCATTER
        orders = (self.rows_request, self.targets_request, self.rows_start, self.targets_start)
        m.d.comb += [
            self.command.ready.eq(~busy),
            taken.eq(self.command.valid & ~busy),
            self.rows_request.p.bytes.eq(self.count * ROW_ENTRY_BYTES),
            self.targets_request.p.bytes.eq(self.count * TARGET_BYTES),
            self.rows_start.p.count.eq(self.count),
            self.targets_start.p.count.eq(self.count),
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
                self.rows_request.valid.eq(1),
                self.rows_request.p.address.eq(wanted.source),
                self.rows_start.valid.eq(1),
                self.targets_request.valid.eq(listed),
                self.targets_request.p.address.eq(wanted.targets),
                self.targets_start.valid.eq(listed),
                self.listed.eq(listed),
                self.with_state.eq((wanted.flags & GatherFlag.STATE) != 0),
                self.count.eq(wanted.count),
                self.stride.eq(wanted.stride),
                self.to_tables.eq(to_tables),
                self.slots.eq(Mux(to_tables, wanted.rows, wanted.destination)),
                self.state_slots.eq(Mux(to_tables, wanted.state_rows, wanted.state_destination)),
            ]
        return m
