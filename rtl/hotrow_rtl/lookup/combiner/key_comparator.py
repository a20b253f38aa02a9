"""Key comparator: equal keys within a window of beats."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out


class KeyComparator(wiring.Component):
    """Compare (a piece of) the keys of each beat with those of the beat and of earlier beats.

    Parameters
    ----------
    width, lanes, beats : int
        Bits to compare, keys of a beat, and earlier beats in the window.

    Attributes
    ----------
    keys : In(lanes * width)
        Keys of the next beat, the first lane lowest.
    enable : In(beats + 1)
        Bit 0: load the next beat into the first stage. Bit n: move the beat from stage n - 1 to
        stage n.
    allowed : In(lanes * (beats + 1) * lanes)
        Pairs that may match, for the beat in the first stage: by lane, then by beats back (its own
        beat lowest), then by the lane there.
    matches : Out(lanes * (beats + 1) * lanes)
        Allowed pairs with equal keys, registered when the beat leaves the first stage.

    Timing
    ------
    Latency 2 cycles from the keys of a beat that does not stall.
    """

    def __init__(self, width: int, lanes: int, beats: int):
        self.width, self.lanes, self.beats = width, lanes, beats
        pairs = lanes * (beats + 1) * lanes
        super().__init__({
            "keys": In(lanes * width),
            "enable": In(beats + 1),
            "allowed": In(pairs),
            "matches": Out(pairs),
        })

    def elaborate(self, platform):
        m = Module()
        stages = [
            Signal(data.ArrayLayout(self.width, self.lanes), name=f"keys{at}", reset_less=True)
            for at in range(self.beats + 1)]
        for at, (before, stage) in enumerate(zip((self.keys, *stages[:-1]), stages, strict=True)):
            with m.If(self.enable[at]):
                m.d.sync += stage.eq(before)
        window = [key for stage in stages for key in stage]
        with m.If(self.enable[1]):
            m.d.sync += self.matches.eq(self.allowed & Cat(
                own == key for own in stages[0] for key in window))
        return m
