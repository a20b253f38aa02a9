"""Edit lane: listed rows on their way into the ring of banks."""

from amaranth import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.lookup_payloads import (
    DirectoryOp,
    beat_request,
    crossbar_request,
    row_request,
    waiting_beat,
)
from ..hashing.xorshift_hardware import hash_key_hw
from .entry_check import checked_entry


class EditRequest(wiring.Component):
    """Make each entry of a list a beat whose lane 0 edits the directory, unless it is refused.

    Parameters
    ----------
    config : Config

    Members
    -------
    entries : In(stream(checked_entry(config)))
    op : In(DirectoryOp)
        What the entries served ask for.
    beats : Out(stream(crossbar_request(config, waiting_beat(config), row_request(config),
            beat_request(config))))
        One per entry, in order; of what is carried, `last` and lane 0's `present` and `status`
        tell something.
    restart : In(1)
        A pulse drops the entry inside.

    Timing
    ------
    Latency 1 cycle, one entry a cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        beats = crossbar_request(
            config, waiting_beat(config), row_request(config), beat_request(config))
        super().__init__({
            "entries": In(stream.Signature(checked_entry(config))),
            "op": In(DirectoryOp),
            "beats": Out(stream.Signature(beats)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        entry, out = self.entries.p, self.beats
        kept, lane = out.p.carried.lanes[0], out.p.lanes[0]
        m.d.comb += self.entries.ready.eq(~out.valid | out.ready)
        with m.If(self.entries.ready):
            m.d.sync += [
                out.valid.eq(self.entries.valid),
                out.p.carried.last.eq(entry.last),
                kept.present.eq(1),
                kept.status.eq(entry.status),
                lane.valid.eq(entry.status == Status.OK),
                Cat(lane.bank, lane.request.bank_key).eq(
                    hash_key_hw(m, "mixed_key", entry.key.as_value(), 0, self.config.key_width)),
                out.p.shared.op.eq(self.op),
                lane.request.parts_log2.eq(entry.parts_log2),
                lane.request.part.eq(entry.part),
            ]
        with m.If(self.restart):
            m.d.sync += out.valid.eq(0)
        return m
