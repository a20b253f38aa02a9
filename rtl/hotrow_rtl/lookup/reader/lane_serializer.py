"""Lane serializer: the ids of a bus word one by one, for a card with one lookup lane."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from .batch_descriptor import unchecked_beat, unchecked_word


class LaneSerializer(wiring.Component):
    """Split each word of ids into beats of one id.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    words : In(stream(unchecked_word(config)))
        At least the first lane is present.
    beats : Out(stream(unchecked_beat(config)))

    Timing
    ------
    Combinational, one id a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "words": In(stream.Signature(unchecked_word(config))),
            "beats": Out(stream.Signature(unchecked_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        words, beats, lanes = self.words, self.beats, self.config.word_lanes
        place, final = Signal(range(lanes)), Signal()
        with m.Switch(place):
            for number, lane in enumerate(words.p.lanes):
                with m.Case(number):
                    following = words.p.lanes[number + 1].present if number + 1 < lanes else 0
                    m.d.comb += [beats.p.lanes[0].eq(lane), final.eq(~following)]
        m.d.comb += [
            beats.valid.eq(words.valid),
            beats.p.last.eq(words.p.last & final),
            words.ready.eq(beats.ready & final),
        ]
        with m.If(beats.valid & beats.ready):
            m.d.sync += place.eq(Mux(final, 0, place + 1))
        return m
