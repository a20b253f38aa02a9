"""PartialSums: accumulate the rows of bags without waiting for the adder's latency."""

import itertools

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import ArithmeticUnits
from ..float.convert import Widen
from ..float.fma import FusedMultiplyAdd
from ..float.formats import ElementType
from ..primitives.fifo import RamFifo
from ..primitives.ram import Ram
from ..primitives.skid_buffer import SkidBuffer
from .multiply_add import MultiplyAddPort
from .payloads import (
    BAG_WIDTH,
    MAX_PARTIALS,
    PARTIALS_BYTES,
    bag_row,
    max_row_beats,
    partial_beat,
    row_beat,
    row_format,
    row_geometry,
)

BAGS = 32  # bags between `beats` and `partials`
READ, OPERANDS = 1, 1 + Widen.latency  # cycles after a beat's handshake
WRITTEN = OPERANDS + FusedMultiplyAdd.latency + 1


def ring_beats(config: ArithmeticUnits) -> int:
    """Beats of the partial-sum buffer: the partial sums of two bags."""
    return 2 * max(2 * PARTIALS_BYTES // config.bus_bytes, max_row_beats(config))


class PartialSums(wiring.Component):
    """Add row j of a bag, weighted, to the bag's partial sum j mod p.

    p is 1024 / r rounded up to a power of two, at least 1 and at most 16, where r is the size of
    the row as fp32 in bytes. Row j < p is fma(weight, row, +0), later rows fma(weight, row,
    partial).

    The partial sums of consecutive bags lie in a ring buffer. The unit reads the sums of a complete
    bag while it accumulates the next bags.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    row_format : In(row_format)
        Of all rows. Set three cycles before the first row and stable while rows are inside.
    rows : In(stream(bag_row))
        The rows of each bag in order, and the empty bags. A bag has fewer than 2**24 rows.
    beats : In(stream(row_beat(config)))
        The beats of each row, in the type of `row_format`.
    multiply_add : Out(MultiplyAddPort(config))
    accepts : Out(1)
        A beat is accepted in this cycle, `OPERANDS` cycles before it uses `multiply_add`.
    partials : Out(stream(partial_beat(config)))
        The min(rows, p) partial sums of each bag in order; one row of +0 for an empty bag.

    Timing
    ------
    One beat per cycle. The first partial sum leaves WRITTEN + 3 cycles after the bag's last beat.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "row_format": In(row_format),
            "rows": In(stream.Signature(bag_row)),
            "beats": In(stream.Signature(row_beat(config))),
            "multiply_add": Out(MultiplyAddPort(config)),
            "accepts": Out(1),
            "partials": Out(stream.Signature(partial_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, lanes, depth = self.config, self.config.lanes, ring_beats(self.config)
        geometry = row_geometry(m, config, self.row_format)
        last_partial = geometry.last_partial
        record = data.StructLayout({
            "rows": BAG_WIDTH, "empty": 1, "last_partial": range(MAX_PARTIALS)})
        m.submodules.skid = skid = SkidBuffer(bag_row)
        m.submodules.bags = bags = RamFifo(record, BAGS)
        connect(m, rows=flipped(self.rows), skid=skid.i)
        row, beat = skid.o.p, self.beats.p

        # A bag's first p rows allocate ring addresses; later rows start again at its `base`.
        base, address, partial = (
            Signal(range(depth)), Signal(range(depth)), Signal.like(last_partial))
        reuse, full = Signal(), Signal()  # the row adds to a partial sum; no address is free
        next_base = Signal(range(depth))  # the address after the last one allocated
        count = Signal(BAG_WIDTH)
        permit, accept, step, row_end, bag_end = (
            Signal(name=name) for name in ("permit", "accept", "step", "row_end", "bag_end"))
        m.d.comb += [
            permit.eq(bags.i.ready & ~full),
            accept.eq(permit & skid.o.valid & (row.empty | self.beats.valid)),
            step.eq(accept & ~row.empty),
            self.accepts.eq(step),
            row_end.eq(accept & (row.empty | beat.last)),
            bag_end.eq(row_end & row.last),
            self.beats.ready.eq(permit & skid.o.valid & ~row.empty),
            skid.o.ready.eq(row_end),
            bags.i.valid.eq(bag_end),
            bags.i.p.rows.eq(count + 1),
            bags.i.p.empty.eq(row.empty),
            bags.i.p.last_partial.eq(Mux(reuse, last_partial, partial)),
        ]
        with m.If(step):
            m.d.sync += address.eq(address + 1)
            with m.If(~reuse):
                m.d.sync += next_base.eq(address + 1)
            with m.If(beat.last):
                m.d.sync += [partial.eq(partial + 1), count.eq(count + 1)]
                with m.If(partial == last_partial):
                    m.d.sync += [partial.eq(0), reuse.eq(1), address.eq(base)]
        with m.If(bag_end & ~row.empty):
            m.d.sync += [partial.eq(0), reuse.eq(0), count.eq(0)]
            with m.If(reuse):
                m.d.sync += [base.eq(next_base), address.eq(next_base)]
            with m.Else():
                m.d.sync += [base.eq(address + 1), address.eq(address + 1)]

        # The rest of the pipeline never stalls; the controls of each beat are delayed with it.
        def delayed(name, value, cycles):
            for number in range(cycles):
                register = Signal.like(value, name=f"{name}{number + 1}", init=0)
                m.d.sync += register.eq(value)
                value = register
            return value

        addresses = [
            address, *(Signal(range(depth), name=f"address{n + 1}") for n in range(WRITTEN))]
        m.d.sync += [register.eq(value) for value, register in itertools.pairwise(addresses)]
        is_first = delayed("is_first", ~reuse, READ)
        step_q = delayed("step", step, 1)
        weight = delayed("weight", row.weight, OPERANDS)
        bag_written = delayed("bag_end", bag_end, WRITTEN + 1)
        raw, type_ = delayed("raw", beat.values, 1), Signal(ElementType)
        m.d.sync += type_.eq(self.row_format.type)

        # Two copies of the ring buffer, one to accumulate, one to read complete sums.
        m.submodules.sums = sums = Ram(config.bus_width, depth, clears=True)
        m.submodules.copies = copies = Ram(config.bus_width, depth, clears=True)
        addend = Signal(config.bus_width, reset_less=True)
        m.d.sync += addend.eq(sums.read_data)
        add = self.multiply_add
        for lane in range(lanes):
            m.submodules[f"widen{lane}"] = widen = Widen()
            m.d.comb += [
                widen.operands.valid.eq(step_q),
                widen.operands.p.value.eq(raw.word_select(lane, 32)),
                widen.operands.p.type.eq(type_),
                add.operands.valid.eq(widen.results.valid),
                add.operands.p.values.word_select(lane, 32).eq(widen.results.p),
                add.operands.p.addends.word_select(lane, 32).eq(addend.word_select(lane, 32)),
            ]
        write_enable = delayed("write_enable", step, WRITTEN)
        write_data = Signal(config.bus_width)
        m.d.sync += write_data.eq(add.results)
        m.d.comb += [
            add.operands.p.factor.eq(weight),
            sums.read_address.eq(addresses[READ]),
            sums.read_clear.eq(is_first),
        ]
        for ram in (sums, copies):
            m.d.comb += [
                ram.write_enable.eq(write_enable),
                ram.write_address.eq(addresses[WRITTEN]),
                ram.write_data.eq(write_data),
            ]

        release = self._read_bags(m, bags, copies, bag_written, geometry, partial)
        used_count = Signal(range(depth + 1))
        allocate = step & ~reuse
        with m.If(allocate & ~release):
            m.d.sync += [used_count.eq(used_count + 1), full.eq(used_count == depth - 1)]
        with m.Elif(release & ~allocate):
            m.d.sync += [used_count.eq(used_count - 1), full.eq(0)]
        return m

    def _read_bags(self, m, bags, copies, bag_written, geometry, partial):
        """Read the partial sums of complete bags; whether an address of the ring becomes free."""
        out, bag = self.partials, bags.o.p
        complete_count, any_complete = Signal(range(BAGS + 2)), Signal()
        read_address = Signal(range(ring_beats(self.config)))
        partial_out, beat_out = Signal.like(partial), Signal.like(geometry.last_beat)
        load, bag_fire, last, final = (
            Signal(name=name) for name in ("load", "bag_fire", "last", "final"))
        out_q = Signal(partial_beat(self.config))
        m.d.comb += [
            load.eq(any_complete & bags.o.valid & (~out.valid | out.ready)),
            last.eq(beat_out == geometry.last_beat),
            final.eq(partial_out == bag.last_partial),
            bag_fire.eq(load & last & final),
            bags.o.ready.eq(bag_fire),
            copies.read_enable.eq(load),
            copies.read_address.eq(read_address),
            copies.read_clear.eq(bag.empty),
            out.p.eq(out_q),
            out.p.values.eq(copies.read_data),
        ]
        with m.If(bag_written & ~bag_fire):
            m.d.sync += [complete_count.eq(complete_count + 1), any_complete.eq(1)]
        with m.Elif(bag_fire & ~bag_written):
            m.d.sync += [complete_count.eq(complete_count - 1),
                         any_complete.eq(complete_count != 1)]
        m.d.sync += out.valid.eq(load | out.valid & ~out.ready)
        with m.If(load):
            m.d.sync += [
                beat_out.eq(Mux(last, 0, beat_out + 1)),
                out_q.index.eq(partial_out),
                out_q.final.eq(final),
                out_q.beat_idx.eq(beat_out),
                out_q.last.eq(last),
                out_q.rows.eq(Mux(bag.empty, 0, bag.rows)),
            ]
            with m.If(~bag.empty):
                m.d.sync += read_address.eq(read_address + 1)
            with m.If(last):
                m.d.sync += partial_out.eq(Mux(final, 0, partial_out + 1))
        return load & ~bag.empty
