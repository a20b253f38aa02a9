"""Bag indexer: table and sample of the bags of a batch, a chunk at a time."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from .batch_descriptor import (
    bag_owner,
    bag_position,
    batch_order,
    chunk_bags,
    increment,
    owners_width,
)


class BagIndexer(wiring.Component):
    """Return the owners of the bags of each chunk.

    One register per bag of a chunk holds its position. Each chunk adds the remainder and the
    quotient of `chunk_bags` by the period. During the previous batch the unit counts through the
    first chunk, one bag a cycle, to find the first positions and that remainder and quotient.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(stream(batch_order(config)))
        Accepted when the chunks of the previous batch have started.
    owners : Out(stream(owners_width(config)))
        A `bag_owner` for each bag of a chunk, the first bag lowest.

    Timing
    ------
    The first owners are valid chunk_bags + 4 cycles after `start`, or 1 cycle after the last owners
    of the previous batch; one chunk a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(stream.Signature(batch_order(config))),
            "owners": Out(stream.Signature(owners_width(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.owners
        bags = chunk_bags(c)
        order = Signal(batch_order(c), reset_less=True)
        seeds, positions = (Signal(data.ArrayLayout(bag_position(c), bags), name=name,
                                   reset_less=True)
                         for name in ("seeds", "positions"))
        step = Signal(bag_position(c))  # position of the next bag to seed, in the end the stride
        wrap_at = Signal.like(order.period, reset_less=True)  # inner index from which a step wraps
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
                m.d.sync += [seeds[bag].eq(step), bag.eq(bag + 1)]
                increment(m, step, last)
                with m.If(bag == bags - 1):
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += wrap_at.eq(order.period - step.inner)
                m.next = "SEEDED"
            with m.State("SEEDED"):
                m.d.comb += seeded.eq(1)
                with m.If(load):
                    m.next = "IDLE"

        active, stride = Signal.like(order, reset_less=True), Signal.like(step, reset_less=True)
        active_wrap_at = Signal.like(wrap_at, reset_less=True)
        busy, final, left = Signal(), Signal(), Signal.like(order.chunks)
        fire = Signal()
        m.d.comb += [
            fire.eq(busy & (~out.valid | out.ready)),
            load.eq(seeded & (~busy | fire & final)),
        ]
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        owners = [Signal(bag_owner(c), name=f"owner{number}") for number in range(bags)]
        with m.If(fire):
            m.d.sync += [
                out.valid.eq(1),
                out.p.eq(Cat(owners)),
                left.eq(left - 1),
                final.eq(left == 2),
                busy.eq(~final),
            ]
        with m.If(load):
            m.d.sync += [
                busy.eq(1), active.eq(order), stride.eq(step), active_wrap_at.eq(wrap_at),
                left.eq(order.chunks), final.eq(order.chunks == 1),
            ]
        for number, (here, owner) in enumerate(zip(positions, owners, strict=True)):
            wraps = Signal(name=f"wraps{number}")
            m.d.comb += [
                wraps.eq(here.inner >= active_wrap_at),
                owner.table.eq(active.first_table
                               + Mux(active.feature_major, here.outer, here.inner)),
                owner.sample.eq(Mux(active.feature_major, here.inner, here.outer)),
            ]
            with m.If(load):
                m.d.sync += here.eq(seeds[number])
            with m.Elif(fire):
                m.d.sync += [
                    here.inner.eq(Mux(wraps, here.inner - active_wrap_at,
                                      here.inner + stride.inner)),
                    here.outer.eq(here.outer + stride.outer + wraps),
                ]
        return m
