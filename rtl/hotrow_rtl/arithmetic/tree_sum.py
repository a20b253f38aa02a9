"""Sums of many numbers by one adder, in pairs, in a fixed order.

Source: one adder with a place to wait per level of the tree, as in L. Zhuo, G. R. Morris and
V. K. Prasanna, High-performance reduction circuits using deeply pipelined operators on FPGAs,
IEEE Trans. Parallel Distrib. Syst. 18 (2007).
"""

import itertools

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..float.add import Add
from ..primitives.fifo import RamFifo
from ..primitives.ram import Ram

MINUS_ZERO = 1 << 31
ENTERING = 8  # beats that wait for the adder while sums of sums take it


def summand(lanes, indices, beats, tag_width) -> data.StructLayout:
    """A beat `at` of row `index` of a sum, of which `final` marks the last row."""
    return data.StructLayout({
        "values": 32 * lanes, "index": range(indices), "final": 1, "at": range(max(2, beats)),
        "tag": tag_width})


def beat_sum(lanes, tag_width) -> data.StructLayout:
    """A beat of a sum, with the `tag` of its summands."""
    return data.StructLayout({"values": 32 * lanes, "tag": tag_width})


class TreeSum(wiring.Component):
    """Add rows 0 and 1, 2 and 3, ...; then so the sums, until one is left.

    A last row without a neighbour is one of the sums as it is. Rows are vectors of beats of lanes,
    and every element is a sum of its own. A sum of fewer levels may overtake those before it.

    Parameters
    ----------
    lanes : int
    indices : int
        Most rows of a sum, a power of two.
    beats : int
        Most beats of a row in a sum of more rows than one.
    tag_width : int
        Bits that travel with a beat, alike in all rows of a sum.

    Members
    -------
    summands : In(stream(summand(lanes, indices, beats, tag_width)))
        Rows in order of their index, all of one sum before the next.
    sums : Out(stream(beat_sum(lanes, tag_width), always_ready=True))

    Timing
    ------
    `latency` cycles from the adder's turn to the sum, on each level; 2 before the first. A row
    without a neighbour takes a turn as well. A sum of m rows takes
    ceil(m / 2) + ceil(m / 4) + ... + 1 turns for each beat, m - 1 if m is a power of two; of one
    row 1. Sums of sums go first.
    """

    latency = Add.latency + 2

    def __init__(self, lanes, indices, beats, tag_width):
        if indices < 4 or indices & (indices - 1):
            raise ValueError(f"indices must be a power of two of at least 4, not {indices}")
        self.lanes, self.indices, self.beats, self.tag_width = lanes, indices, beats, tag_width
        super().__init__({
            "summands": In(stream.Signature(summand(lanes, indices, beats, tag_width))),
            "sums": Out(stream.Signature(beat_sum(lanes, tag_width), always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, width = self.lanes, 32 * self.lanes
        levels = self.indices.bit_length() - 1
        given = self.summands.p
        none = Cat(Const(MINUS_ZERO, 32) for _ in range(lanes))

        # A sum on its way through the adder, as a row of the next level, and what to do with it.
        travelling = data.StructLayout({
            "valid": 1, "level": range(levels + 1), "index": len(given.index) - 1, "final": 1,
            "at": len(given.at), "tag": self.tag_width})
        returning = data.StructLayout({"ends": 1, "stays": 1, "adds": 1})
        way = [Signal(travelling, name=f"way{cycle}") for cycle in range(1, self.latency + 1)]
        back, plan = way[-1], Signal(returning)

        # Evens of level 0 wait in `evens`, with their odd neighbours in `entering`; those of other
        # levels in `risen`, by their place.
        m.submodules.evens = evens = RamFifo(width, max(ENTERING, 2 * self.beats))
        m.submodules.entering = entering = RamFifo(given.shape(), ENTERING)
        rise = back.level[:len(Signal(range(levels)))]  # no sum of all levels waits
        place = Cat(back.at, rise)
        m.submodules.risen = risen = Ram(width, 1 << len(place))
        results, enters = Signal(width), Signal()
        m.d.comb += [
            enters.eq(given.index[0] | given.final),  # the adder, alone or as one of two
            self.summands.ready.eq(Mux(enters, entering.i.ready, evens.i.ready)),
            evens.i.valid.eq(self.summands.valid & ~enters),
            evens.i.p.eq(given.values),
            entering.i.valid.eq(self.summands.valid & enters),
            entering.i.p.eq(given),
            risen.write_enable.eq(plan.stays),
            risen.write_address.eq(place),
            risen.write_data.eq(results),
            risen.read_address.eq(place),
            self.sums.valid.eq(plan.ends),
            self.sums.p.values.eq(results),
            self.sums.p.tag.eq(back.tag),
        ]

        # What returns goes before what comes.
        rises, next_ = plan.adds, entering.o.p
        m.d.comb += [
            entering.o.ready.eq(~rises),
            evens.o.ready.eq(~rises & entering.o.valid & next_.index[0]),
        ]
        m.d.sync += [
            way[0].valid.eq(rises | entering.o.valid),
            way[0].level.eq(Mux(rises, back.level + 1, 1)),
            way[0].index.eq(Mux(rises, back.index, next_.index)[1:]),
            *(way[0][name].eq(Mux(rises, back[name], next_[name]))
              for name in ("final", "at", "tag")),
            *(register.eq(former) for former, register in itertools.pairwise(way)),
        ]
        coming = way[-2]
        alone = coming.final & (coming.index == 0)
        m.d.sync += [
            plan.ends.eq(coming.valid & alone),
            plan.stays.eq(coming.valid & ~coming.index[0] & ~coming.final),
            plan.adds.eq(coming.valid & ~alone & (coming.index[0] | coming.final)),
        ]

        from_risen, even, other, one, two = (
            Signal(name="from_risen"), *(Signal(width, name=name, reset_less=True)
                                         for name in ("even", "other", "one", "two")))
        m.d.sync += [
            from_risen.eq(rises & back.index[0]),
            even.eq(Mux(next_.index[0], evens.o.p, none)),
            other.eq(Mux(rises, results, next_.values)),
            one.eq(Mux(from_risen, risen.read_data, even)),
            two.eq(other),
        ]
        with m.If(rises):
            m.d.sync += even.eq(none)
        sums = []
        for lane in range(lanes):
            m.submodules[f"add{lane}"] = add = Add()
            m.d.comb += [
                add.operands.valid.eq(way[1].valid),
                add.operands.p.a.eq(one.word_select(lane, 32)),
                add.operands.p.b.eq(two.word_select(lane, 32)),
            ]
            sums.append(add.results.p)
        m.d.comb += results.eq(Cat(sums))
        return m
