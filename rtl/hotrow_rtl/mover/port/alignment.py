"""TransferAlignment: how the source words of a transfer become its destination words."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import STATE_ALIGNMENT, Config, log2
from .payloads import aligned_transfer, lane_width, row_transfer


class TransferAlignment(wiring.Component):
    """Compute the word shift of a transfer from its addresses.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    transfers : In(stream(row_transfer(config)))
    aligned : Out(stream(aligned_transfer(config)))
        The stage advances only while `ready`, even if it is empty.

    Timing
    ------
    Latency 1 cycle, throughput 1 transfer per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "transfers": In(stream.Signature(row_transfer(config))),
            "aligned": Out(stream.Signature(aligned_transfer(config))),
        })

    def elaborate(self, platform):
        m = Module()
        transfer, out = self.transfers.p, self.aligned
        lane, step = lane_width(self.config), log2(STATE_ALIGNMENT)
        size = transfer.info.bytes
        source_lane = transfer.source[step:step + lane]
        first_lane = transfer.destination[step:step + lane]
        lanes = size >> step
        # Last lanes, counted from lane 0 of the first word.
        source_end, end = Signal(12), Signal(lane + 1)
        needs_two, single, counts_differ = Signal(), Signal(), Signal()
        m.d.comb += [
            source_end.eq(lanes + (source_lane - 1)),
            end.eq(lanes[:lane + 1] + (first_lane - 1)),
            # The numbers of source and destination words differ by at most one.
            counts_differ.eq(source_end[lane] ^ end[lane]),
            needs_two.eq(first_lane < source_lane),
            single.eq(source_end >> lane == 0),
            self.transfers.ready.eq(out.ready),
        ]
        with m.If(self.transfers.ready):
            m.d.sync += [
                out.valid.eq(self.transfers.valid),
                out.p.alignment.words_minus_1.eq(source_end >> lane),
                out.p.alignment.rotate.eq(first_lane - source_lane),
                out.p.alignment.needs_two.eq(needs_two),
                out.p.alignment.extra_word.eq(
                    Mux(needs_two, ~counts_differ & ~single, counts_differ)),
                out.p.alignment.first_lane.eq(first_lane),
                out.p.alignment.last_lane.eq(end),
                out.p.destination.eq(transfer.destination),
                out.p.bytes.eq(size),
                out.p.two_reads.eq(transfer.two_reads),
                out.p.two_writes.eq(transfer.two_writes),
            ]
        return m
