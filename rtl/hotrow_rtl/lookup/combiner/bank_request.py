"""Requests of combined lookups to the banks."""

from amaranth import Cat, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...interfaces.lookup_payloads import (
    DirectoryOp,
    beat_request,
    combined_beat,
    crossbar_request,
    row_request,
    waiting_beat,
)
from ..hashing.xorshift_hardware import hash_key_hw


class BankRequestStage(wiring.Component):
    """Hash the key of each lane and form the request of each owner.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    combined : In(stream(combined_beat(config)))
    beats : Out(stream(crossbar_request(config, waiting_beat(config), row_request(config),
            beat_request(config))))
        An owner requests a count of its `amount` if the batch `counts`, and its slot or entry of
        the miss table if the batch `splits`. `bank` is valid in every lane.
    op : In(DirectoryOp)
        With a planner: the operation of owners in a batch that `splits`. Stable while one is
        inside.
    restart : In(1)
        A pulse drops the beat inside.

    Timing
    ------
    Latency 1 cycle, one beat a cycle. The stage stalls while `beats` is not ready, even if empty.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        beats = crossbar_request(
            config, waiting_beat(config), row_request(config), beat_request(config))
        super().__init__({
            "combined": In(stream.Signature(combined_beat(config))),
            "beats": Out(stream.Signature(beats)),
            **({"op": In(DirectoryOp)} if config.planner else {}),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, beat, out = self.config, self.combined.p, self.beats
        carried, shared = out.p.carried, out.p.shared
        m.d.comb += self.combined.ready.eq(out.ready)
        with m.If(self.combined.ready):
            m.d.sync += [
                out.valid.eq(self.combined.valid),
                shared.miss.eq(beat.splits),
                shared.epoch.eq(beat.epoch),
                *(carried[name].eq(beat[name])
                  for name, _ in waiting_beat(c) if name != "lanes"),
            ]
            if c.planner:  # MARK adds no row to the misses of its batch
                m.d.sync += [
                    shared.miss.eq(beat.splits & (self.op != DirectoryOp.MARK)),
                    shared.op.eq(self.op),
                ]
            for number, (lane, pending, into) in enumerate(
                    zip(beat.lanes, carried.lanes, out.p.lanes, strict=True)):
                request = into.request
                m.d.sync += [pending[name].eq(lane[name]) for name, _ in pending.shape()]
                m.d.sync += [
                    into.valid.eq(lane.owner),
                    Cat(into.bank, request.bank_key).eq(
                        hash_key_hw(m, f"hash_step{number}_", lane.key, 0, c.key_width)),
                    request.amount.eq(Mux(beat.counts, lane.amount, 0)),
                    request.parts_log2.eq(lane.parts_log2),
                    request.part.eq(lane.part),
                ]
        with m.If(self.restart):
            m.d.sync += out.valid.eq(0)
        return m
