"""SumReorder: the sums of bags, which overtake one another, in bag order."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import ArithmeticUnits
from ..primitives.fifo import RamFifo
from ..primitives.ram import Ram
from .payloads import BAG_WIDTH, bag_beat, max_row_beats, partial_beat
from .tree_sum import beat_sum

SLOTS = 32  # slot numbers; half of them are in use at a time


def reorder_beats(config: ArithmeticUnits) -> int:
    """Beats of the reorder buffer: two of the longest rows."""
    return 2 * max_row_beats(config)


def sum_tag(config: ArithmeticUnits) -> data.StructLayout:
    """Buffer `address` of a beat of a bag's sum, the bag's slot; `last` marks the final beat."""
    return data.StructLayout({
        "address": range(reorder_beats(config)), "slot": range(SLOTS), "last": 1})


class SumReorder(wiring.Component):
    """Allocate a slot and buffer space to each bag before it is summed, return sums in bag order.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    partials : In(stream(partial_beat(config)))
    tagged : Out(stream(partial_beat(config)))
        The beats of `partials`. The first partial sum of a bag waits for buffer space.
    tag : Out(sum_tag(config))
        Of the beat in `tagged`.
    sums : In(stream(beat_sum, always_ready=True))
        The beats of all sums with their tags, bags in any order.
    bags : Out(stream(bag_beat(config)))

    Timing
    ------
    `partials` to `tagged` is combinational. Latency 2 cycles from the last beat of a sum to its
    bag. One beat per cycle.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        beats = stream.Signature(partial_beat(config))
        super().__init__({
            "partials": In(beats),
            "tagged": Out(beats),
            "tag": Out(sum_tag(config)),
            "sums": In(stream.Signature(
                beat_sum(config.lanes, sum_tag(config)), always_ready=True)),
            "bags": Out(stream.Signature(bag_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, depth, partial = self.config, reorder_beats(self.config), self.partials.p
        bag = data.StructLayout({"rows": BAG_WIDTH, "last_beat": len(partial.beat_idx)})

        # The beats of partial sum 0 allocate addresses; those of the others use the same ones.
        m.submodules.pending = pending = RamFifo(bag, SLOTS // 2)
        base, address, slot = (
            Signal(range(depth)), Signal(range(depth)), Signal(range(SLOTS)))
        full, fire, is_first, permit = (
            Signal(name=name) for name in ("full", "fire", "is_first", "permit"))
        allocate_slot = Signal()  # with the last beat of partial sum 0
        m.d.comb += [
            is_first.eq(partial.index == 0),
            permit.eq(~is_first | (~full & pending.i.ready)),
            self.tagged.valid.eq(self.partials.valid & permit),
            self.tagged.p.eq(partial),
            self.partials.ready.eq(self.tagged.ready & permit),
            fire.eq(self.partials.valid & self.partials.ready),
            allocate_slot.eq(fire & is_first & partial.last),
            pending.i.valid.eq(allocate_slot),
            pending.i.p.rows.eq(partial.rows),
            pending.i.p.last_beat.eq(partial.beat_idx),
            self.tag.address.eq(address),
            self.tag.slot.eq(slot),
            self.tag.last.eq(partial.last),
        ]
        with m.If(fire):
            m.d.sync += address.eq(Mux(partial.last & ~partial.final, base, address + 1))
            with m.If(partial.last & partial.final):
                m.d.sync += [base.eq(address + 1), slot.eq(slot + 1)]

        # A slot is complete when its `done` bit differs from its `phase` bit.
        m.submodules.buffer = buffer = Ram(config.bus_width, depth)
        done, phase = Signal(SLOTS), Signal(SLOTS)
        tag = self.sums.p.tag
        head_done = Signal()
        head, read_address, beat_idx = (
            Signal(range(SLOTS)), Signal(range(depth)), Signal.like(partial.beat_idx))
        out, first = self.bags, pending.o.p
        load, last, out_q = Signal(), Signal(), Signal(bag_beat(config))
        m.d.comb += [
            buffer.write_enable.eq(self.sums.valid),
            buffer.write_address.eq(tag.address),
            buffer.write_data.eq(self.sums.p.values),
            head_done.eq((done ^ phase).bit_select(head, 1)),
            load.eq(head_done & pending.o.valid & (~out.valid | out.ready)),
            last.eq(beat_idx == first.last_beat),
            pending.o.ready.eq(load & last),
            buffer.read_enable.eq(load),
            buffer.read_address.eq(read_address),
            out.p.eq(out_q),
            out.p.values.eq(buffer.read_data),
        ]
        with m.If(self.sums.valid & tag.last):
            m.d.sync += done.bit_select(tag.slot, 1).eq(~phase.bit_select(tag.slot, 1))
        m.d.sync += out.valid.eq(load | out.valid & ~out.ready)
        with m.If(load):
            m.d.sync += [
                out_q.last.eq(last),
                out_q.rows.eq(first.rows),
                out_q.several.eq(first.rows[1:].any()),
                read_address.eq(read_address + 1),
                beat_idx.eq(Mux(last, 0, beat_idx + 1)),
            ]
            with m.If(last):
                m.d.sync += [
                    head.eq(head + 1),
                    phase.bit_select(head, 1).eq(~phase.bit_select(head, 1)),
                ]

        used_count = Signal(range(depth + 1))
        allocate = fire & is_first
        with m.If(allocate & ~load):
            m.d.sync += [used_count.eq(used_count + 1), full.eq(used_count == depth - 1)]
        with m.Elif(load & ~allocate):
            m.d.sync += [used_count.eq(used_count - 1), full.eq(0)]
        return m
