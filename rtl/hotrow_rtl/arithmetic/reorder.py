"""Sum order: sums that overtake one another, put back into the order of their bags."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..primitives.fifo import RamFifo
from ..primitives.ram import Ram
from .payloads import BAG_WIDTH, bag_beat, beats_of_longest, partial_beat
from .tree_sum import beat_sum

SLOTS = 32  # of bags whose sums are on their way or wait for those before; half are in use


def order_beats(config: Config) -> int:
    """Beats of sums that have room: those of two of the longest rows."""
    return 2 * beats_of_longest(config)


def sum_tag(config: Config) -> data.StructLayout:
    """Where a beat of a bag's sum goes, in which slot its bag is, whether it is the `last`."""
    return data.StructLayout({"place": range(order_beats(config)), "slot": range(SLOTS), "last": 1})


class SumReorder(wiring.Component):
    """Give each bag a slot and places before it is summed, and read the sums in this order.

    Parameters
    ----------
    config : Config

    Members
    -------
    partials : In(stream(partial_beat(config)))
    tagged : Out(stream(partial_beat(config)))
        The same, those of a further bag as soon as there is room for its sum.
    tag : Out(sum_tag(config))
        Of the beat in `tagged`.
    sums : In(stream(beat_sum, always_ready=True))
        The sum of each beat of all bags with its tag, in any order.
    bags : Out(stream(bag_beat(config)))

    Timing
    ------
    From `partials` to `tagged` 0 cycles; from the last of the sums to its bag 2 cycles. A beat a
    cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        beats = stream.Signature(partial_beat(config))
        super().__init__({
            "partials": In(beats),
            "tagged": Out(beats),
            "tag": Out(sum_tag(config)),
            "sums": In(stream.Signature(
                beat_sum(config.lanes, sum_tag(config).size), always_ready=True)),
            "bags": Out(stream.Signature(bag_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, depth, given = self.config, order_beats(self.config), self.partials.p
        bag = data.StructLayout({"rows": BAG_WIDTH, "last_beat": len(given.at)})

        # The beats of partial sum 0 take places, those of the others return to them.
        m.submodules.begun = begun = RamFifo(bag, SLOTS // 2)
        base, at, slot = (Signal(range(depth)), Signal(range(depth)), Signal(range(SLOTS)))
        full, moves, is_first, enters = (
            Signal(name=name) for name in ("full", "moves", "is_first", "enters"))
        opens = Signal()  # a bag takes a slot, with the last beat of its partial sum 0
        m.d.comb += [
            is_first.eq(given.index == 0),
            enters.eq(~is_first | (~full & begun.i.ready)),
            self.tagged.valid.eq(self.partials.valid & enters),
            self.tagged.p.eq(given),
            self.partials.ready.eq(self.tagged.ready & enters),
            moves.eq(self.partials.valid & self.partials.ready),
            opens.eq(moves & is_first & given.last),
            begun.i.valid.eq(opens),
            begun.i.p.rows.eq(given.rows),
            begun.i.p.last_beat.eq(given.at),
            self.tag.place.eq(at),
            self.tag.slot.eq(slot),
            self.tag.last.eq(given.last),
        ]
        with m.If(moves):
            m.d.sync += at.eq(Mux(given.last & ~given.final, base, at + 1))
            with m.If(given.last & given.final):
                m.d.sync += [base.eq(at + 1), slot.eq(slot + 1)]

        # A slot is `done` by a bit that has another value each time round.
        m.submodules.places = places = Ram(config.bus_width, depth)
        done, round_ = Signal(SLOTS), Signal(SLOTS)
        tag = data.View(sum_tag(config), self.sums.p.tag)
        ready_bag = Signal()
        head, read_at, beat = Signal(range(SLOTS)), Signal(range(depth)), Signal.like(given.at)
        out, first = self.bags, begun.o.p
        load, last, told = Signal(), Signal(), Signal(bag_beat(config))
        m.d.comb += [
            places.write_enable.eq(self.sums.valid),
            places.write_address.eq(tag.place),
            places.write_data.eq(self.sums.p.values),
            ready_bag.eq((done ^ round_).bit_select(head, 1)),
            load.eq(ready_bag & begun.o.valid & (~out.valid | out.ready)),
            last.eq(beat == first.last_beat),
            begun.o.ready.eq(load & last),
            places.read_enable.eq(load),
            places.read_address.eq(read_at),
            out.p.eq(told),
            out.p.values.eq(places.read_data),
        ]
        with m.If(self.sums.valid & tag.last):
            m.d.sync += done.bit_select(tag.slot, 1).eq(~round_.bit_select(tag.slot, 1))
        m.d.sync += out.valid.eq(load | out.valid & ~out.ready)
        with m.If(load):
            m.d.sync += [
                told.last.eq(last),
                told.rows.eq(first.rows),
                read_at.eq(read_at + 1),
                beat.eq(Mux(last, 0, beat + 1)),
            ]
            with m.If(last):
                m.d.sync += [
                    head.eq(head + 1),
                    round_.bit_select(head, 1).eq(~round_.bit_select(head, 1)),
                ]

        stored = Signal(range(depth + 1))
        place_taken = moves & is_first
        with m.If(place_taken & ~load):
            m.d.sync += [stored.eq(stored + 1), full.eq(stored == depth - 1)]
        with m.Elif(load & ~place_taken):
            m.d.sync += [stored.eq(stored - 1), full.eq(0)]
        return m
