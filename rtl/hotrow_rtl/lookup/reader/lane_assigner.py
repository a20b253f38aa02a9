"""Lane fill: the bag of every lane of a word of ids."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from .bag_select import BagSelect
from .batch_descriptor import bag_name, chunk_bags, fetched_words, unchecked_beat
from .word_splitter import piece


class LaneAssigner(wiring.Component):
    """Put together what the pieces say about a word, and give it to the word's ids.

    A lane's bag is the first that ends after it, unless a piece before told another.

    Parameters
    ----------
    config : Config

    Members
    -------
    pieces : In(stream(piece(config)))
    words : In(stream)
        As from `ReadClient`: ids, a word for each piece that leaves.
    lookups : Out(stream(unchecked_beat(config)))

    Timing
    ------
    Latency 1 cycle from a piece, combinational from `words`, to `lookups`; a piece a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "pieces": In(stream.Signature(piece(config))),
            "words": In(fetched_words(config)),
            "lookups": Out(stream.Signature(unchecked_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, given, out = self.config, self.pieces.p, self.lookups
        lanes = range(c.lanes)
        held, leaves, last, wide = (
            Signal(name=name) for name in ("held", "leaves", "last", "wide"))
        ids = Signal.like(given.ids)
        told = Signal.like(given.names[:bag_name(c).size + len(given.fault)])  # its lanes' shape
        here, behind, kept = (
            [Signal.like(told, name=f"{name}{lane}", reset_less=True) for lane in lanes]
            for name in ("here", "behind", "kept"))
        is_here, is_behind, is_kept = (
            Signal(c.lanes, name=name) for name in ("is_here", "is_behind", "is_kept"))

        moves, free = Signal(), Signal()
        m.d.comb += [
            moves.eq(held & (~leaves | self.words.valid & out.ready)),
            free.eq(~held | moves),
            self.pieces.ready.eq(free),
        ]
        with m.If(free):
            m.d.sync += [held.eq(self.pieces.valid), leaves.eq(given.leaves),
                         last.eq(given.last), wide.eq(given.wide), ids.eq(given.ids)]
        names, size = Signal.like(given.names), bag_name(c).size
        # Bag by bag: a signal of its own, so that both units have it as a port of its own.
        m.d.comb += [names.word_select(bag, size).eq(given.names.word_select(bag, size))
                     for bag in range(chunk_bags(c))]
        for which, registers, covered in (("here", here, is_here), ("behind", behind, is_behind)):
            m.submodules[f"bags_{which}"] = unit = BagSelect(c)
            m.d.comb += [unit.ends.eq(given[which]), unit.names.eq(names)]
            with m.If(free):
                m.d.sync += covered.eq(given[which][-c.lanes:])  # whether any bag ends after each
                m.d.sync += [register.eq(Cat(unit.chosen.word_select(lane, size), given.fault))
                             for lane, register in enumerate(registers)]

        merged = [Signal.like(told, name=f"merged{lane}") for lane in lanes]
        m.d.comb += [whole.eq(Mux(is_kept[lane], kept[lane], here[lane]))
                     for lane, whole in enumerate(merged)]
        with m.If(moves & leaves):
            m.d.sync += [is_kept.eq(Mux(last, 0, is_behind))]
            m.d.sync += [before.eq(after) for before, after in zip(kept, behind)]
        with m.Elif(moves):
            m.d.sync += is_kept.eq(is_kept | is_here)
            m.d.sync += [before.eq(after) for before, after in zip(kept, merged)]

        word = self.words.p
        m.d.comb += [
            out.valid.eq(held & leaves & self.words.valid),
            self.words.ready.eq(held & leaves & out.ready),
            out.p.last.eq(last),
        ]
        for number, (lane, whole) in enumerate(zip(out.p.lanes, merged)):
            own, has_wide = word.data.word_select(number, 32), number < c.lanes // 2
            name = data.View(bag_name(c), whole[:bag_name(c).size])
            fault = whole[bag_name(c).size:]
            m.d.comb += [
                lane.present.eq(number < ids),
                lane.id.eq(Mux(wide, word.data.word_select(number, 64), own) if has_wide else own),
                lane.table.eq(name.table),
                lane.sample.eq(name.sample),
                lane.fault.eq(Mux(fault.any(), fault, word.fault)),
            ]
        return m
