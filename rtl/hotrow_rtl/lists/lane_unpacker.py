"""LaneUnpacker: the elements of a fetched list, several a cycle, dealt to lanes in turn."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..interfaces.records import ReadClient, element
from .unpacker_packer import check_element


class LaneUnpacker(wiring.Component):
    """Cut the words of one fetched list into its elements; element i goes to lane i mod `lanes`.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value: its low bits in memory; bytes above it are dropped.
    element_bytes : int
        From one element to the next, a power of two up to half of `config.bus_bytes`.
    lanes : int
        A power of two, at least 2.

    Members
    -------
    start, words : In(stream)
        As of `Unpacker`.
    elements : Out(stream(element(shape))).array(lanes)
        Each with the `fault` of its word, `last` on the final one of the list.

    Timing
    ------
    Latency 1 cycle from word to element; min(lanes, elements of a word) elements a cycle, when all
    the lanes that get one can take it; one idle cycle between lists.
    """

    latency = 1

    def __init__(self, config: Config, shape, element_bytes, lanes):
        check_element(config, shape, element_bytes)
        per_word = config.bus_bytes // element_bytes
        if per_word < 2 or lanes < 2 or lanes & (lanes - 1):
            raise ValueError(f"a dealer needs a power of two of at least 2 lanes and as many "
                             f"elements in a bus word, not {lanes} and {per_word}: use Unpacker")
        self.shape, self.per_word, self.lanes = shape, per_word, lanes
        super().__init__({
            "start": In(stream.Signature(data.StructLayout({"count": 32}))),
            "words": In(ReadClient(config).members["words"].signature.flip()),
            "elements": Out(stream.Signature(element(shape))).array(lanes),
        })

    def elaborate(self, platform):
        m = Module()
        word = self.words.p
        at_once = min(self.lanes, self.per_word)
        steps, groups = self.per_word // at_once, self.lanes // at_once
        step, group = Signal(range(max(2, steps))), Signal(range(max(2, groups)))
        less = Signal(32)  # elements of the list that have not been dealt, less one
        busy, surplus = Signal(), Signal()
        final, deals, free = Signal(), Signal(), Signal(groups)
        part = Signal(len(word.data) // steps)
        m.d.comb += [
            part.eq(word.data.word_select(step, len(part)) if steps > 1 else word.data),
            final.eq(less >> log2(at_once) == 0),
            deals.eq(busy & self.words.valid & free.bit_select(group, 1)),
        ]

        with m.If(surplus):
            m.d.comb += self.words.ready.eq(1)
            with m.If(self.words.valid & word.last):
                m.d.sync += surplus.eq(0)
        with m.Elif(~busy):
            m.d.comb += self.start.ready.eq(1)
            with m.If(self.start.valid):
                m.d.sync += [busy.eq(1), less.eq(self.start.p.count - 1), step.eq(0), group.eq(0)]
        with m.Elif(deals):
            m.d.comb += self.words.ready.eq(final | (step == steps - 1))
            m.d.sync += [
                less.eq(less - at_once),
                busy.eq(~final),
                surplus.eq(final & ~word.last),
                step.eq(Mux(self.words.ready, 0, step + 1)),
                group.eq(Mux(group == groups - 1, 0, group + 1)),
            ]

        bits = Shape.cast(self.shape).width
        of_group = [self.elements[at:at + at_once] for at in range(0, self.lanes, at_once)]
        for number, lanes in enumerate(of_group):
            stopped = [lane.valid & ~lane.ready for lane in lanes]
            m.d.comb += free[number].eq(~Cat(stopped).any())
            for place, lane in enumerate(lanes):
                with m.If(lane.ready):
                    m.d.sync += lane.valid.eq(0)
                with m.If(deals & (group == number)):
                    left = less[:log2(at_once)]  # of the last step
                    m.d.sync += [
                        lane.valid.eq(~final | (left >= place)),
                        lane.p.last.eq(final & (left == place)),
                        lane.p.fault.eq(word.fault),
                        Value.cast(lane.p.value).eq(
                            part.word_select(place, len(part) // at_once)[:bits]),
                    ]
        return m
