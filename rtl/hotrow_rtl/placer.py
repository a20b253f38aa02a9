"""Placer: what each combined lookup asks of which bank."""

from amaranth import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .bank_layouts import combined_beat, count_request, counted_beat, ring_beat
from .config import Config
from .mixing_gates import mixed


class Placer(wiring.Component):
    """Mix each lane's key and make a request of each owner.

    Parameters
    ----------
    config : Config

    Members
    -------
    combined : In(stream(combined_beat(config)))
    beats : Out(stream(ring_beat(config, counted_beat(config), count_request(config))))
        Owners ask to be counted. `bank` is that of the lane's row for every lane.
    restart : In(1)
        A pulse drops the beat inside.

    Timing
    ------
    Latency 1 cycle, one beat a cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        beats = ring_beat(config, counted_beat(config), count_request(config))
        super().__init__({
            "combined": In(stream.Signature(combined_beat(config))),
            "beats": Out(stream.Signature(beats)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat, out = self.combined.p, self.beats
        m.d.comb += self.combined.ready.eq(~out.valid | out.ready)
        with m.If(self.combined.ready):
            m.d.sync += [
                out.valid.eq(self.combined.valid),
                out.p.carried.position.eq(beat.position),
                out.p.carried.last.eq(beat.last),
            ]
            for lane, kept, to in zip(beat.lanes, out.p.carried.lanes, out.p.lanes):
                place = mixed(lane.key, 0, self.config.key_width)
                m.d.sync += [
                    kept.present.eq(lane.present),
                    kept.status.eq(lane.status),
                    kept.owner.eq(lane.owner),
                    kept.amount.eq(lane.amount),
                    to.valid.eq(lane.owner),
                    Cat(to.bank, to.request.rest).eq(place),
                    to.request.amount.eq(lane.amount),
                ]
        with m.If(self.restart):
            m.d.sync += out.valid.eq(0)
        return m
