"""Writes one list over two result ports, for twice the words a cycle."""

from dataclasses import dataclass

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.records import WriteClient, packed_word
from ..primitives.fifo import RamFifo


@dataclass(frozen=True)
class Element:
    """The bits of a word that need storage: of every `nbytes`, the lowest `width` and a strobe."""

    width: int = 8
    nbytes: int = 1

    def stored_width(self, config: Config) -> int:
        """Bits stored of a bus word."""
        return config.bus_bytes // self.nbytes * (self.width + 1)

    def store(self, word, strobe):
        """The stored bits of a word and its strobes: for each element its value, then a strobe."""
        return Cat(Cat(word[8 * at:][:self.width], strobe[at])
                   for at in range(0, len(strobe), self.nbytes))

    def restore(self, bits):
        """The word, then its strobes."""
        parts = [bits[at:at + self.width + 1] for at in range(0, len(bits), self.width + 1)]
        padding = Const(0, 8 * self.nbytes - self.width)
        return Cat(*(Cat(part[:-1], padding) for part in parts),
                   *(part[-1].replicate(self.nbytes) for part in parts))


ANY_BYTES = Element()


def side_words(config: Config, element: Element) -> data.StructLayout:
    """One word, or `two`, of a side; `last` on the side's final one."""
    return data.StructLayout({
        "words": data.ArrayLayout(element.stored_width(config), 2), "two": 1, "last": 1})


class StripeSide(wiring.Component):
    """Queue of one side of a stripe, emptied word by word.

    Parameters
    ----------
    config : Config
    element : Element

    Attributes
    ----------
    i : In(stream(side_words(config, element)))
    o : Out(words of WriteClient)

    Timing
    ------
    Latency 3 cycles, one word a cycle. The queue stores `burst_beats` pairs of words: two bursts.
    """

    latency = RamFifo.latency + 1

    def __init__(self, config: Config, element):
        self.config, self.element = config, element
        super().__init__({
            "i": In(stream.Signature(side_words(config, element))),
            "o": Out(WriteClient(config).members["words"].signature),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = RamFifo(self.i.p.shape(), self.config.burst_beats)
        connect(m, flipped(self.i), queue.i)
        head, out = queue.o, self.o
        second, final, load = Signal(), Signal(), Signal()
        word = Signal(head.p.words[0].shape())
        m.d.comb += [
            word.eq(Mux(second, head.p.words[1], head.p.words[0])),
            final.eq(second | ~head.p.two),
            load.eq(head.valid & (~out.valid | out.ready)),
            head.ready.eq(load & final),
        ]
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(load):
            m.d.sync += [
                out.valid.eq(1),
                Cat(out.p.data, out.p.strobe).eq(self.element.restore(word)),
                out.p.last.eq(head.p.last & final),
                second.eq(~final),
            ]
        return m


class StripedWriter(wiring.Component):
    """Distribute the words of a list to two sides, in alternating blocks.

    Blocks are the `burst_beats` bus words between multiples of their size in memory. Side 0 gets
    the block in which the list starts (from any word), side 1 the next. So each side fills every
    second block of memory, as the `striped` clients of a `DmaWritePort` do.

    Parameters
    ----------
    config : Config
    element : Element, optional
        Of the list, which reduces the storage; default any bytes.

    Attributes
    ----------
    start : In(request of WriteClient)
        Once per list, before its words: accepted after the last word of the previous list, once
        both sides' requests have been accepted.
    words : In(stream(packed_word(2 * config.bus_bytes)))
        Of each list in order, two bus words a time. All but the `last` are full.
    requests : Out(request of WriteClient).array(2)
        Side 1's address is that of the second block, whether or not the list reaches it.
    bypass_striping : In(1)
        Card with a planner: side 0 gets all blocks, and side 1 neither a request nor words.
        Stable during a list.
    sides : Out(words of WriteClient).array(2)
        Each side's part of a list ends with a `last` of its own: on its final word, or on a further
        word without strobes if the list ends in a block of the other side.

    Timing
    ------
    Latency 3 cycles. Two words a cycle while neither side stalls, one idle cycle between lists.
    """

    latency = StripeSide.latency

    def __init__(self, config: Config, element=ANY_BYTES):
        self.config, self.element = config, element
        client = WriteClient(config).members
        super().__init__({
            "start": In(client["request"].signature),
            "words": In(stream.Signature(packed_word(2 * config.bus_bytes))),
            "requests": Out(client["request"].signature).array(2),
            "sides": Out(client["words"].signature).array(2),
            **({"bypass_striping": In(1)} if config.planner else {}),
        })

    def elaborate(self, platform):
        m = Module()
        config, words, address = self.config, self.words, self.start.p.address
        word_bits, block_bits = log2(config.bus_bytes), log2(config.burst_beats)
        busy, side_idx = Signal(), Signal()
        place = Signal(block_bits)  # of the next word in its block
        split, fire = Signal(), Signal()
        sides = [StripeSide(config, self.element) for _ in self.sides]

        m.d.comb += [
            self.start.ready.eq(~busy & ~Cat(port.valid for port in self.requests).any()),
            words.ready.eq(busy & Cat(side.i.ready for side in sides).all()),
            fire.eq(words.valid & words.ready),
            split.eq(place.all()),  # the two words lie in different blocks
        ]
        if config.planner:
            m.d.comb += split.eq(place.all() & ~self.bypass_striping)
        for port in self.requests:
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        with m.If(self.start.valid & self.start.ready):
            block = address[word_bits + block_bits:]
            m.d.sync += [
                busy.eq(1),
                side_idx.eq(0),
                place.eq(address[word_bits:]),
                *(port.valid.eq(1) for port in self.requests),
                self.requests[0].p.address.eq(address),
                self.requests[1].p.address.eq((block + 1) << word_bits + block_bits),
            ]
        with m.If(fire):
            m.d.sync += [Cat(place, side_idx).eq(Cat(place, side_idx) + 2), busy.eq(~words.p.last)]
        if config.planner:
            with m.If(self.bypass_striping):
                m.d.sync += [side_idx.eq(0), self.requests[1].valid.eq(0)]

        # The current side gets both words or the first; the other side the second, or an empty
        # word at the end of the list.
        word, strobe, store = words.p.data, words.p.strobe, self.element.store
        low, low_strobe = word[:config.bus_width], strobe[:config.bus_bytes]
        high, high_strobe = word[config.bus_width:], strobe[config.bus_bytes:]
        for number, side in enumerate(sides):
            m.submodules[f"side{number}"] = side
            connect(m, side.o, flipped(self.sides[number]))
            is_current = Signal(name=f"is_current{number}")
            m.d.comb += [
                is_current.eq(side_idx == number),
                side.i.valid.eq(fire & (is_current | split | words.p.last)),
                side.i.p.words[0].eq(store(
                    Mux(is_current, low, high),
                    Mux(is_current, low_strobe, Mux(split, high_strobe, 0)))),
                side.i.p.words[1].eq(store(high, high_strobe)),
                side.i.p.two.eq(is_current & ~split & high_strobe.any()),
                side.i.p.last.eq(words.p.last),
            ]
        if config.planner:
            with m.If(self.bypass_striping):
                m.d.comb += sides[1].i.valid.eq(0)
        return m
