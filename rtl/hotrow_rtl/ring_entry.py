"""Where in memory an entry of a ring lies."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import LIST_ALIGNMENT, Config, log2
from .contract import COMMAND_BYTES, OFFSET_WIDTH, Status
from .layouts import packed_address
from .region_arbiter import RegionPort

MOST_ENTRIES_LOG2 = 16


def ring_place(config: Config) -> data.StructLayout:
    """Byte address of an entry, or the reason why it has none."""
    return data.StructLayout({"address": config.address_width, "status": 8})


class RingEntry(wiring.Component):
    """Turn entry numbers into byte addresses within a registered region.

    Parameters
    ----------
    config : Config
    write : bool
        Entries will be written.

    Members
    -------
    ring : In(packed_address)
        First byte of the ring, whose entries have 128 bytes.
    entries : In(5)
        log2 of the entries, 1 to 16.
    numbers : In(stream(32))
        Entries counted for ever; their lower bits say where in the ring.
    places : Out(stream(ring_place(config)))
        One per number, in order: OK, REGION, READ_ONLY or MISALIGNED.
    region : Out(RegionPort(config))

    Timing
    ------
    2 cycles beside the region check; one number at a time.
    """

    def __init__(self, config: Config, write: bool):
        self.config, self.write = config, write
        super().__init__({
            "ring": In(packed_address),
            "entries": In(5),
            "numbers": In(stream.Signature(32)),
            "places": Out(stream.Signature(ring_place(config))),
            "region": Out(RegionPort(config)),
        })

    def elaborate(self, platform):
        m = Module()
        access, verdict, place = self.region.accesses, self.region.verdicts, self.places
        last = Signal(MOST_ENTRIES_LOG2)
        # Cannot wrap: rings start at entry 0, and the entry before would end beyond any region.
        offset = Signal(OFFSET_WIDTH)
        index = self.numbers.p[:MOST_ENTRIES_LOG2] & last
        m.d.comb += [
            last.eq((1 << self.entries) - 1),
            access.p.address.handle.eq(self.ring.handle),
            access.p.address.offset.eq(offset),
            access.p.bytes.eq(COMMAND_BYTES),
            access.p.write.eq(self.write),
            place.p.address.eq(verdict.p.address),
        ]
        with m.If(verdict.p.region):
            m.d.comb += place.p.status.eq(Status.REGION)
        with m.Elif(verdict.p.read_only):
            m.d.comb += place.p.status.eq(Status.READ_ONLY)
        with m.Elif(verdict.p.address[:log2(LIST_ALIGNMENT)].any()):
            m.d.comb += place.p.status.eq(Status.MISALIGNED)
        with m.Else():
            m.d.comb += place.p.status.eq(Status.OK)

        with m.FSM():
            with m.State("NUMBER"):
                m.d.comb += self.numbers.ready.eq(1)
                m.d.sync += offset.eq(self.ring.offset + (index << log2(COMMAND_BYTES)))
                with m.If(self.numbers.valid):
                    m.next = "ACCESS"
            with m.State("ACCESS"):
                m.d.comb += access.valid.eq(1)
                with m.If(access.ready):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.comb += [place.valid.eq(verdict.valid), verdict.ready.eq(place.ready)]
                with m.If(place.valid & place.ready):
                    m.next = "NUMBER"
        return m


def fault_status(fault):
    """Status of an access to memory that ended with one of layouts.FAULT_..., or OK."""
    return Mux(fault == 0, Status.OK, Status.SLVERR - 1 + fault)
