"""Placer: what each combined lookup asks of which bank."""

from amaranth import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .bank_layouts import Edit, bank_request, combined_beat, ring_beat
from .config import Config
from .placement import place


class Placer(wiring.Component):
    """Mix each lane's key and make a request of each owner.

    Parameters
    ----------
    config : Config

    Members
    -------
    combined : In(stream(combined_beat(config)))
    beats : Out(stream(ring_beat(config, combined_beat(config), bank_request(config))))
        Owners ask: to count their `amount` if the batch `counts`, for their slot or their place
        in the miss table if it `splits`. `bank` is that of the lane's row for every lane.
    restart : In(1)
        A pulse drops the beat inside.

    Timing
    ------
    Latency 1 cycle, one beat a cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        carried = combined_beat(config)
        super().__init__({
            "combined": In(stream.Signature(carried)),
            "beats": Out(stream.Signature(ring_beat(config, carried, bank_request(config)))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat, out = self.combined.p, self.beats
        m.d.comb += self.combined.ready.eq(~out.valid | out.ready)
        with m.If(self.combined.ready):
            m.d.sync += [out.valid.eq(self.combined.valid), out.p.carried.eq(beat)]
            for lane, to in zip(beat.lanes, out.p.lanes):
                bank, rest = place(self.config, lane.lookup.key.as_value())
                request = to.request
                m.d.sync += [
                    to.valid.eq(lane.owner & (beat.counts | beat.splits)),
                    to.bank.eq(bank),
                    request.rest.eq(rest),
                    request.amount.eq(Mux(beat.counts, lane.amount, 0)),
                    request.ask.eq(beat.splits),
                    request.miss.eq(beat.splits),
                    request.edit.eq(Edit.NONE),
                    request.parts_log2.eq(lane.lookup.parts_log2),
                    request.part.eq(lane.lookup.part),
                ]
        with m.If(self.restart):
            m.d.sync += out.valid.eq(0)
        return m
