"""Key window: of the lookups of a beat, which have a key as one shortly before them."""

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .key_match import KeyMatches


class KeyComparator(wiring.Component):
    """Compare the keys of each beat, or a piece of them, with its own and those of beats before it.

    Parameters
    ----------
    width, lanes, beats : int
        Bits that are compared, keys of a beat, and how many beats before it are within reach.

    Members
    -------
    keys : In(lanes * width)
        Of the beat that comes, the first lane lowest.
    moves : In(beats + 1)
        Bit 0: that beat takes the first place. Bit n: the beat at place n - 1 goes on to the next.
    may : In(lanes * (beats + 1) * lanes)
        Which keys of the beat at the first place may equal which: by lane, and for each by beats
        back, its own lowest, and their lanes.
    matches : Out(lanes * (beats + 1) * lanes)
        Which do, when the beat has gone on from there.

    Timing
    ------
    A beat's `matches` are there 2 cycles after its keys if it goes on without waiting.
    """

    def __init__(self, width: int, lanes: int, beats: int):
        self.width, self.lanes, self.beats = width, lanes, beats
        pairs = lanes * (beats + 1) * lanes
        super().__init__({
            "keys": In(lanes * width),
            "moves": In(beats + 1),
            "may": In(pairs),
            "matches": Out(pairs),
        })

    def elaborate(self, platform):
        m = Module()
        reach = self.lanes * (self.beats + 1)
        own, *older = places = [
            Signal(data.ArrayLayout(self.width, self.lanes), name=f"keys{at}", reset_less=True)
            for at in range(self.beats + 1)]
        for at, (before, here) in enumerate(zip((self.keys, own, *older), places)):
            with m.If(self.moves[at]):
                m.d.sync += here.eq(before)
        within = Signal(data.ArrayLayout(own.shape(), self.beats + 1))
        m.d.comb += [within[back][lane].eq(beat[lane])
                     for back, beat in enumerate(places) for lane in range(self.lanes)]
        for lane, key in enumerate(own):
            m.submodules[f"lane{lane}"] = unit = KeyMatches(self.width, reach)
            m.d.comb += [unit.key.eq(key), unit.keys.eq(within)]
            with m.If(self.moves[1]):
                m.d.sync += self.matches.word_select(lane, reach).eq(
                    unit.equal & self.may.word_select(lane, reach))
        return m
