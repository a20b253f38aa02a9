"""Sums of many numbers by one adder, in pairs, in a fixed order.

Source: one adder with a place to wait per level of the tree, as in L. Zhuo, G. R. Morris and
V. K. Prasanna, High-performance reduction circuits using deeply pipelined operators on FPGAs,
IEEE Trans. Parallel Distrib. Syst. 18 (2007).
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .float_fma import FusedMultiplyAdd
from .ram import Ram

ONE, MINUS_ZERO = 0x3F800000, 1 << 31


def summand(lanes, indices, beats, tag_width) -> data.StructLayout:
    """A beat `at` of row `index` of a sum, of which `final` marks the last row."""
    return data.StructLayout({
        "values": 32 * lanes, "index": range(indices), "final": 1, "at": range(max(2, beats)),
        "tag": tag_width})


def beat_sum(lanes, tag_width) -> data.StructLayout:
    """A beat of a sum, with the `tag` of its summands."""
    return data.StructLayout({"values": 32 * lanes, "tag": tag_width})


class PairwiseSum(wiring.Component):
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
    `latency` cycles from the last of two beats to their sum, on each level; a row without a
    neighbour as long, at the adder. A sum of m rows of one beat takes s(m) cycles of the adder,
    s(1) = 1, s(m) = ceil(m / 2) + s(ceil(m / 2)) without the final 1: m - 1 if m is a power of
    two. Sums of sums go first.
    """

    latency = FusedMultiplyAdd.latency + 2

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

        # Evens wait for their odd neighbours: those of level 0 in `fed`, others in `risen`.
        m.submodules.fed = fed = Ram(width, max(2, self.beats))
        rise = back.level[:len(Signal(range(levels)))]  # no sum of all levels waits
        place = Cat(back.at, rise)
        m.submodules.risen = risen = Ram(width, 1 << len(place))
        results = Signal(width)
        enters, accept = Signal(), Signal()
        m.d.comb += [
            enters.eq(given.index[0] | given.final),  # the adder, at once
            self.summands.ready.eq(~(plan.adds & enters)),
            accept.eq(self.summands.valid & self.summands.ready),
            fed.write_enable.eq(accept & ~enters),
            fed.write_address.eq(given.at),
            fed.write_data.eq(given.values),
            fed.read_address.eq(given.at),
            risen.write_enable.eq(plan.stays),
            risen.write_address.eq(place),
            risen.write_data.eq(results),
            risen.read_address.eq(place),
            self.sums.valid.eq(plan.ends),
            self.sums.p.values.eq(results),
            self.sums.p.tag.eq(back.tag),
        ]

        # What returns goes before what comes.
        rises = plan.adds
        m.d.sync += way[0].valid.eq(rises | (accept & enters))
        m.d.sync += way[0].level.eq(Mux(rises, back.level + 1, 1))
        for name in ("final", "at", "tag"):
            m.d.sync += way[0][name].eq(Mux(rises, back[name], given[name]))
        m.d.sync += way[0].index.eq(Mux(rises, back.index, given.index)[1:])
        for former, register in zip(way, way[1:]):
            m.d.sync += register.eq(former)
        coming = way[-2]
        alone = coming.final & (coming.index == 0)
        m.d.sync += [
            plan.ends.eq(coming.valid & alone),
            plan.stays.eq(coming.valid & ~coming.index[0] & ~coming.final),
            plan.adds.eq(coming.valid & ~alone & (coming.index[0] | coming.final)),
        ]

        first_odd, second_odd = Signal(), Signal()
        from_risen, one, other = (
            Signal(), Signal(width, reset_less=True), Signal(width, reset_less=True))
        held = Signal(width, reset_less=True)
        m.d.sync += [
            from_risen.eq(rises),
            first_odd.eq(given.index[0]),
            second_odd.eq(back.index[0]),
            held.eq(Mux(rises, results, given.values)),
            other.eq(held),
        ]
        with m.If(from_risen):
            m.d.sync += one.eq(Mux(second_odd, risen.read_data, none))
        with m.Else():
            m.d.sync += one.eq(Mux(first_odd, fed.read_data, none))
        sums = []
        for lane in range(lanes):
            m.submodules[f"add{lane}"] = add = FusedMultiplyAdd()
            m.d.comb += [
                add.operands.valid.eq(way[1].valid),
                add.operands.p.a.eq(ONE),
                add.operands.p.b.eq(one.word_select(lane, 32)),
                add.operands.p.c.eq(other.word_select(lane, 32)),
            ]
            sums.append(add.results.p)
        m.d.comb += results.eq(Cat(sums))
        return m
