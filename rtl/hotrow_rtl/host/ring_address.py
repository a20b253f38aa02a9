"""Addresses of the entries of a ring."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import LIST_ALIGNMENT, Config, log2
from ..contract.encoding import COMMAND_BYTES, OFFSET_WIDTH, Status
from ..interfaces.records import packed_address
from .region_arbiter import RegionPort

MAX_ENTRIES_LOG2 = 16


def entry_address(config: Config) -> data.StructLayout:
    """Byte address of an entry; valid if `status` is OK."""
    return data.StructLayout({"address": config.address_width, "status": 8})


class RingAddress(wiring.Component):
    """Convert entry numbers to byte addresses within a registered region.

    Parameters
    ----------
    config : Config
    write : bool
        Entries will be written.

    Attributes
    ----------
    ring : In(packed_address)
        First byte of the ring; an entry has 128 bytes.
    last : In(MAX_ENTRIES_LOG2)
        Number of the last entry.
    numbers : In(stream(32))
        Entry numbers without wrap; their lower bits are the index into the ring.
    addresses : Out(stream(entry_address(config)))
        One per number, in order; always ready. `status` is OK, REGION, READ_ONLY or MISALIGNED.
    region : Out(RegionPort(config))

    Timing
    ------
    An address follows its number by 2 cycles and the latency of the region check; the next number
    is accepted a cycle later.
    """

    def __init__(self, config: Config, write: bool):
        self.config, self.write = config, write
        super().__init__({
            "ring": In(packed_address),
            "last": In(MAX_ENTRIES_LOG2),
            "numbers": In(stream.Signature(32)),
            "addresses": Out(stream.Signature(entry_address(config), always_ready=True)),
            "region": Out(RegionPort(config)),
        })

    def elaborate(self, platform):
        m = Module()
        access, verdict, address = self.region.accesses, self.region.verdicts, self.addresses
        index = Signal.like(self.last)
        # Cannot wrap: an entry whose offset wraps would follow one that ends beyond any region.
        offset = Signal(OFFSET_WIDTH)
        m.d.comb += [
            access.p.address.handle.eq(self.ring.handle),
            access.p.address.offset.eq(offset),
            access.p.bytes.eq(COMMAND_BYTES),
            access.p.write.eq(self.write),
            address.p.address.eq(verdict.p.address),
        ]
        with m.If(verdict.p.region):
            m.d.comb += address.p.status.eq(Status.REGION)
        with m.Elif(verdict.p.read_only):
            m.d.comb += address.p.status.eq(Status.READ_ONLY)
        with m.Elif(verdict.p.address[:log2(LIST_ALIGNMENT)].any()):
            m.d.comb += address.p.status.eq(Status.MISALIGNED)
        with m.Else():
            m.d.comb += address.p.status.eq(Status.OK)

        with m.FSM():
            with m.State("NUMBER"):
                m.d.comb += self.numbers.ready.eq(1)
                m.d.sync += index.eq(self.numbers.p & self.last)
                with m.If(self.numbers.valid):
                    m.next = "OFFSET"
            with m.State("OFFSET"):
                m.d.sync += offset.eq(self.ring.offset + (index << log2(COMMAND_BYTES)))
                m.next = "ACCESS"
            with m.State("ACCESS"):
                m.d.comb += access.valid.eq(1)
                with m.If(access.ready):
                    m.next = "VERDICT"
            with m.State("VERDICT"):
                m.d.comb += address.valid.eq(verdict.valid)
                with m.If(verdict.valid):
                    m.next = "NUMBER"
        return m


def fault_status(fault):
    """Status of an access to memory with a fault (FAULT_... of `interfaces.records`), or OK."""
    return Mux(fault == 0, Status.OK, Status.SLVERR - 1 + fault)
