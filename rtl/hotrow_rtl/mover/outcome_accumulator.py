"""OutcomeAccumulator: the entries and bytes moved, and the error with the lowest index."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..contract.encoding import Status
from .port.payloads import finished_transfer, refusal


def partial_outcome() -> data.StructLayout:
    """The fields of `outcome` that a move command sets."""
    return data.StructLayout({
        "status": 8, "error_index": 32, "error_address": 64, "entries": 32, "bytes": 64})


class OutcomeAccumulator(wiring.Component):
    """Count what was moved and keep the error with the lowest index.

    Parameters
    ----------
    ordered : bool
        Return the `index` of the error.

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    bags : In(1)
        The entries are bags: the error index is the `list_index` of a refusal, or the `source` of a
        computed row.
    refused, refused_valid : In
        A pulse per entry that is not moved, in order of entries.
    finished : In(finished_transfer())
        A transfer that has landed or failed. An entry ends with its `last` transfer, and is never
        refused afterwards.
    entry_done : Out(1)
        An entry ends.
    total : Out(partial_outcome())
    index : Out(32)
        With `ordered`: the entry or bag that `total` has the error of.

    Timing
    ------
    `entry_done` 1 cycle after `finished`; `total` 1 cycle after `entry_done` and `refused_valid`.
    """

    def __init__(self, ordered=False):
        self.ordered = ordered
        super().__init__({
            "start": In(1),
            "bags": In(1),
            "refused_valid": In(1),
            "refused": In(refusal()),
            "finished": In(finished_transfer()),
            "entry_done": Out(1),
            "total": Out(partial_outcome()),
            **({"index": Out(32)} if ordered else {}),
        })

    def elaborate(self, platform):
        m = Module()
        # Timing: `finished` comes out of a memory and is registered first.
        total, finished = self.total, Signal(finished_transfer())
        info, failed = finished.info, finished.fault != 0
        entry_failed = Signal()  # an earlier transfer of this entry has failed
        m.d.sync += finished.eq(self.finished)
        m.d.comb += self.entry_done.eq(finished.valid & info.last)
        with m.If(finished.valid):
            m.d.sync += entry_failed.eq(Mux(info.last, 0, entry_failed | failed))
            with m.If(~failed):
                m.d.sync += total.bytes.eq(total.bytes + info.bytes)
        with m.If(self.entry_done & ~failed & ~entry_failed):
            m.d.sync += total.entries.eq(total.entries + 1)

        # Refusals overtake transfers: a failed transfer may precede the error known so far in the
        # list, a refused entry never does.
        index = self.index if self.ordered else Signal(32)  # entry of the error known so far
        is_lower = (total.status == Status.OK) | (info.index < index)
        with m.If(finished.valid & failed & is_lower):
            m.d.sync += [
                total.status.eq(Status.SLVERR - 1 + finished.fault),
                index.eq(info.index),
                total.error_index.eq(Mux(self.bags, info.source.as_value()[:32], info.index)),
                total.error_address.eq(Mux(finished.written, info.destination.as_value(),
                                           info.source.as_value())),
            ]
        with m.Elif(self.refused_valid & (total.status == Status.OK)):
            m.d.sync += [
                total.status.eq(self.refused.status),
                index.eq(self.refused.index),
                total.error_index.eq(Mux(self.bags, self.refused.list_index, self.refused.index)),
                total.error_address.eq(self.refused.address),
            ]
        with m.If(self.start):
            m.d.sync += [total.eq(0), entry_failed.eq(0), index.eq(0)]
        return m
