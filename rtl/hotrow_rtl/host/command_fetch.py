"""Fetch commands from their ring in memory."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import COMMAND_BYTES, Status
from ..interfaces.records import ReadClient, command_word, packed_address
from .region_arbiter import RegionPort
from .ring_address import MOST_ENTRIES_LOG2, RingAddress, fault_status


class CommandFetch(wiring.Component):
    """Read every command up to `tail` and hand it on, word by word.

    Parameters
    ----------
    config : Config

    Members
    -------
    ring, last : In
        As in `RingAddress`.
    enable : In(1)
        While low no further command is fetched.
    wanted : In(1)
        A further command may come; low in the cycle after the last word of another.
    tail : In(32)
        Commands submitted.
    head : Out(32)
        Commands fetched.
    commands : Out(stream(command_word(config)))
        The words of one that cannot be read end without `last`.
    region : Out(RegionPort(config))
    fetch : Out(ReadClient(config))
    fault : Out(8)
        Status of the access that failed; from then on nothing is fetched.
    faulted : Out(1)
    busy : Out(1)
        An access to memory is under way.

    Timing
    ------
    6 cycles, those of the region check and the memory's, and one per bus word beside those in which
    it is taken.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "ring": In(packed_address),
            "last": In(MOST_ENTRIES_LOG2),
            "enable": In(1),
            "wanted": In(1),
            "tail": In(32),
            "head": Out(32),
            "commands": Out(stream.Signature(command_word(config))),
            "region": Out(RegionPort(config)),
            "fetch": Out(ReadClient(config)),
            "fault": Out(8),
            "faulted": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.entry = entry = RingAddress(self.config, write=False)
        wiring.connect(m, reader=wiring.flipped(self.region), entry=entry.region)
        place, request, words = entry.places, self.fetch.request, self.fetch.words
        fault, held, waiting, sound = Signal(8), self.commands, Signal(), Signal()
        address = Signal.like(place.p.address, reset_less=True)
        m.d.comb += [
            entry.ring.eq(self.ring),
            entry.last.eq(self.last),
            entry.numbers.p.eq(self.head),
            request.p.address.eq(address),
            request.p.bytes.eq(COMMAND_BYTES),
            self.busy.eq(1),
        ]
        # Told late: a command is not wanted at once after another.
        m.d.sync += waiting.eq(self.head != self.tail)
        with m.If(held.ready):
            m.d.sync += held.valid.eq(0)

        with m.FSM():
            with m.State("IDLE"):
                wanted = self.enable & self.wanted & waiting
                m.d.comb += [entry.numbers.valid.eq(wanted), self.busy.eq(0)]
                with m.If(wanted & entry.numbers.ready):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += [
                    fault.eq(place.p.status),
                    sound.eq(place.p.status == Status.OK),
                    address.eq(place.p.address),
                ]
                with m.If(place.valid):
                    m.next = "REQUEST"
            with m.State("REQUEST"):  # from a register: whether a place is valid is known late
                with m.If(sound):
                    m.d.comb += request.valid.eq(1)
                    with m.If(request.ready):
                        m.next = "WORDS"
                with m.Else():
                    m.next = "FAULTED"
            with m.State("WORDS"):
                m.d.comb += words.ready.eq(~held.valid)  # a check takes more cycles for each
                with m.If(words.ready):
                    m.d.sync += [held.p.data.eq(words.p.data), held.p.last.eq(words.p.last)]
                with m.If(words.valid & words.ready):
                    with m.If(words.p.fault == 0):
                        m.d.sync += held.valid.eq(1)
                        with m.If(words.p.last):
                            m.d.sync += self.head.eq(self.head + 1)
                            m.next = "IDLE"
                    with m.Else():
                        m.d.sync += fault.eq(fault_status(words.p.fault))
                        m.next = "DROP"
                        with m.If(words.p.last):
                            m.next = "FAULTED"
            with m.State("DROP"):
                m.d.comb += words.ready.eq(1)
                with m.If(words.valid & words.p.last):
                    m.next = "FAULTED"
            with m.State("FAULTED"):
                m.d.comb += [self.faulted.eq(1), self.fault.eq(fault), self.busy.eq(0)]
        return m
