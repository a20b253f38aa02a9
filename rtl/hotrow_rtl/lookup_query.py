"""Lookups as queries of the directory."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .contract import Status
from .directory import directory_query
from .layouts import ordered_lookup


class LookupQuery(wiring.Component):
    """Ask the directory for the slot of each lookup; one that is refused carries the reason.

    Members
    -------
    lookups : In(stream(ordered_lookup(config)))
    queries : Out(stream(directory_query(config)))

    Timing
    ------
    Combinational.
    """

    def __init__(self, config: Config):
        super().__init__({
            "lookups": In(stream.Signature(ordered_lookup(config))),
            "queries": Out(stream.Signature(directory_query(config))),
        })

    def elaborate(self, platform):
        m = Module()
        lookup, query = self.lookups.p.lookup, self.queries.p
        m.d.comb += [
            self.queries.valid.eq(self.lookups.valid),
            self.lookups.ready.eq(self.queries.ready),
            query.present.eq(lookup.present),
            query.key.eq(lookup.key),
            query.parts_log2.eq(lookup.parts_log2),
            query.part.eq(lookup.part),
            query.sample.eq(lookup.sample),
            query.last.eq(self.lookups.p.last),
        ]
        with m.If(lookup.fault.any()):
            m.d.comb += query.status.eq(Status.SLVERR - 1 + lookup.fault)
        with m.Elif(lookup.out_of_range):
            m.d.comb += query.status.eq(Status.ROW_OUT_OF_RANGE)
        return m
