"""BankRequestStage: what each combined lookup asks of which bank."""

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
    """Mix each lane's key and make a request of each owner.

    Parameters
    ----------
    config : Config

    Members
    -------
    combined : In(stream(combined_beat(config)))
    beats : Out(stream(crossbar_request(config, waiting_beat(config), row_request(config),
            beat_request(config))))
        Owners ask: to count their `amount` if the batch `counts`, for their slot or their place
        in the miss table if it `splits`. `bank` is that of the lane's row for every lane.
    op : In(DirectoryOp)
        Of a card with a planner: what owners of a batch that `splits` are asked for, stable while
        one is inside.
    restart : In(1)
        A pulse drops the beat inside.

    Timing
    ------
    Latency 1 cycle, one beat a cycle, while `beats` is ready: else nothing moves.
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
        beat, out = self.combined.p, self.beats
        carried, shared = out.p.carried, out.p.shared
        m.d.comb += self.combined.ready.eq(out.ready)
        with m.If(self.combined.ready):
            m.d.sync += out.valid.eq(self.combined.valid)
            m.d.sync += [
                shared.miss.eq(beat.splits),
                shared.epoch.eq(beat.epoch),
                shared.op.eq(self.op if self.config.planner else DirectoryOp.FIND),
            ]
            if self.config.planner:  # a row that is only marked is none of the batch's misses
                m.d.sync += shared.miss.eq(beat.splits & (self.op != DirectoryOp.MARK))
            m.d.sync += [carried[name].eq(beat[name])
                         for name, _ in waiting_beat(self.config) if name != "lanes"]
            for number, (lane, kept, to) in enumerate(
                    zip(beat.lanes, carried.lanes, out.p.lanes)):
                request = to.request
                m.d.sync += [kept[name].eq(lane[name]) for name, _ in kept.shape()]
                m.d.sync += [
                    to.valid.eq(lane.owner),
                    Cat(to.bank, request.bank_key).eq(
                        hash_key_hw(m, f"mixed{number}_", lane.key, 0, self.config.key_width)),
                    request.amount.eq(Mux(beat.counts, lane.amount, 0)),
                    request.parts_log2.eq(lane.parts_log2),
                    request.part.eq(lane.part),
                ]
        with m.If(self.restart):
            m.d.sync += out.valid.eq(0)
        return m
