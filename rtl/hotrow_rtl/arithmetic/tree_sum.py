"""TreeSum: sums of many numbers by one pipelined adder, in pairs, in a fixed order.

Source: one adder with a buffer per level of the tree, as in L. Zhuo, G. R. Morris and
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
INPUT_BEATS = 8  # beats that wait while partial results occupy the adder


def summand(lanes, indices, beats, tag) -> data.StructLayout:
    """Beat `beat_idx` of row `index` of a sum; `final` marks the last row."""
    return data.StructLayout({
        "values": 32 * lanes, "index": range(indices), "final": 1,
        "beat_idx": range(max(2, beats)), "tag": tag})


def beat_sum(lanes, tag) -> data.StructLayout:
    """A beat of a sum, with the `tag` of its summands."""
    return data.StructLayout({"values": 32 * lanes, "tag": tag})


class TreeSum(wiring.Component):
    """Add rows 0 and 1, 2 and 3, ...; then add these sums in pairs, until one remains.

    A last row without a neighbour passes to the next level unchanged. Each element is summed
    separately. A sum with fewer levels may overtake earlier sums.

    Parameters
    ----------
    lanes : int
    indices : int
        Maximum number of rows of a sum, a power of two of at least 4.
    beats : int
        Maximum number of beats of a row, if a sum has more than one row.
    tag : ShapeCastable
        Travels with a beat; equal in all rows of a sum.

    Attributes
    ----------
    summands : In(stream(summand(lanes, indices, beats, tag)))
        Of a row of one beat `beat_idx` is 0.
        Rows in order of their index, all rows of a sum before the next sum.
    sums : Out(stream(beat_sum(lanes, tag), always_ready=True))

    Timing
    ------
    `latency` cycles per level, 2 before the first. Per beat, a sum of m rows occupies the adder
    for ceil(m / 2) + ceil(m / 4) + ... + 1 cycles (m - 1 for a power of two, 1 for one row). A row
    without a neighbour occupies the adder for one cycle, too. Partial results have priority over
    `summands`.
    """

    latency = Add.latency + 2

    def __init__(self, lanes, indices, beats, tag):
        if indices < 4 or indices & (indices - 1):
            raise ValueError(f"indices must be a power of two of at least 4, not {indices}")
        self.lanes, self.indices, self.beats, self.tag = lanes, indices, beats, tag
        super().__init__({
            "summands": In(stream.Signature(summand(lanes, indices, beats, tag))),
            "sums": Out(stream.Signature(beat_sum(lanes, tag), always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, width = self.lanes, 32 * self.lanes
        levels = self.indices.bit_length() - 1
        given = self.summands.p
        minus_zeros = Cat(Const(MINUS_ZERO, 32) for _ in range(lanes))

        # The sum in each adder stage as a row of the next level, and the decision on its result.
        in_adder = data.StructLayout({
            "valid": 1, "level": range(levels + 1), "index": len(given.index) - 1, "final": 1,
            "beat_idx": len(given.beat_idx), "tag": self.tag})
        decision = data.StructLayout({"output": 1, "store": 1, "add": 1})
        pipe = [Signal(in_adder, name=f"pipe{cycle}") for cycle in range(1, self.latency + 1)]
        result, decide = pipe[-1], Signal(decision)

        # Even rows of level 0 wait in `even_inputs`, their odd neighbours in `inputs`. Even rows of
        # the upper levels wait in `even_results`.
        m.submodules.even_inputs = even_inputs = RamFifo(width, max(INPUT_BEATS, 2 * self.beats))
        m.submodules.inputs = inputs = RamFifo(given.shape(), INPUT_BEATS)
        level = result.level[:len(Signal(range(levels)))]  # the top level is never stored
        address = Cat(result.beat_idx, level)
        m.submodules.even_results = even_results = Ram(width, 1 << len(address))
        result_values, is_operand = Signal(width), Signal()
        m.d.comb += [
            is_operand.eq(given.index[0] | given.final),
            self.summands.ready.eq(Mux(is_operand, inputs.i.ready, even_inputs.i.ready)),
            even_inputs.i.valid.eq(self.summands.valid & ~is_operand),
            even_inputs.i.p.eq(given.values),
            inputs.i.valid.eq(self.summands.valid & is_operand),
            inputs.i.p.eq(given),
            even_results.write_enable.eq(decide.store),
            even_results.write_address.eq(address),
            even_results.write_data.eq(result_values),
            even_results.read_address.eq(address),
            self.sums.valid.eq(decide.output),
            self.sums.p.values.eq(result_values),
            self.sums.p.tag.eq(result.tag),
        ]

        # A result that is added again has priority over the inputs.
        next_ = inputs.o.p
        m.d.comb += [
            inputs.o.ready.eq(~decide.add),
            even_inputs.o.ready.eq(~decide.add & inputs.o.valid & next_.index[0]),
        ]
        m.d.sync += [
            pipe[0].valid.eq(decide.add | inputs.o.valid),
            pipe[0].level.eq(Mux(decide.add, result.level + 1, 1)),
            pipe[0].index.eq(Mux(decide.add, result.index, next_.index)[1:]),
            *(pipe[0][name].eq(Mux(decide.add, result[name], next_[name]))
              for name in ("final", "beat_idx", "tag")),
            *(register.eq(previous) for previous, register in itertools.pairwise(pipe)),
        ]
        last_stage = pipe[-2]
        is_sum = last_stage.final & (last_stage.index == 0)
        m.d.sync += [
            decide.output.eq(last_stage.valid & is_sum),
            decide.store.eq(last_stage.valid & ~last_stage.index[0] & ~last_stage.final),
            decide.add.eq(
                last_stage.valid & ~is_sum & (last_stage.index[0] | last_stage.final)),
        ]

        use_stored, even, odd, operand_a, operand_b = (
            Signal(name="use_stored"), *(Signal(width, name=name, reset_less=True)
                                         for name in ("even", "odd", "operand_a", "operand_b")))
        m.d.sync += [
            use_stored.eq(decide.add & result.index[0]),
            even.eq(Mux(next_.index[0], even_inputs.o.p, minus_zeros)),
            odd.eq(Mux(decide.add, result_values, next_.values)),
            operand_a.eq(Mux(use_stored, even_results.read_data, even)),
            operand_b.eq(odd),
        ]
        with m.If(decide.add):
            m.d.sync += even.eq(minus_zeros)
        sums = []
        for lane in range(lanes):
            m.submodules[f"add{lane}"] = add = Add()
            m.d.comb += [
                add.operands.valid.eq(pipe[1].valid),
                add.operands.p.a.eq(operand_a.word_select(lane, 32)),
                add.operands.p.b.eq(operand_b.word_select(lane, 32)),
            ]
            sums.append(add.results.p)
        m.d.comb += result_values.eq(Cat(sums))
        return m
