"""Requests of listed rows to the banks."""

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


class ListRequestStage(wiring.Component):
    """Turn each entry of a list into a beat whose lane 0 requests `op`, unless it is refused.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    entries : In(stream(checked_entry(config)))
    op : In(DirectoryOp)
    beats : Out(stream(crossbar_request(config, waiting_beat(config), row_request(config),
            beat_request(config))))
        One per entry, in order. Of `carried` only `last`, and `present` and `status` of lane 0, are
        valid.
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
        pending, lane = out.p.carried.lanes[0], out.p.lanes[0]
        m.d.comb += self.entries.ready.eq(~out.valid | out.ready)
        with m.If(self.entries.ready):
            m.d.sync += [
                out.valid.eq(self.entries.valid),
                out.p.carried.last.eq(entry.last),
                pending.present.eq(1),
                pending.status.eq(entry.status),
                lane.valid.eq(entry.status == Status.OK),
                Cat(lane.bank, lane.request.bank_key).eq(
                    hash_key_hw(m, "hash_step", entry.key.as_value(), 0, self.config.key_width)),
                out.p.shared.op.eq(self.op),
                lane.request.parts_log2.eq(entry.parts_log2),
                lane.request.part.eq(entry.part),
            ]
        with m.If(self.restart):
            m.d.sync += out.valid.eq(0)
        return m
