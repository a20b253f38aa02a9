"""Placer: what each combined lookup asks of which bank."""

from amaranth import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .bank_layouts import combined_beat, count_request, counted_beat, ring_beat
from .config import Config
from .contract import Status
from .placement import place


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
                bank, rest = place(self.config, lane.lookup.key.as_value())
                m.d.sync += [
                    kept.present.eq(lane.lookup.present),
                    kept.status.eq(refusal(lane.lookup)),
                    kept.owner.eq(lane.owner),
                    kept.amount.eq(lane.amount),
                    to.valid.eq(lane.owner),
                    to.bank.eq(bank),
                    to.request.rest.eq(rest),
                    to.request.amount.eq(lane.amount),
                ]
        with m.If(self.restart):
            m.d.sync += out.valid.eq(0)
        return m


def refusal(lookup):
    """Status for which a lookup is refused, or OK."""
    return Mux(lookup.fault != 0, Status.SLVERR - 1 + lookup.fault,
               Mux(lookup.out_of_range, Status.ROW_OUT_OF_RANGE, Status.OK))
