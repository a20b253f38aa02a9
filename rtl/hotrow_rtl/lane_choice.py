"""Lane choice: the words in one lane of several beats."""

from amaranth import Array, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class LaneChoice(wiring.Component):
    """Choose the word of one lane from each of several beats.

    Parameters
    ----------
    beats, lanes, width : int
        Numbers of beats and of their lanes, bits of a word.

    Members
    -------
    words : In(beats * lanes * width)
        Beat by beat, in each by lane, the first lowest.
    lane : In(range(lanes))
    chosen : Out(beats * width)

    Timing
    ------
    Combinational.
    """

    def __init__(self, beats: int, lanes: int, width: int):
        self.beats, self.lanes, self.width = beats, lanes, width
        super().__init__({
            "words": In(beats * lanes * width),
            "lane": In(range(lanes)),
            "chosen": Out(beats * width),
        })

    def elaborate(self, platform):
        m = Module()
        for beat in range(self.beats):
            words = self.words.word_select(beat, self.lanes * self.width)
            m.d.comb += self.chosen.word_select(beat, self.width).eq(
                Array(words.word_select(lane, self.width) for lane in range(self.lanes))[self.lane])
        return m
