"""Fetch commands from their ring in memory."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .contract import COMMAND_BYTES, Status
from .layouts import Fetch, command_word, packed_address
from .region_arbiter import RegionPort
from .ring_entry import RingEntry, fault_status


class RingReader(wiring.Component):
    """Read every command up to `tail` and hand it on, word by word.

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
    commands : Out(stream(command_word(config)))
        Must take every word of a command at once; a command is fetched when its `ready` is high.
        The words of one that cannot be read end without `last`.
    region : Out(RegionPort(config))
    fetch : Out(Fetch(config))
    fault : Out(8)
        Status of the access that failed; from then on nothing is fetched.
    busy : Out(1)
        An access to memory is under way.

    Timing
    ------
    4 cycles, those of the region check and the memory's, and one per bus word.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "ring": In(packed_address),
            "entries": In(5),
            "enable": In(1),
            "tail": In(32),
            "head": Out(32),
            "commands": Out(stream.Signature(command_word(config))),
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
        fault, worst = Signal(8), Signal(8)
        address = Signal.like(place.p.address, reset_less=True)
        m.d.comb += [
            entry.ring.eq(self.ring),
            entry.entries.eq(self.entries),
            entry.numbers.p.eq(self.head),
            request.p.address.eq(address),
            request.p.bytes.eq(COMMAND_BYTES),
            self.commands.p.data.eq(words.p.data),
            self.commands.p.last.eq(words.p.last),
            self.busy.eq(1),
            worst.eq(Mux(fault == Status.OK, fault_status(words.p.fault), fault)),
        ]

        with m.FSM():
            with m.State("IDLE"):
                wanted = self.enable & self.commands.ready & (self.head != self.tail)
                m.d.comb += [entry.numbers.valid.eq(wanted), self.busy.eq(0)]
                with m.If(wanted & entry.numbers.ready):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.comb += place.ready.eq(1)
                m.d.sync += [fault.eq(place.p.status), address.eq(place.p.address)]
                with m.If(place.valid):
                    m.next = "REQUEST"
            with m.State("REQUEST"):  # from a register: whether a place is valid is known late
                with m.If(fault == Status.OK):
                    m.d.comb += request.valid.eq(1)
                    with m.If(request.ready):
                        m.next = "WORDS"
                with m.Else():
                    m.next = "FAULTED"
            with m.State("WORDS"):
                m.d.comb += [
                    words.ready.eq(1),
                    self.commands.valid.eq(words.valid & (worst == Status.OK)),
                ]
                with m.If(words.valid):
                    m.d.sync += fault.eq(worst)
                    with m.If(words.p.last & (worst != Status.OK)):
                        m.next = "FAULTED"
                    with m.Elif(words.p.last):
                        m.d.sync += self.head.eq(self.head + 1)
                        m.next = "IDLE"
            with m.State("FAULTED"):
                m.d.comb += [self.fault.eq(fault), self.busy.eq(0)]
        return m
