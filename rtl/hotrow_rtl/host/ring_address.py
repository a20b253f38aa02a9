"""Addresses of the entries of rings."""

from functools import reduce
from operator import or_

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import LIST_ALIGNMENT, Config, log2
from ..contract.encoding import COMMAND_BYTES, Status
from ..interfaces.records import packed_address
from .region_arbiter import RegionPort

MAX_ENTRIES_LOG2 = 16


def entry_address(config: Config) -> data.StructLayout:
    """Byte address of an entry; valid if `status` is OK."""
    return data.StructLayout({"address": config.address_width, "status": 8})


class EntryPort(wiring.Signature):
    """A unit's view of `RingAddress`.

    Attributes
    ----------
    numbers : Out(stream(32))
        Entry numbers without wrap; their lower bits are the index into the ring. A number may be
        withdrawn before it is accepted.
    addresses : In(stream(entry_address(config)))
        One per number; always ready. `status` is OK, REGION, READ_ONLY or MISALIGNED.
    """

    def __init__(self, config: Config):
        super().__init__({
            "numbers": Out(stream.Signature(32)),
            "addresses": In(stream.Signature(entry_address(config), always_ready=True)),
        })


class RingAddress(wiring.Component):
    """Convert entry numbers of several rings to byte addresses within registered regions.

    Parameters
    ----------
    config : Config
    writes : tuple of bool
        For each ring, the first with priority: its entries will be written.

    Attributes
    ----------
    rings : In(packed_address).array(len(writes))
        First byte of each ring; an entry has 128 bytes.
    last : In(MAX_ENTRIES_LOG2).array(len(writes))
        Number of the last entry.
    entries : In(EntryPort(config)).array(len(writes))
    restart : In(len(writes))
        The unit drops its number: it is not accepted, or has no address.
    region : Out(RegionPort(config))
    region_restart : Out(1)
        The access at `region` is dropped.

    Timing
    ------
    One number at a time: its address follows by 2 cycles and the latency of the region check, and
    the next number is accepted 2 cycles later.
    """

    def __init__(self, config: Config, writes):
        self.config, self.writes = config, writes
        super().__init__({
            "rings": In(packed_address).array(len(writes)),
            "last": In(MAX_ENTRIES_LOG2).array(len(writes)),
            "entries": In(EntryPort(config)).array(len(writes)),
            "restart": In(len(writes)),
            "region": Out(RegionPort(config)),
            "region_restart": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        access, verdict = self.region.accesses, self.region.verdicts
        owner = Signal(len(self.writes))  # one-hot
        ring, index = Signal(packed_address), Signal(MAX_ENTRIES_LOG2)
        valid, status = Signal(), Signal(8)
        address = Signal(packed_address, reset_less=True)

        def of_owner(values):
            """An AND-OR multiplexer."""
            return reduce(or_, (value & own.replicate(len(value))
                                for value, own in zip(values, owner, strict=True)))

        m.d.comb += [
            ring.as_value().eq(of_owner(start.as_value() for start in self.rings)),
            index.eq(of_owner(entry.numbers.p[:MAX_ENTRIES_LOG2] & last
                              for entry, last in zip(self.entries, self.last, strict=True))),
            valid.eq(of_owner(entry.numbers.valid for entry in self.entries)),
            self.region_restart.eq((owner & self.restart).any()),
            access.p.address.eq(address),
            access.p.bytes.eq(COMMAND_BYTES),
            access.p.write.eq((owner & Cat(map(Const, map(int, self.writes)))).any()),
            *(entry.addresses.p.address.eq(verdict.p.address) for entry in self.entries),
            *(entry.addresses.p.status.eq(status) for entry in self.entries),
        ]
        with m.If(verdict.p.region):
            m.d.comb += status.eq(Status.REGION)
        with m.Elif(verdict.p.read_only):
            m.d.comb += status.eq(Status.READ_ONLY)
        with m.Elif(verdict.p.address[:log2(LIST_ALIGNMENT)].any()):
            m.d.comb += status.eq(Status.MISALIGNED)
        with m.Else():
            m.d.comb += status.eq(Status.OK)

        with m.FSM():
            with m.State("NUMBER"):
                for number, entry in reversed(list(enumerate(self.entries))):
                    with m.If(entry.numbers.valid & ~self.restart[number]):
                        m.d.sync += owner.eq(1 << number)
                        m.next = "OFFSET"
            with m.State("OFFSET"):
                m.d.comb += Cat(entry.numbers.ready for entry in self.entries).eq(owner)
                m.d.sync += [
                    address.handle.eq(ring.handle),
                    # Cannot wrap: an entry whose offset wraps would follow one that ends beyond
                    # any region.
                    address.offset.eq(ring.offset + (index << log2(COMMAND_BYTES))),
                ]
                m.next = "NUMBER"
                with m.If(valid & ~self.region_restart):
                    m.next = "ACCESS"
            with m.State("ACCESS"):
                m.d.comb += access.valid.eq(1)
                with m.If(self.region_restart):
                    m.next = "NUMBER"
                with m.Elif(access.ready):
                    m.next = "VERDICT"
            with m.State("VERDICT"):
                for entry, own in zip(self.entries, owner, strict=True):
                    m.d.comb += entry.addresses.valid.eq(own & verdict.valid)
                with m.If(self.region_restart | verdict.valid):
                    m.next = "NUMBER"
        return m


def fault_status(fault):
    """Status of an access to memory with a fault (FAULT_... of `interfaces.records`), or OK."""
    return Mux(fault == 0, Status.OK, Status.SLVERR - 1 + fault)
