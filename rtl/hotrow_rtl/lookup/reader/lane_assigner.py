"""Lane assigner: the owner of every lane of a word of ids."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...primitives.bits import onehot_mux
from .batch_descriptor import bag_owner, chunk_bags, fetched_words, unchecked_word
from .word_splitter import piece


def lane_owners(m, config: Config, name, ends, owners):
    """Return the owner of each lane: the first bag that ends after it, or 0 if none does.

    Combinational.

    Parameters
    ----------
    m : Module
    config : Config
    name : str
        Prefix of the signals.
    ends : Value(chunk_bags(config) * config.word_lanes)
        `here` or `next` of a `piece`.
    owners : Value(owners_width(config))

    Returns
    -------
    list of Value
        A `bag_owner` by lane, as bits.
    """
    size, bags = bag_owner(config).size, range(chunk_bags(config))
    found = []
    for lane in range(config.word_lanes):
        after, first = (Signal(len(bags), name=f"{name}_{which}{lane}")
                        for which in ("after", "first"))
        m.d.comb += [
            after.eq(Cat(ends[bag * config.word_lanes + lane] for bag in bags)),
            first.eq(after & ~Cat(0, after[:-1])),
        ]
        found.append(onehot_mux(first, [owners.word_select(bag, size) for bag in bags]))
    return found


class LaneAssigner(wiring.Component):
    """Merge the pieces of each word and give every id of the word its table and sample.

    The bag of a lane is the first bag that ends after it, in the earliest piece that has one.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    pieces : In(stream(piece(config)))
    words : In(stream)
        From `ReadClient`: ids, one word for each piece with `completes`.
    lookups : Out(stream(unchecked_word(config)))

    Timing
    ------
    Latency 1 cycle from a piece to `lookups`, combinational from `words`; a piece a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "pieces": In(stream.Signature(piece(config))),
            "words": In(fetched_words(config)),
            "lookups": Out(stream.Signature(unchecked_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, given, out = self.config, self.pieces.p, self.lookups
        lanes = range(c.word_lanes)
        held, completes, last, wide = (
            Signal(name=name) for name in ("held", "completes", "last", "wide"))
        ids = Signal.like(given.ids)
        width = bag_owner(c).size + len(given.fault)
        here, next_, kept = (
            [Signal(width, name=f"{name}{lane}", reset_less=True) for lane in lanes]
            for name in ("here", "next", "kept"))
        is_here, is_next, is_kept = (
            Signal(c.word_lanes, name=name) for name in ("is_here", "is_next", "is_kept"))

        fire, ready = Signal(), Signal()
        m.d.comb += [
            fire.eq(held & (~completes | self.words.valid & out.ready)),
            ready.eq(~held | fire),
            self.pieces.ready.eq(ready),
        ]
        with m.If(ready):
            m.d.sync += [held.eq(self.pieces.valid), completes.eq(given.completes),
                         last.eq(given.last), wide.eq(given.wide), ids.eq(given.ids)]
        for which, registers, covered in (("here", here, is_here), ("next", next_, is_next)):
            owners = lane_owners(m, c, which, given[which], given.owners)
            with m.If(ready):
                # The lanes before the last bag end.
                m.d.sync += covered.eq(given[which][-c.word_lanes:])
                m.d.sync += [register.eq(Cat(owner, given.fault))
                             for register, owner in zip(registers, owners, strict=True)]

        merged = [Signal(width, name=f"merged{lane}") for lane in lanes]
        m.d.comb += [owner.eq(Mux(is_kept[lane], kept[lane], here[lane]))
                     for lane, owner in enumerate(merged)]
        with m.If(fire & completes):
            m.d.sync += [is_kept.eq(Mux(last, 0, is_next))]
            m.d.sync += [before.eq(after) for before, after in zip(kept, next_, strict=True)]
        with m.Elif(fire):
            m.d.sync += is_kept.eq(is_kept | is_here)
            m.d.sync += [before.eq(after) for before, after in zip(kept, merged, strict=True)]

        word = self.words.p
        m.d.comb += [
            out.valid.eq(held & completes & self.words.valid),
            self.words.ready.eq(held & completes & out.ready),
            out.p.last.eq(last),
        ]
        for number, (lane, owner) in enumerate(zip(out.p.lanes, merged, strict=True)):
            own, has_wide = word.data.word_select(number, 32), number < c.word_lanes // 2
            bag = data.View(bag_owner(c), owner[:bag_owner(c).size])
            fault = owner[bag_owner(c).size:]
            m.d.comb += [
                lane.present.eq(number < ids),
                lane.id.eq(Mux(wide, word.data.word_select(number, 64), own) if has_wide else own),
                lane.table.eq(bag.table),
                lane.sample.eq(bag.sample),
                lane.fault.eq(Mux(fault.any(), fault, word.fault)),
            ]
        return m
