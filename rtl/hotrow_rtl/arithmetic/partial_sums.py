"""Partial sums of bags: the accumulation that a long bag does not stall."""

import itertools

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..float.convert import Widen
from ..float.fma import FusedMultiplyAdd
from ..float.formats import ElementType
from ..primitives.fifo import RamFifo
from ..primitives.ram import Ram
from ..primitives.skid_buffer import SkidBuffer
from .payloads import (
    BAG_WIDTH,
    MOST_PARTIALS,
    PARTIALS_BYTES,
    beats_of_longest,
    partial_beat,
    pooled_row,
    row_beat,
    row_geometry,
    row_setting,
)

BAGS = 32  # that are being summed or wait to be read
MINUS_ZERO = 1 << 31
READ, OPERANDS = 1, 1 + Widen.latency  # cycles after a beat was taken
WRITTEN = OPERANDS + FusedMultiplyAdd.latency + 1
LOOP = WRITTEN + 1 - READ  # cycles between beats that are added to one another


def ring_beats(config: Config) -> int:
    """Beats of partial sums that have room: those of two bags."""
    return 2 * max(2 * PARTIALS_BYTES // config.bus_bytes, beats_of_longest(config))


class PartialSums(wiring.Component):
    """Add row j of a bag, weighted, to the bag's partial sum j mod p.

    p is 1024 / r rounded up to a power of two, at least 1 and at most 16, where r is the bytes of
    the row as fp32. Row j < p is fma(weight, row, +0), row j of the others fma(weight, row,
    partial). With `plain` p is 1, and row 0 is fma(weight, row, -0), which leaves a row of weight
    1 what it is.

    The partial sums of a bag follow those of the bag before in a ring, so that short bags take
    little of it; they are read while the next bags are summed.

    Parameters
    ----------
    config : Config

    Members
    -------
    setting : In(row_setting)
        Of all rows; set three cycles before the first, stable while any is inside.
    plain : In(1)
        Likewise.
    rows : In(stream(pooled_row(config)))
        The rows of each bag in order, and the empty bags. A bag has fewer than 2**24 rows.
    beats : In(stream(row_beat(config)))
        Those of each row, in the type of the setting.
    partials : Out(stream(partial_beat(config)))
        Of each bag in order, min(rows, p) rows of them; of an empty bag one row of +0.

    Timing
    ------
    A beat a cycle; of one bag with `plain` a row of b beats in max(b, LOOP) cycles. The first
    partial sum leaves WRITTEN + 3 cycles after the bag's last beat came.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "setting": In(row_setting),
            "plain": In(1),
            "rows": In(stream.Signature(pooled_row(config))),
            "beats": In(stream.Signature(row_beat(config))),
            "partials": Out(stream.Signature(partial_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, lanes, depth = self.config, self.config.lanes, ring_beats(self.config)
        geometry = row_geometry(m, config, self.setting)
        last_partial = Signal.like(geometry.last_partial)
        m.d.sync += last_partial.eq(Mux(self.plain, 0, geometry.last_partial))
        record = data.StructLayout({
            "rows": BAG_WIDTH, "empty": 1, "last_partial": range(MOST_PARTIALS)})
        m.submodules.taken = taken = SkidBuffer(pooled_row(config).size)
        m.submodules.bags = bags = RamFifo(record, BAGS)
        m.d.comb += [
            taken.i.valid.eq(self.rows.valid),
            taken.i.p.eq(self.rows.p.as_value()),
            self.rows.ready.eq(taken.i.ready),
        ]
        row, beat = data.View(pooled_row(config), taken.o.p), self.beats.p

        # A bag's first p rows take places in the ring, the others return to its `base`.
        base, at, partial = Signal(range(depth)), Signal(range(depth)), Signal.like(last_partial)
        again, full = Signal(), Signal()  # rows return; every place is taken
        behind = Signal(range(depth))  # the last place taken
        count = Signal(BAG_WIDTH)
        open_, accept, step, row_ends, bag_ends = (
            Signal(name=name) for name in ("open", "accept", "step", "row_ends", "bag_ends"))
        pause, cooling, hot = Signal(range(LOOP)), Signal(range(LOOP)), Signal()
        m.d.comb += [
            open_.eq(bags.i.ready & ~full & ~(hot & again)),
            accept.eq(open_ & taken.o.valid & (row.empty | self.beats.valid)),
            step.eq(accept & ~row.empty),
            row_ends.eq(accept & (row.empty | beat.last)),
            bag_ends.eq(row_ends & row.last),
            self.beats.ready.eq(open_ & taken.o.valid & ~row.empty),
            taken.o.ready.eq(row_ends),
            bags.i.valid.eq(bag_ends),
            bags.i.p.rows.eq(count + 1),
            bags.i.p.empty.eq(row.empty),
            bags.i.p.last_partial.eq(Mux(again, last_partial, partial)),
        ]
        with m.If(step):
            m.d.sync += at.eq(at + 1)
            with m.If(~again):
                m.d.sync += behind.eq(at + 1)
            with m.If(beat.last):
                m.d.sync += [partial.eq(partial + 1), count.eq(count + 1)]
                with m.If(partial == last_partial):
                    m.d.sync += [partial.eq(0), again.eq(1), at.eq(base)]
        with m.If(bag_ends & ~row.empty):
            m.d.sync += [partial.eq(0), again.eq(0), count.eq(0)]
            with m.If(again):
                m.d.sync += [base.eq(behind), at.eq(behind)]
            with m.Else():
                m.d.sync += [base.eq(at + 1), at.eq(at + 1)]
        # A row of a plain sum waits until none of its beats comes less than `LOOP` cycles after
        # that of the row before.
        m.d.sync += pause.eq(Mux(
            self.plain & (geometry.last_beat < LOOP - 1), LOOP - 1 - geometry.last_beat, 0))
        with m.If(step & beat.last):
            m.d.sync += [cooling.eq(pause), hot.eq(pause != 0)]
        with m.Elif(hot):
            m.d.sync += [cooling.eq(cooling - 1), hot.eq(cooling != 1)]

        # From here on nothing waits. What is known of each beat travels beside it.
        def later(name, value, cycles):
            for number in range(cycles):
                register = Signal.like(value, name=f"{name}{number + 1}", init=0)
                m.d.sync += register.eq(value)
                value = register
            return value

        place = [at, *(Signal(range(depth), name=f"place{n + 1}") for n in range(WRITTEN))]
        m.d.sync += [register.eq(value) for value, register in itertools.pairwise(place)]
        fresh = later("fresh", ~again, READ)
        came = later("came", step, 1)
        weight = later("weight", row.weight, OPERANDS)
        ended = later("ended", bag_ends, WRITTEN + 1)
        raw, type_ = later("raw", beat.values, 1), Signal(ElementType)
        m.d.sync += type_.eq(self.setting.type)

        m.submodules.sums = sums = Ram(config.bus_width, depth)  # for the accumulation
        m.submodules.copies = copies = Ram(config.bus_width, depth)  # the same, to be read
        addend = Signal(config.bus_width, reset_less=True)
        m.d.sync += addend.eq(sums.read_data)
        first = later("first", fresh & self.plain, OPERANDS - READ)
        results = []
        for lane in range(lanes):
            m.submodules[f"widen{lane}"] = widen = Widen()
            m.submodules[f"add{lane}"] = add = FusedMultiplyAdd()
            m.d.comb += [
                widen.operands.valid.eq(came),
                widen.operands.p.value.eq(raw.word_select(lane, 32)),
                widen.operands.p.type.eq(type_),
                add.operands.valid.eq(widen.results.valid),
                add.operands.p.a.eq(weight),
                add.operands.p.b.eq(widen.results.p),
                add.operands.p.c.eq(addend.word_select(lane, 32) | Mux(first, MINUS_ZERO, 0)),
            ]
            results.append(add.results.p)
        written, write_data = later("written", step, WRITTEN), Signal(config.bus_width)
        m.d.sync += write_data.eq(Cat(results))
        m.d.comb += [
            sums.read_address.eq(place[READ]),
            sums.read_clear.eq(fresh),
        ]
        for ram in (sums, copies):
            m.d.comb += [
                ram.write_enable.eq(written),
                ram.write_address.eq(place[WRITTEN]),
                ram.write_data.eq(write_data),
            ]

        # Bags whose sums are complete are read, one partial sum after another.
        out, bag = self.partials, bags.o.p
        complete, some = Signal(range(BAGS + 2)), Signal()
        read_at, partial_out, beat_out = (
            Signal(range(depth)), Signal.like(partial), Signal.like(geometry.last_beat))
        load, take, last, final = (
            Signal(name=name) for name in ("load", "take", "last", "final"))
        told = Signal(partial_beat(config))
        m.d.comb += [
            load.eq(some & bags.o.valid & (~out.valid | out.ready)),
            last.eq(beat_out == geometry.last_beat),
            final.eq(partial_out == bag.last_partial),
            take.eq(load & last & final),
            bags.o.ready.eq(take),
            copies.read_enable.eq(load),
            copies.read_address.eq(read_at),
            copies.read_clear.eq(bag.empty),
            out.p.eq(told),
            out.p.values.eq(copies.read_data),
        ]
        with m.If(ended & ~take):
            m.d.sync += [complete.eq(complete + 1), some.eq(1)]
        with m.Elif(take & ~ended):
            m.d.sync += [complete.eq(complete - 1), some.eq(complete != 1)]
        m.d.sync += out.valid.eq(load | out.valid & ~out.ready)
        with m.If(load):
            m.d.sync += [
                beat_out.eq(Mux(last, 0, beat_out + 1)),
                told.index.eq(partial_out),
                told.final.eq(final),
                told.at.eq(beat_out),
                told.last.eq(last),
                told.rows.eq(Mux(bag.empty, 0, bag.rows)),
            ]
            with m.If(~bag.empty):
                m.d.sync += read_at.eq(read_at + 1)
            with m.If(last):
                m.d.sync += partial_out.eq(Mux(final, 0, partial_out + 1))

        stored = Signal(range(depth + 1))
        taken_place, freed = step & ~again, load & ~bag.empty
        with m.If(taken_place & ~freed):
            m.d.sync += [stored.eq(stored + 1), full.eq(stored == depth - 1)]
        with m.Elif(freed & ~taken_place):
            m.d.sync += [stored.eq(stored - 1), full.eq(0)]
        return m
