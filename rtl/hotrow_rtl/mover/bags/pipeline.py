"""BagPipeline: POOL and UPDATE, from the lists to the computed rows."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arithmetic.bag_arithmetic import BagArithmetic
from ...arithmetic.row_words import RowWordJoiner, RowWordSplitter
from ...config import Config
from ...interfaces.records import element, row_entry
from ...primitives.fifo import RamFifo
from ..port.payloads import (
    checked_transfer,
    computed_row,
    fetched_row,
    pending_reads,
    refusal,
    row_transfer,
    source_word,
    transfer_request,
)
from .payloads import LENGTH_WIDTH, bag_read, bag_result, bag_setting, batch_setting, read_info
from .read_collect import BagReadCollect
from .read_issue import BagReadIssue
from .read_requests import BagReadRequests
from .write_back import BagWriteBack

READS_CHECKED = 32  # reads in the address check: more than the stages of `AddressPipeline`
STATES = 16  # states that wait for the sum of squares of their row
BAGS_COMPUTED = 64  # bags in the arithmetic: more than `RowPool` holds


class BagPipeline(wiring.Component):
    """Request the addresses of the reads of bags, have the row ports read them, compute, and have
    port 0 write the results.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    setting : In(bag_setting())
        Stable from `start` until the command completes.
    batch : In(batch_setting(config))
        With `config.pools_batches`, see `BagReadRequests`.
    rows, lengths, targets, weights : In(stream)
        The lists, see `BagReadRequests`.
    requests : Out(stream(transfer_request(config)))
    checked : In(stream(checked_transfer(config)))
        The requests as checked by `AddressPipeline`, in order.
    transfers : Out(stream(row_transfer(config))).array(config.row_ports)
    read_rows : In(stream(fetched_row(config))).array(config.row_ports)
    read_words : In(stream(source_word(config))).array(config.row_ports)
        See `RowPort`.
    computed_rows : Out(stream(computed_row(config)))
    computed_words : Out(stream(source_word(config)))
        For port 0, see `RowPort`.
    refused, refused_valid : Out
        A pulse per bag that is not written, in order.
    bag_count : Out(32)
        Bags that are refused or written, valid with `counted`.
    counted : Out(1)
    unit : In(range(config.bag_units))
        With several bag units: number of this one, constant.

    Timing
    ------
    One read is requested per cycle, or one every 2 where the arithmetic of a word takes two, and
    one word of the arithmetic units processed per cycle, with any number of ports;
    `tests/rtl/mover/bags/bags_cycles.py` has the cycles of a command.
    """

    def __init__(self, config: Config):
        self.config = config
        ports = config.row_ports
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            **({"batch": In(batch_setting(config))} if config.pools_batches else {}),
            **self._lists(config),
            "requests": Out(stream.Signature(transfer_request(config))),
            "checked": In(stream.Signature(checked_transfer(config))),
            "transfers": Out(stream.Signature(row_transfer(config))).array(ports),
            "read_rows": In(stream.Signature(fetched_row(config))).array(ports),
            "read_words": In(stream.Signature(source_word(config))).array(ports),
            "computed_rows": Out(stream.Signature(computed_row(config))),
            "computed_words": Out(stream.Signature(source_word(config))),
            "refused": Out(refusal()),
            "refused_valid": Out(1),
            **({"unit": In(range(config.bag_units))} if config.bag_units > 1 else {}),
            **self._counts(),
        })

    @staticmethod
    def _lists(config):
        return {
            "rows": In(stream.Signature(element(row_entry))),
            "lengths": In(stream.Signature(element(LENGTH_WIDTH))),
            "targets": In(stream.Signature(element(32))),
            "weights": In(stream.Signature(element(32))),
        }

    @staticmethod
    def _counts():
        return {"bag_count": Out(32), "counted": Out(1)}

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.requests = requests = self._requests(m)
        m.submodules.infos = infos = RamFifo(read_info(), READS_CHECKED)
        m.submodules.issue = issue = BagReadIssue(config)
        m.submodules.reads = reads = RamFifo(
            bag_read(config), max(16, pending_reads(config)), block=True)
        m.submodules.collect = collect = BagReadCollect(config)
        m.submodules.results = results = RamFifo(
            bag_result(config), BAGS_COMPUTED, block=True)
        m.submodules.arithmetic = arithmetic = BagArithmetic(config.units)
        m.submodules.states = states = RamFifo(32, STATES)
        m.submodules.write_back = write_back = BagWriteBack(config)

        connect(m, requests.requests, flipped(self.requests))
        connect(m, requests=requests.infos, infos=infos.i)
        connect(m, flipped(self.checked), issue.checked)
        connect(m, infos=infos.o, issue=issue.infos)
        connect(m, issue=issue.reads, reads=reads.i)
        connect(m, reads=reads.o, collect=collect.reads)
        for number in range(config.row_ports):
            connect(m, issue.transfers[number], flipped(self.transfers[number]))
            connect(m, flipped(self.read_rows[number]), collect.read_rows[number])
            connect(m, flipped(self.read_words[number]), collect.read_words[number])
        connect(m, collect=collect.rows, arithmetic=arithmetic.rows)
        connect(m, collect=collect.results, results=results.i)
        connect(m, results=results.o, write_back=write_back.results)
        connect(m, collect=collect.states, states=states.i)
        connect(m, states=states.o, arithmetic=arithmetic.states)
        results = arithmetic.results
        if config.units.lanes < config.word_lanes:
            m.submodules.joiner = joiner = RowWordJoiner(config)
            connect(m, arithmetic=results, joiner=joiner.parts)
            results = joiner.words
        connect(m, arithmetic=results, write_back=write_back.rows)
        for name, words, row_format, operands in (
                ("words", collect.words, issue.summand_format, arithmetic.words),
                ("row_words", collect.row_words, issue.row_format, arithmetic.row_words)):
            if config.units.lanes < config.word_lanes:
                m.submodules[f"{name}_splitter"] = splitter = RowWordSplitter(config)
                m.d.comb += splitter.row_format.eq(row_format)
                connect(m, collect=words, splitter=splitter.words)
                words = splitter.parts
            connect(m, collect=words, arithmetic=operands)
        connect(m, arithmetic=arithmetic.updated_states, write_back=write_back.states)
        connect(m, write_back.computed_rows, flipped(self.computed_rows))
        connect(m, write_back.computed_words, flipped(self.computed_words))
        m.d.comb += [
            requests.start.eq(self.start),
            requests.setting.eq(self.setting),
            issue.start.eq(self.start),
            issue.setting.eq(self.setting),
            collect.setting.eq(self.setting),
            collect.formats_valid.eq(issue.formats_valid),
            collect.summand_format.eq(issue.summand_format),
            collect.row_format.eq(issue.row_format),
            arithmetic.summand_format.eq(issue.summand_format),
            arithmetic.row_format.eq(issue.row_format),
            arithmetic.mean.eq(self.setting.mean),
            arithmetic.updates.eq(self.setting.updates),
            arithmetic.optimizer.eq(self.setting.adagrad),
            arithmetic.lr.eq(self.setting.lr),
            arithmetic.eps.eq(self.setting.eps),
            write_back.start.eq(self.start),
            write_back.row_format.eq(issue.row_format),
            self.refused.eq(write_back.refused),
            self.refused_valid.eq(write_back.refused_valid),
            *self._counted(requests),
        ]
        if config.pools_batches:
            m.d.comb += requests.batch.eq(self.batch)
        if config.bag_units > 1:
            m.d.comb += write_back.unit.eq(self.unit)
        return m

    def _requests(self, m):
        """The unit that requests the reads, connected to its lists."""
        requests = BagReadRequests(self.config)
        for name in ("rows", "lengths", "targets", "weights"):
            connect(m, flipped(getattr(self, name)), getattr(requests, name))
        return requests

    def _counted(self, requests):
        return [self.bag_count.eq(requests.bag_count), self.counted.eq(requests.done)]
