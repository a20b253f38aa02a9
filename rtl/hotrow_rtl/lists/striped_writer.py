"""Word stripe: one list over two result ports, for twice the words a cycle."""

from dataclasses import dataclass

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.records import WriteClient
from ..primitives.fifo import RamFifo
from .lane_packer import packed_word


@dataclass(frozen=True)
class Element:
    """What of a word has to be kept: of every `nbytes` the lowest `width` bits and one strobe."""

    width: int = 8
    nbytes: int = 1

    def kept_width(self, config: Config) -> int:
        """Bits kept of a bus word."""
        return config.bus_bytes // self.nbytes * (self.width + 1)

    def kept(self, word, strobe):
        """Those bits, of a word and its strobes: an element and its strobe, the first lowest."""
        return Cat(Cat(word[8 * at:][:self.width], strobe[at])
                   for at in range(0, len(strobe), self.nbytes))

    def whole(self, bits):
        """The word and its strobes."""
        parts = [bits[at:at + self.width + 1] for at in range(0, len(bits), self.width + 1)]
        above = Const(0, 8 * self.nbytes - self.width)
        return Cat(*(Cat(part[:-1], above) for part in parts),
                   *(part[-1].replicate(self.nbytes) for part in parts))


ANY_BYTES = Element()


class StripeSide(wiring.Component):
    """Queue what is dealt to one side of a stripe, and give it word by word.

    Parameters
    ----------
    config : Config
    element : Element

    Members
    -------
    i : In(stream)
        Bits of one or two words as `Element` keeps them: the first, the second, whether there are
        `two`, and whether the final one of them is the sequence's `last`.
    o : Out(words of WriteClient)

    Timing
    ------
    Latency 3 cycles, one word a cycle. `burst_beats` pairs wait: two bursts.
    """

    latency = RamFifo.latency + 1

    def __init__(self, config: Config, element):
        self.config, self.element = config, element
        width = 2 * element.kept_width(config) + 2
        super().__init__({
            "i": In(stream.Signature(width)),
            "o": Out(WriteClient(config).members["words"].signature),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = RamFifo(self.i.p.shape(), self.config.burst_beats)
        connect(m, flipped(self.i), queue.i)
        head, out = queue.o, self.o
        words, two, last = head.p[:-2], head.p[-2], head.p[-1]
        second, final, load = Signal(), Signal(), Signal()
        m.d.comb += [
            final.eq(second | ~two),
            load.eq(head.valid & (~out.valid | out.ready)),
            head.ready.eq(load & final),
        ]
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(load):
            m.d.sync += [
                out.valid.eq(1),
                Cat(out.p.data, out.p.strobe).eq(
                    self.element.whole(words.word_select(second, len(words) // 2))),
                out.p.last.eq(last & final),
                second.eq(~final),
            ]
        return m


class StripedWriter(wiring.Component):
    """Deal the words of a list to two sides, a block each in turn.

    Blocks are the `burst_beats` bus words into which addresses divide memory. Side 0 gets the
    block in which the list starts, be it from its middle on, side 1 the next. So each side fills
    every second block of memory, as the `striped` clients of a `DmaWritePort` do.

    Parameters
    ----------
    config : Config
    element : Element, optional
        Of the list, so that less of it need wait; default any bytes.

    Members
    -------
    start : In(request of WriteClient)
        Once per list, before its words: taken when the words of the list before have come and
        its `requests` have been taken.
    words : In(stream(packed_word(2 * config.bus_bytes)))
        Of each list in order, two bus words a time. All but the `last` are full.
    requests : Out(request of WriteClient).array(2)
        Side 1's address is that of the block behind the list's first, whether or not the list
        gets there.
    bypass_striping : In(1)
        Of a card with a planner: side 0 gets all blocks of the list, and is the only one to request
        and to end it. Stable while a list is inside.
    sides : Out(words of WriteClient).array(2)
        Each side's part of a list ends with a `last` of its own: on its final word, or on a word
        without strobes behind it if the list ends in the other side's block.

    Timing
    ------
    Latency 3 cycles. Two words a cycle while both sides are taken, one idle cycle between lists.
    """

    latency = StripeSide.latency

    def __init__(self, config: Config, element=ANY_BYTES):
        self.config, self.element = config, element
        deposit = WriteClient(config).members
        super().__init__({
            "start": In(deposit["request"].signature),
            "words": In(stream.Signature(packed_word(2 * config.bus_bytes))),
            "requests": Out(deposit["request"].signature).array(2),
            "sides": Out(deposit["words"].signature).array(2),
            **({"bypass_striping": In(1)} if config.planner else {}),
        })

    def elaborate(self, platform):
        m = Module()
        config, words, address = self.config, self.words, self.start.p.address
        word_bits, block_bits = log2(config.bus_bytes), log2(config.burst_beats)
        begun, side = Signal(), Signal()
        place = Signal(block_bits)  # of the next word in its block
        apart, accept = Signal(), Signal()
        queues = [StripeSide(config, self.element) for _ in self.sides]

        m.d.comb += [
            self.start.ready.eq(~begun & ~Cat(port.valid for port in self.requests).any()),
            words.ready.eq(begun & Cat(queue.i.ready for queue in queues).all()),
            accept.eq(words.valid & words.ready),
            apart.eq(place.all()),  # the two words lie in blocks of their own
        ]
        if config.planner:
            m.d.comb += apart.eq(place.all() & ~self.bypass_striping)
        for port in self.requests:
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        with m.If(self.start.valid & self.start.ready):
            block = address[word_bits + block_bits:]
            m.d.sync += [
                begun.eq(1),
                side.eq(0),
                place.eq(address[word_bits:]),
                *(port.valid.eq(1) for port in self.requests),
                self.requests[0].p.address.eq(address),
                self.requests[1].p.address.eq((block + 1) << word_bits + block_bits),
            ]
        with m.If(accept):
            m.d.sync += [Cat(place, side).eq(Cat(place, side) + 2), begun.eq(~words.p.last)]
        if config.planner:
            with m.If(self.bypass_striping):
                m.d.sync += [side.eq(0), self.requests[1].valid.eq(0)]

        # The side whose turn it is gets both words or the first; the other one the second, or
        # none when it only learns that the list ends.
        data, strobe, kept = words.p.data, words.p.strobe, self.element.kept
        low, low_strobe = data[:config.bus_width], strobe[:config.bus_bytes]
        high, high_strobe = data[config.bus_width:], strobe[config.bus_bytes:]
        for number, queue in enumerate(queues):
            m.submodules[f"side{number}"] = queue
            connect(m, queue.o, flipped(self.sides[number]))
            its_turn = Signal(name=f"its_turn{number}")
            m.d.comb += [
                its_turn.eq(side == number),
                queue.i.valid.eq(accept & (its_turn | apart | words.p.last)),
                queue.i.p.eq(Cat(
                    kept(Mux(its_turn, low, high),
                         Mux(its_turn, low_strobe, Mux(apart, high_strobe, 0))),
                    kept(high, high_strobe),
                    its_turn & ~apart & high_strobe.any(), words.p.last)),
            ]
        if config.planner:
            with m.If(self.bypass_striping):
                m.d.comb += queues[1].i.valid.eq(0)
        return m
