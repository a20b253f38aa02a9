"""Check that the tables of a batch are registered."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import OPERANDS
from ..interfaces.records import table_update
from ..primitives.ram import ClearedRam

_NUMBER_WIDTH = 8 * OPERANDS["first_table"].bytes

# `count` tables (at least 1) from table `first`.
table_span = data.StructLayout({"first": _NUMBER_WIDTH, "count": _NUMBER_WIDTH})
# `unknown`: table `number`, the first such, is not registered.
table_span_verdict = data.StructLayout({"unknown": 1, "number": _NUMBER_WIDTH + 1})


class TableRangePort(wiring.Signature):
    """A client's view of a `TableRangeCheck`: `spans`, and one of `verdicts` for each."""

    def __init__(self):
        super().__init__({
            "spans": Out(stream.Signature(table_span)),
            "verdicts": In(stream.Signature(table_span_verdict)),
        })


class TableRangeCheck(wiring.Component):
    """Find the first unregistered table of a span.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    table_update : In(table_update(config))
    client : In(TableRangePort())
    restart : In(1)
        Drop the span in progress; the tables stay registered.
    ready : Out(1)
        Low while the tables are cleared after reset; spans then stall.

    Timing
    ------
    Latency `count` + 2 cycles at most, one span at a time. Clearing takes `tables` cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "table_update": In(table_update(config)),
            "client": In(TableRangePort()),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.registered = registered = ClearedRam(
            1, self.config.tables, reads_old=True)
        spans, verdicts = self.client.spans, self.client.verdicts
        number, remaining = Signal(_NUMBER_WIDTH + 1), Signal(_NUMBER_WIDTH)
        number_q, beyond = Signal(_NUMBER_WIDTH + 1), Signal()
        m.d.comb += [
            registered.write_enable.eq(self.table_update.enable),
            registered.write_address.eq(self.table_update.index),
            registered.write_data.eq(self.table_update.entry.valid),
            registered.read_address.eq(number),
            self.ready.eq(registered.ready),
        ]
        m.d.sync += [
            number_q.eq(number),
            beyond.eq(number >= self.config.tables),
            number.eq(number + 1),
            remaining.eq(remaining - 1),
        ]

        def drop_on_restart():
            with m.If(self.restart):
                m.next = "IDLE"

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [number.eq(spans.p.first), remaining.eq(spans.p.count)]
                m.d.comb += spans.ready.eq(self.ready & ~self.restart)
                with m.If(spans.valid & spans.ready):
                    m.next = "FIRST"
            with m.State("FIRST"):
                m.next = "CHECK"
                drop_on_restart()
            with m.State("CHECK"):
                m.d.sync += [
                    verdicts.p.unknown.eq(beyond | ~registered.read_data),
                    verdicts.p.number.eq(number_q),
                ]
                with m.If(beyond | ~registered.read_data | (remaining == 0)):
                    m.next = "VERDICT"
                drop_on_restart()
            with m.State("VERDICT"):
                m.d.comb += verdicts.valid.eq(1)
                with m.If(verdicts.ready):
                    m.next = "IDLE"
                drop_on_restart()
        return m
