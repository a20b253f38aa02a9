"""Lane packer: lists that grow by up to `lanes` elements a cycle, as the bus words of memory."""


from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..interfaces.lookup_payloads import lane_results
from ..primitives.bits import onehot_mux, prefix_popcount
from ..primitives.skid_buffer import SkidBuffer
from .unpacker_packer import check_element


def packed_word(word_bytes: int) -> data.StructLayout:
    """A word of a list with its byte strobes, `last` on the one that ends it: as in `WriteClient`."""
    return data.StructLayout({"data": 8 * word_bytes, "strobe": word_bytes, "last": 1})


class LanePacker(wiring.Component):
    """Pack the elements of a list into consecutive words for a result port.

    Elements go to places of a ring as long as a beat, which is one word or several; the word that
    leaves is joined by the elements that come in the same cycle.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value; bytes of the element above it are written as zero.
    element_bytes : int
        From one element to the next, a power of two up to `config.bus_bytes`.
    word_bytes : int, optional
        Of a word that leaves, a power of two up to the bytes of a beat of elements; default
        `config.bus_bytes`, as a result port takes them.

    Members
    -------
    elements : In(stream(lane_results(config, shape)))
    words : Out(stream(packed_word(word_bytes)))
        As for `WriteClient`: strobes only for the bytes of elements present, those of others are
        undefined; `last` on the word that ends the list. Words end at every full one and with the
        list: a beat that ends the list behind a full word makes a word without strobes if it
        brings no element, and so does a list without elements.

    Timing
    ------
    Latency 5 cycles from the beat that completes a word. Words leave one a cycle; a beat waits
    only for words to leave. With words of `lanes` elements that is a beat a cycle whatever it
    holds.
    """

    latency = 5  # take, count, place, exchange, merge

    def __init__(self, config: Config, shape, element_bytes, word_bytes=None):
        check_element(config, shape, element_bytes)
        word_bytes, beat_bytes = word_bytes or config.bus_bytes, element_bytes * config.lanes
        if word_bytes > beat_bytes or word_bytes < element_bytes or word_bytes & (word_bytes - 1):
            raise ValueError(f"a beat of {config.lanes} elements of {element_bytes} bytes must "
                             f"fill a word: expected word_bytes to be a power of two from "
                             f"{element_bytes} to {beat_bytes}, not {word_bytes}")
        self.lanes, self.element_bytes = config.lanes, element_bytes
        self.elements_per_word = word_bytes // element_bytes
        self.width = Shape.cast(shape).width
        super().__init__({
            "elements": In(stream.Signature(lane_results(config, shape))),
            "words": Out(stream.Signature(packed_word(word_bytes))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, per_word, out = self.lanes, self.elements_per_word, self.words
        ring = lanes // per_word  # words in the ring
        m.submodules.taken = taken = SkidBuffer(
            Shape.cast(self.elements.p.shape()).width, rigid=True)
        m.d.comb += [
            taken.i.valid.eq(self.elements.valid),
            taken.i.p.eq(self.elements.p.as_value()),
            self.elements.ready.eq(taken.i.ready),
        ]
        given = data.View(self.elements.p.shape(), taken.o.p)
        move = Signal()  # all steps at once: a `ready` from step to step would be long

        # Count the elements before each.
        counted = Signal()
        values = self._payload("counted")
        present, last = Signal(lanes, reset_less=True), Signal(reset_less=True)
        before, total = prefix_popcount(given.present)
        ranks = [Signal(range(lanes), name=f"rank{lane}", reset_less=True)
                 for lane in range(lanes)]
        count = Signal(range(lanes + 1), reset_less=True)
        m.d.comb += taken.o.ready.eq(move)
        with m.If(move):
            m.d.sync += [
                counted.eq(taken.o.valid),
                [value.eq(Value.cast(item).as_unsigned())
                 for value, item in zip(values, given.values)],
                present.eq(given.present),
                last.eq(given.last),
                [rank.eq(number) for rank, number in zip(ranks, before)],
                count.eq(total),
            ]

        # Place them: behind those of the beats before, in the words that they open and close.
        placed = Signal()
        placed_values = self._payload("placed")
        placed_present = Signal(lanes, reset_less=True)
        places = [Signal(range(lanes), name=f"place{lane}", reset_less=True)
                  for lane in range(lanes)]
        base = Signal(range(lanes))  # place of the next element
        reach, ended, rest = Signal(range(2 * lanes)), Signal(range(ring + 2)), Signal()
        cuts = data.StructLayout({
            "closes": range(ring + 2),  # words that the beat completes or ends
            "spans": range(ring + 2),  # and those that it leaves begun
            "final": ring,  # one bit, of the last word that it closes
            "last": 1,
        })
        cut = Signal(cuts, reset_less=True)
        m.d.comb += [
            reach.eq(base + count),
            rest.eq(reach[:log2(per_word)].any()),
            ended.eq(reach[log2(per_word):] + (last & (rest | (count == 0)))),
        ]
        with m.If(move):
            m.d.sync += [
                placed.eq(counted),
                [after.eq(value) for after, value in zip(placed_values, values)],
                placed_present.eq(present),
                [place.eq(base + rank) for place, rank in zip(places, ranks)],
                cut.closes.eq(ended - base[log2(per_word):]),
                cut.spans.eq(ended - base[log2(per_word):] + (rest & ~last)),
                cut.final.eq(Cat((ended - 1)[:log2(ring)] == word for word in range(ring))),
                cut.last.eq(last),
            ]
            with m.If(counted):
                m.d.sync += base.eq(Mux(last, ended << log2(per_word), reach))

        # Bring each to its place.
        exchanged = Signal()
        coming, brought = Signal(lanes, reset_less=True), self._payload("brought")
        now = Signal(cuts, reset_less=True)
        arrives, value = self._exchange(m, placed_present, places, placed_values)
        with m.If(move):
            m.d.sync += [
                exchanged.eq(placed),
                coming.eq(Cat(arrives)),
                [after.eq(before) for after, before in zip(brought, value)],
                now.eq(cut),
            ]

        # Merge them into the ring; the word in turn leaves if it is, or now gets, closed.
        held, filled = self._payload("held"), Signal(lanes)
        closed, turn = Signal(range(ring + 1)), Signal(ring, init=1)  # words that wait, the first
        finals, waiting = Signal(ring), Signal()
        free, fits, take, emit, ends = (Signal(name=name) for name in (
            "free", "fits", "take", "emit", "ends"))
        # While the output is not free nothing here changes: `free` comes late, and is in nothing
        # else but enables.
        left = Signal.like(closed)
        m.d.comb += [
            free.eq(~out.valid | out.ready),
            fits.eq(~waiting | (now.spans + closed <= ring + 1)),
            take.eq(exchanged & fits),
            move.eq(~exchanged | free & fits),
            emit.eq(waiting | take & (now.closes != 0)),
            ends.eq(~waiting & now.last & (now.closes == 1)),  # with the word that leaves
            left.eq(closed + Mux(take, now.closes, 0) - emit),
        ]
        shown, strobes = [], []  # by word: what leaves if it is the word's turn
        for word in range(ring):
            leaves = Signal(name=f"leaves{word}")
            m.d.comb += leaves.eq(emit & turn[word])
            with m.If(free):
                m.d.sync += finals[word].eq(
                    finals[word] & ~leaves | take & now.last & now.final[word] & ~(leaves & ends))
            parts, has = [], []
            for place in range(word * per_word, (word + 1) * per_word):
                joins, comes = Signal(name=f"joins{place}"), Signal(name=f"comes{place}")
                stays = Signal(name=f"stays{place}")
                m.d.comb += [
                    joins.eq(~waiting & ~filled[place]),
                    comes.eq(take & coming[place] & ~(leaves & joins)),
                    stays.eq(filled[place] & ~leaves),
                ]
                with m.If(free):
                    m.d.sync += [
                        filled[place].eq(comes | stays),
                    ]
                    with m.If(comes):
                        m.d.sync += held[place].eq(brought[place])
                padding = Const(0, 8 * self.element_bytes - self.width)
                parts += [Mux(joins, brought[place], held[place])[:self.width], padding]
                has.append((filled[place] | joins & coming[place]).replicate(self.element_bytes))
            shown.append(Cat(parts))
            strobes.append(Cat(has))
        with m.If(free):
            m.d.sync += [
                out.valid.eq(emit),
                out.p.data.eq(onehot_mux(turn, shown)),
                out.p.strobe.eq(onehot_mux(turn, strobes)),
                out.p.last.eq(ends | (finals & turn).any()),
                closed.eq(left),
                waiting.eq(left != 0),
            ]
            with m.If(emit):
                m.d.sync += turn.eq(Cat(turn[-1], turn[:-1]))
        return m

    def _payload(self, name):
        return [Signal(self.width, name=f"{name}{lane}", reset_less=True)
                for lane in range(self.lanes)]

    def _exchange(self, m, present, places, values):
        """Bring each element present to its place: (whether one comes, its value) by place.

        Step by step two lanes swap or not, such that their number takes on another bit of the
        place. Two elements never want the same lane: places follow one another as lanes do, and
        elements of lanes that so far could meet lie less than 2**step apart.
        """
        here = [Cat(present[lane], place, value)
                for lane, (place, value) in enumerate(zip(places, values))]
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
