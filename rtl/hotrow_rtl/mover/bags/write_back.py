"""BagWriteBack: write the computed rows of bags, drop those of bags with an error."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...arithmetic.payloads import row_format, row_word
from ...config import ROW_ALIGNMENT, Config, log2
from ..port.alignment import TransferAlignment
from ..port.payloads import BYTES_WIDTH, computed_row, refusal, source_word
from .payloads import bag_result

STATE_BYTES = 4


class BagWriteBack(wiring.Component):
    """Join each computed row with the result of its bag, and write or drop it.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    row_format : In(row_format)
        Of all rows.
    results : In(stream(bag_result(config)))
        Of every bag.
    rows : In(stream(row_word(config)))
    states : In(stream(32))
        The row of every bag, aligned to the first byte of a word, and its state, if any.
    computed_rows : Out(stream(computed_row(config)))
    computed_words : Out(stream(source_word(config)))
        The rows and states to write. A row's handshake is no later than that of its first word.
    refused, refused_valid : Out
        A pulse per bag that is not written. The status is OK if another bag reports the error.
    unit : In(range(config.bag_units))
        With several bag units: number of this one, constant.

    Timing
    ------
    Latency 1 cycle from `results`, none from `rows` and `states`; one word per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "row_format": In(row_format),
            "results": In(stream.Signature(bag_result(config))),
            "rows": In(stream.Signature(row_word(config))),
            "states": In(stream.Signature(32)),
            "computed_rows": Out(stream.Signature(computed_row(config))),
            "computed_words": Out(stream.Signature(source_word(config))),
            "refused": Out(refusal()),
            "refused_valid": Out(1),
            **({"unit": In(range(config.bag_units))} if config.bag_units > 1 else {}),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.alignment = alignment = TransferAlignment(config)
        aligned, result = alignment.aligned, Signal(bag_result(config))  # in the same stage
        transfer, row_bytes = alignment.transfers.p, Signal(BYTES_WIDTH)
        m.d.comb += [
            row_bytes.eq(self.row_format.row16 << log2(ROW_ALIGNMENT)),
            alignment.transfers.valid.eq(self.results.valid),
            self.results.ready.eq(alignment.transfers.ready),
            transfer.destination.eq(self.results.p.destination),
            transfer.two_writes.eq(self.results.p.two_writes),
            transfer.info.bytes.eq(Mux(self.results.p.is_state, STATE_BYTES, row_bytes)),
        ]
        with m.If(alignment.transfers.ready):
            m.d.sync += result.eq(self.results.p)

        inside, accepted, word_valid, step, final = (
            Signal(name=name) for name in ("inside", "accepted", "word_valid", "step", "final"))
        units = config.bag_units
        bag_idx = Signal(32)
        row, words = self.computed_rows, self.computed_words
        m.d.comb += [
            accepted.eq(~result.drop),
            word_valid.eq(
                aligned.valid & Mux(result.is_state, self.states.valid, self.rows.valid)),
            final.eq(result.is_state | self.rows.p.last),
            row.valid.eq(word_valid & accepted & ~inside & words.ready),
            row.p.row.destination.eq(aligned.p.destination),
            row.p.row.bytes.eq(aligned.p.bytes),
            row.p.row.two_writes.eq(aligned.p.two_writes),
            # Errors are ordered by the number of the bag; the completion reports the list index.
            row.p.info.index.eq(bag_idx),
            row.p.info.source.eq(result.index),
            row.p.info.destination.eq(result.packed_destination),
            row.p.info.bytes.eq(aligned.p.bytes),
            row.p.info.last.eq(result.last),
            words.valid.eq(word_valid & accepted & (inside | row.ready)),
            words.p.data.eq(Mux(result.is_state, self.states.p, self.rows.p.data)),
            words.p.alignment.eq(aligned.p.alignment),
            words.p.first.eq(~inside),
            words.p.last.eq(final),
            step.eq(word_valid & (~accepted | words.ready & (inside | row.ready))),
            self.rows.ready.eq(step & ~result.is_state),
            self.states.ready.eq(step & result.is_state),
            aligned.ready.eq(~aligned.valid | step & final),
        ]
        with m.If(step):
            ends = final & result.last
            m.d.sync += [
                inside.eq(~final),
                bag_idx.eq(bag_idx + (ends if units == 1 else Mux(ends, units, 0))),
            ]
        with m.If(self.start):
            m.d.sync += bag_idx.eq(0 if units == 1 else self.unit)
        m.d.sync += [
            self.refused_valid.eq(step & final & result.last & ~accepted),
            self.refused.index.eq(bag_idx),
            self.refused.list_index.eq(result.index),
            self.refused.status.eq(result.status),
            self.refused.address.eq(result.address),
        ]
        return m
