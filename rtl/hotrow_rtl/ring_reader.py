"""Fetch commands from their ring in memory, one ahead of the one in execution."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .contract import COMMAND_BYTES, Status
from .layouts import Fetch, command, packed_address
from .region_arbiter import RegionPort
from .ring_entry import RingEntry, fault_status


class RingReader(wiring.Component):
    """Read every command up to `tail` and offer it.

    Parameters
    ----------
    config : Config

    Members
    -------
    ring, entries : In
        As in `RingEntry`.
    enable : In(1)
        While low no further command is fetched.
    tail : In(32)
        Commands submitted.
    head : Out(32)
        Commands fetched.
    commands : Out(stream(command))
    region : Out(RegionPort(config))
    fetch : Out(Fetch(config))
    fault : Out(8)
        Status of the access that failed; from then on nothing is fetched.
    busy : Out(1)
        An access to memory is under way.

    Timing
    ------
    The next command is fetched once the one on offer is taken: 5 cycles, those of the region check
    and the memory's, and one per bus word.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "ring": In(packed_address),
            "entries": In(5),
            "enable": In(1),
            "tail": In(32),
            "head": Out(32),
            "commands": Out(stream.Signature(command)),
            "region": Out(RegionPort(config)),
            "fetch": Out(Fetch(config)),
            "fault": Out(8),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.entry = entry = RingEntry(self.config, write=False)
        wiring.connect(m, reader=wiring.flipped(self.region), entry=entry.region)
        place, request, words = entry.places, self.fetch.request, self.fetch.words
        beat = Signal(range(COMMAND_BYTES // self.config.bus_bytes))
        fault, worst = Signal(8), Signal(8)
        m.d.comb += [
            entry.ring.eq(self.ring),
            entry.entries.eq(self.entries),
            entry.numbers.p.eq(self.head),
            request.p.bytes.eq(COMMAND_BYTES),
            self.busy.eq(1),
            worst.eq(Mux(fault == Status.OK, fault_status(words.p.fault), fault)),
        ]

        with m.FSM():
            with m.State("IDLE"):
                wanted = self.enable & (self.head != self.tail)
                m.d.comb += [entry.numbers.valid.eq(wanted), self.busy.eq(0)]
                with m.If(wanted & entry.numbers.ready):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.comb += place.ready.eq(1)
                m.d.sync += [request.p.address.eq(place.p.address), fault.eq(place.p.status)]
                with m.If(place.valid & (place.p.status == Status.OK)):
                    m.next = "REQUEST"
                with m.Elif(place.valid):
                    m.next = "FAULTED"
            with m.State("REQUEST"):
                m.d.comb += request.valid.eq(1)
                m.d.sync += beat.eq(0)
                with m.If(request.ready):
                    m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += words.ready.eq(1)
                with m.If(words.valid):
                    bits = self.commands.p.as_value()
                    m.d.sync += [
                        bits.word_select(beat, self.config.bus_width).eq(words.p.data),
                        beat.eq(beat + 1),
                        fault.eq(worst),
                    ]
                    with m.If(words.p.last & (worst != Status.OK)):
                        m.next = "FAULTED"
                    with m.Elif(words.p.last):
                        m.d.sync += self.head.eq(self.head + 1)
                        m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += [self.commands.valid.eq(1), self.busy.eq(0)]
                with m.If(self.commands.ready):
                    m.next = "IDLE"
            with m.State("FAULTED"):
                m.d.comb += [self.fault.eq(fault), self.busy.eq(0)]
        return m
