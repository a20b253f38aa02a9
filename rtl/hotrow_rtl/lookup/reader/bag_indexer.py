"""Bag places: table and sample of the bags of a batch, a chunk at a time."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from .batch_descriptor import bag_name, batch_order, chunk_bags, names_width, place, step_by_one


class BagIndexer(wiring.Component):
    """Name the bags of each chunk.

    Each of them keeps the place of its bag in the next chunk, and advances by the bags of a chunk:
    the remainder and the quotient of that number by the period. They, and the first places, come
    from a walk over the first chunk, a bag a cycle, during the batch before.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(stream(batch_order(config)))
        Taken when the walk over the previous batch has begun.
    names : Out(stream(names_width(config)))
        A `bag_name` for each bag of a chunk, the first one lowest.

    Timing
    ------
    The first names come chunk_bags + 4 cycles after `start`, or 1 cycle after the last ones of the
    batch before; one chunk a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(stream.Signature(batch_order(config))),
            "names": Out(stream.Signature(names_width(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.names
        bags = chunk_bags(c)
        order = Signal(batch_order(c), reset_less=True)
        coming, heres = (Signal(data.ArrayLayout(place(c), bags), name=name, reset_less=True)
                         for name in ("coming", "heres"))
        step = Signal(place(c))  # the place of the next bag to be seeded, in the end the stride
        back = Signal.like(order.period, reset_less=True)  # from there on a step wraps
        last = Signal.like(order.period, reset_less=True)
        seeded, bag = Signal(), Signal(range(bags))
        load = Signal()

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.start.ready.eq(1)
                m.d.sync += [order.eq(self.start.p), last.eq(self.start.p.period - 1),
                             step.eq(0), bag.eq(0)]
                with m.If(self.start.valid):
                    m.next = "SEED"
            with m.State("SEED"):
                m.d.sync += [coming[bag].eq(step), bag.eq(bag + 1)]
                step_by_one(m, step, last)
                with m.If(bag == bags - 1):
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += back.eq(order.period - step.inner)
                m.next = "SEEDED"
            with m.State("SEEDED"):
                m.d.comb += seeded.eq(1)
                with m.If(load):
                    m.next = "IDLE"

        walked, stride = Signal.like(order, reset_less=True), Signal.like(step, reset_less=True)
        walked_back = Signal.like(back, reset_less=True)
        walking, final, left = Signal(), Signal(), Signal.like(order.chunks)
        moves = Signal()
        m.d.comb += [
            moves.eq(walking & (~out.valid | out.ready)),
            load.eq(seeded & (~walking | moves & final)),
        ]
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        names = [Signal(bag_name(c), name=f"name{number}") for number in range(bags)]
        with m.If(moves):
            m.d.sync += [
                out.valid.eq(1),
                out.p.eq(Cat(name.as_value() for name in names)),
                left.eq(left - 1),
                final.eq(left == 2),
                walking.eq(~final),
            ]
        with m.If(load):
            m.d.sync += [
                walking.eq(1), walked.eq(order), stride.eq(step), walked_back.eq(back),
                left.eq(order.chunks), final.eq(order.chunks == 1),
            ]
        for number, (here, name) in enumerate(zip(heres, names)):
            wraps = Signal(name=f"wraps{number}")
            m.d.comb += [
                wraps.eq(here.inner >= walked_back),
                name.table.eq(walked.first_table
                              + Mux(walked.feature_major, here.outer, here.inner)),
                name.sample.eq(Mux(walked.feature_major, here.inner, here.outer)),
            ]
            with m.If(load):
                m.d.sync += here.eq(coming[number])
            with m.Elif(moves):
                m.d.sync += [
                    here.inner.eq(Mux(wraps, here.inner - walked_back,
                                      here.inner + stride.inner)),
                    here.outer.eq(here.outer + stride.outer + wraps),
                ]
        return m
