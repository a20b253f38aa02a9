"""Splits fetched bus words into list elements, several a cycle, for lanes in round-robin order."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..interfaces.records import ReadClient, element
from .unpacker_packer import check_element


class LaneUnpacker(wiring.Component):
    """Split the words of one fetched list; element i goes to lane i mod `lanes`.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value: its low bits in memory; the bytes above are dropped.
    element_bytes : int
        From one element to the next, a power of two up to half of `config.bus_bytes`.
    lanes : int
        A power of two, at least 2.

    Attributes
    ----------
    start, words : In(stream)
        See `Unpacker`.
    elements : Out(stream(element(shape))).array(lanes)
        Each with the `fault` of its word; `last` on the final one of the list.

    Timing
    ------
    Latency 1 cycle from word to element; min(lanes, elements of a word) elements a cycle while
    none of their lanes stalls; one idle cycle between lists.
    """

    latency = 1

    def __init__(self, config: Config, shape, element_bytes, lanes):
        check_element(config, shape, element_bytes)
        per_word = config.bus_bytes // element_bytes
        if per_word < 2 or lanes < 2 or lanes & (lanes - 1):
            raise ValueError(f"a LaneUnpacker needs a power of two of at least 2 lanes, and at "
                             f"least 2 elements in a bus word, not {lanes} and {per_word}: use "
                             "Unpacker")
        self.shape, self.per_word, self.lanes = shape, per_word, lanes
        super().__init__({
            "start": In(stream.Signature(data.StructLayout({"count": 32}))),
            "words": In(ReadClient(config).members["words"].signature.flip()),
            "elements": Out(stream.Signature(element(shape))).array(lanes),
        })

    def elaborate(self, platform):
        m = Module()
        word = self.words.p
        group_lanes = min(self.lanes, self.per_word)  # elements per cycle
        parts, groups = self.per_word // group_lanes, self.lanes // group_lanes
        part_idx, group_idx = Signal(range(max(2, parts))), Signal(range(max(2, groups)))
        len_minus_1 = Signal(32)  # elements of the list still to come, minus one
        busy, surplus = Signal(), Signal()
        final, fire, group_ready = Signal(), Signal(), Signal(groups)
        part = Signal(len(word.data) // parts)
        m.d.comb += [
            part.eq(word.data.word_select(part_idx, len(part)) if parts > 1 else word.data),
            final.eq(len_minus_1 >> log2(group_lanes) == 0),
            fire.eq(busy & self.words.valid & group_ready.bit_select(group_idx, 1)),
        ]

        with m.If(surplus):
            m.d.comb += self.words.ready.eq(1)
            with m.If(self.words.valid & word.last):
                m.d.sync += surplus.eq(0)
        with m.Elif(~busy):
            m.d.comb += self.start.ready.eq(1)
            with m.If(self.start.valid):
                m.d.sync += [busy.eq(1), len_minus_1.eq(self.start.p.count - 1),
                             part_idx.eq(0), group_idx.eq(0)]
        with m.Elif(fire):
            m.d.comb += self.words.ready.eq(final | (part_idx == parts - 1))
            m.d.sync += [
                len_minus_1.eq(len_minus_1 - group_lanes),
                busy.eq(~final),
                surplus.eq(final & ~word.last),
                part_idx.eq(Mux(self.words.ready, 0, part_idx + 1)),
                group_idx.eq(Mux(group_idx == groups - 1, 0, group_idx + 1)),
            ]

        width = Shape.cast(self.shape).width
        by_group = [self.elements[at:at + group_lanes]
                    for at in range(0, self.lanes, group_lanes)]
        for number, lanes in enumerate(by_group):
            stalls = [lane.valid & ~lane.ready for lane in lanes]
            m.d.comb += group_ready[number].eq(~Cat(stalls).any())
            for place, lane in enumerate(lanes):
                with m.If(lane.ready):
                    m.d.sync += lane.valid.eq(0)
                with m.If(fire & (group_idx == number)):
                    last_place = len_minus_1[:log2(group_lanes)]  # of the final part
                    m.d.sync += [
                        lane.valid.eq(~final | (last_place >= place)),
                        lane.p.last.eq(final & (last_place == place)),
                        lane.p.fault.eq(word.fault),
                        Value.cast(lane.p.value).eq(
                            part.word_select(place, len(part) // group_lanes)[:width]),
                    ]
        return m
