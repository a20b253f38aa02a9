"""Packs lists that grow by up to `lanes` elements a cycle into words."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.lookup_payloads import lane_results
from ..interfaces.records import packed_word
from ..primitives.bits import onehot_mux, prefix_popcount
from ..primitives.skid_buffer import SkidBuffer
from .unpacker_packer import Packer, check_element


class LanePacker(wiring.Component):
    """Pack the elements of a list into consecutive words for a result port.

    Elements are stored in a ring as long as a beat, which is one word or several. A word is sent
    together with the elements of it that arrive in the same cycle. With one lane the unit is a
    `Packer`.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value; the bytes above it are written as zero.
    element_bytes : int
        From one element to the next, a power of two up to `config.bus_bytes`.
    word_bytes : int, optional
        Of a word, a power of two up to the bytes of a beat of elements, with one lane up to two bus
        words; default `config.bus_bytes`, as a result port accepts them.

    Attributes
    ----------
    elements : In(stream(lane_results(config, shape)))
    words : Out(stream(packed_word(word_bytes)))
        See `WriteClient`: strobes only for the bytes of elements present, other bytes are
        undefined; `last` on the word that ends the list. A word without strobes ends a list that is
        empty, or whose last beat brings no element after a full word.

    Timing
    ------
    Latency 5 cycles from the beat that completes a word, with one lane 1 cycle. One word a cycle; a
    beat stalls only for words. With words of `lanes` elements the unit accepts a beat a cycle
    whatever it holds.
    """

    latency = 5  # skid buffer, count, place, exchange, merge

    def __init__(self, config: Config, shape, element_bytes, word_bytes=None):
        check_element(config, shape, element_bytes)
        word_bytes, beat_bytes = word_bytes or config.bus_bytes, element_bytes * config.lanes
        most = beat_bytes if config.lanes > 1 else 2 * config.bus_bytes
        if word_bytes > most or word_bytes < element_bytes or word_bytes & (word_bytes - 1):
            raise ValueError(f"a beat of {config.lanes} elements of {element_bytes} bytes must "
                             f"fill a word: expected word_bytes to be a power of two from "
                             f"{element_bytes} to {most}, not {word_bytes}")
        self.lanes, self.element_bytes = config.lanes, element_bytes
        self.elements_per_word = word_bytes // element_bytes
        self.width = Shape.cast(shape).width
        self.ring_words = self.lanes // self.elements_per_word
        self.word_counts = data.StructLayout({
            "closed": range(self.ring_words + 2),  # words that the beat completes or ends
            "touched": range(self.ring_words + 2),  # and the word that the beat leaves incomplete
            "final": self.ring_words,  # one-hot, the last of the closed words
            "last": 1,
        })
        self._packer = config, shape, element_bytes, word_bytes
        super().__init__({
            "elements": In(stream.Signature(lane_results(config, shape))),
            "words": Out(stream.Signature(packed_word(word_bytes))),
        })

    def elaborate(self, platform):
        return self._one_lane() if self.lanes == 1 else self._several_lanes()

    def _one_lane(self):
        m = Module()
        m.submodules.packer = packer = Packer(*self._packer)
        beat, item = self.elements, packer.elements
        m.d.comb += [
            item.valid.eq(beat.valid),
            item.p.value.eq(beat.p.values[0]),
            item.p.present.eq(beat.p.present),
            item.p.last.eq(beat.p.last),
            beat.ready.eq(item.ready),
        ]
        connect(m, packer=packer.words, own=flipped(self.words))
        return m

    def _several_lanes(self):
        m = Module()
        m.submodules.skid = skid = SkidBuffer(self.elements.p.shape(), rigid=True)
        connect(m, flipped(self.elements), skid.i)
        step = Signal()  # Timing: one enable for all stages, as a chain of `ready` would be long
        m.d.comb += skid.o.ready.eq(step)
        self._merge(m, step, self._move(m, step, self._place(m, step, self._count(
            m, step, skid.o))))
        return m

    def _count(self, m, step, elements):
        """Count the elements of a beat before each."""
        beat, lanes = elements.p, self.lanes
        counted = Signal()
        values = self._lane_registers("counted")
        present, last = Signal(lanes, reset_less=True), Signal(reset_less=True)
        before, total = prefix_popcount(m, beat.present)
        ranks = [Signal(range(lanes), name=f"rank{lane}", reset_less=True)
                 for lane in range(lanes)]
        count = Signal(range(lanes + 1), reset_less=True)
        with m.If(step):
            m.d.sync += [
                counted.eq(elements.valid),
                [value.eq(Value.cast(item).as_unsigned())
                 for value, item in zip(values, beat.values, strict=True)],
                present.eq(beat.present),
                last.eq(beat.last),
                [rank.eq(number) for rank, number in zip(ranks, before, strict=True)],
                count.eq(total),
            ]
        return counted, values, present, last, ranks, count

    def _place(self, m, step, stage):
        """Compute their places after those of earlier beats, and the words completed and begun."""
        counted, values, present, last, ranks, count = stage
        lanes, per_word, ring_words = self.lanes, self.elements_per_word, self.ring_words
        placed = Signal()
        placed_values = self._lane_registers("placed")
        placed_present = Signal(lanes, reset_less=True)
        places = [Signal(range(lanes), name=f"place{lane}", reset_less=True)
                  for lane in range(lanes)]
        base = Signal(range(lanes))  # place of the next element
        end, end_word, partial = Signal(range(2 * lanes)), Signal(range(ring_words + 2)), Signal()
        placed_counts = Signal(self.word_counts, reset_less=True)
        m.d.comb += [
            end.eq(base + count),
            partial.eq(end[:log2(per_word)].any()),
            end_word.eq(end[log2(per_word):] + (last & (partial | (count == 0)))),
        ]
        with m.If(step):
            m.d.sync += [
                placed.eq(counted),
                [after.eq(value) for after, value in zip(placed_values, values, strict=True)],
                placed_present.eq(present),
                [place.eq(base + rank) for place, rank in zip(places, ranks, strict=True)],
                placed_counts.closed.eq(end_word - base[log2(per_word):]),
                placed_counts.touched.eq(end_word - base[log2(per_word):] + (partial & ~last)),
                placed_counts.final.eq(
                    Cat((end_word - 1)[:log2(ring_words)] == word for word in range(ring_words))),
                placed_counts.last.eq(last),
            ]
            with m.If(counted):
                m.d.sync += base.eq(Mux(last, end_word << log2(per_word), end))
        return placed, placed_values, placed_present, places, placed_counts

    def _move(self, m, step, stage):
        """Move each element to its place."""
        placed, values, present, places, placed_counts = stage
        exchanged = Signal()
        new_present = Signal(self.lanes, reset_less=True)
        new_values = self._lane_registers("new")
        counts = Signal(self.word_counts, reset_less=True)
        moved_present, moved_values = self._exchange(m, present, places, values)
        with m.If(step):
            m.d.sync += [
                exchanged.eq(placed),
                new_present.eq(Cat(moved_present)),
                [after.eq(before) for after, before in zip(new_values, moved_values, strict=True)],
                counts.eq(placed_counts),
            ]
        return exchanged, new_values, new_present, counts

    def _merge(self, m, step, stage):
        """Merge them into the ring. The current word is sent if it is closed, or closes now."""
        exchanged, new_values, new_present, counts = stage
        per_word, ring_words, out = self.elements_per_word, self.ring_words, self.words
        stored, filled = self._lane_registers("stored"), Signal(self.lanes)
        closed, current = Signal(range(ring_words + 1)), Signal(ring_words, init=1)
        finals, not_empty = Signal(ring_words), Signal()
        load, fits, fire, emit, ends = (Signal(name=name) for name in (
            "load", "fits", "fire", "emit", "ends"))
        # Timing: `load` is late, and only enables registers.
        closed_next = Signal.like(closed)
        m.d.comb += [
            load.eq(~out.valid | out.ready),
            fits.eq(~not_empty | (counts.touched + closed <= ring_words + 1)),
            fire.eq(exchanged & fits),
            step.eq(~exchanged | load & fits),
            emit.eq(not_empty | fire & (counts.closed != 0)),
            ends.eq(~not_empty & counts.last & (counts.closed == 1)),  # with the word sent now
            closed_next.eq(closed + Mux(fire, counts.closed, 0) - emit),
        ]
        words, strobes = [], []
        for word in range(ring_words):
            sent = Signal(name=f"sent{word}")
            m.d.comb += sent.eq(emit & current[word])
            with m.If(load):
                m.d.sync += finals[word].eq(
                    finals[word] & ~sent | fire & counts.last & counts.final[word] & ~(sent & ends))
            parts, strobe = [], []
            for place in range(word * per_word, (word + 1) * per_word):
                bypass, store = Signal(name=f"bypass{place}"), Signal(name=f"store{place}")
                keep = Signal(name=f"keep{place}")
                m.d.comb += [
                    bypass.eq(~not_empty & ~filled[place]),
                    store.eq(fire & new_present[place] & ~(sent & bypass)),
                    keep.eq(filled[place] & ~sent),
                ]
                with m.If(load):
                    m.d.sync += [
                        filled[place].eq(store | keep),
                    ]
                    with m.If(store):
                        m.d.sync += stored[place].eq(new_values[place])
                padding = Const(0, 8 * self.element_bytes - self.width)
                parts += [Mux(bypass, new_values[place], stored[place])[:self.width], padding]
                strobe.append(
                    (filled[place] | bypass & new_present[place]).replicate(self.element_bytes))
            words.append(Cat(parts))
            strobes.append(Cat(strobe))
        with m.If(load):
            m.d.sync += [
                out.valid.eq(emit),
                out.p.data.eq(onehot_mux(current, words)),
                out.p.strobe.eq(onehot_mux(current, strobes)),
                out.p.last.eq(ends | (finals & current).any()),
                closed.eq(closed_next),
                not_empty.eq(closed_next != 0),
            ]
            with m.If(emit):
                m.d.sync += current.eq(Cat(current[-1], current[:-1]))

    def _lane_registers(self, name):
        return [Signal(self.width, name=f"{name}{lane}", reset_less=True)
                for lane in range(self.lanes)]

    def _exchange(self, m, present, places, values):
        """Move the elements to their places; return `present` and the value of each place.

        In each step pairs of lanes swap or not, so that one more bit of the lane's number equals
        that of the place. Two elements never need the same lane: places increase with the lanes,
        and elements of lanes that could meet by this step are less than 2**step apart.
        """
        here = [Cat(present[lane], place, value)
                for lane, (place, value) in enumerate(zip(places, values, strict=True))]
        for step in range(log2(self.lanes)):
            after = [Signal(len(here[0]) - 1, name=f"step{step}_{lane}")
                     for lane in range(self.lanes)]
            for low in range(self.lanes):
                high = low | 1 << step
                if low == high:
                    continue
                swap = Signal(name=f"swap{step}_{low}")
                m.d.comb += [
                    swap.eq(Mux(here[low][0], here[low][1], ~here[high][1])),
                    *(after[lane].eq(Mux(swap, Cat(there[0], there[2:]), Cat(same[0], same[2:])))
                      for lane, same, there in ((low, here[low], here[high]),
                                                (high, here[high], here[low]))),
                ]
            here = after
        return [bits[0] for bits in here], [bits[1:] for bits in here]
