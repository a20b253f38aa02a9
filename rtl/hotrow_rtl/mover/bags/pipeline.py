"""Row arithmetic: rows that are computed from what the row ports read."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arithmetic.optimizer import RowUpdate
from ...arithmetic.pooling import RowPool
from ...config import Config
from ...interfaces.records import element, row_entry
from ...primitives.fifo import RamFifo
from ...primitives.stream_routing import stream_connect
from ..port.payloads import (
    addressed_copy,
    arrived_copy,
    checked_copy,
    copies_waiting,
    made_row,
    refusal,
    source_word,
    wanted_copy,
)
from .payloads import bag_end, bag_item, bag_read, bag_setting
from .read_collect import BagReadCollect
from .read_issue import BagReadIssue
from .read_requests import LENGTH, BagReadRequests
from .write_back import BagWriteBack

ENTRIES_CHECKED = 32  # at a time: more than the stages of `AddressPipeline`
STATES = 16  # that wait for the sums of squares of their rows
BAGS_COMPUTED = 64  # at a time: more than `RowPool` has inside


class RowArithmetic(wiring.Component):
    """Carry out commands on bags: ask for the addresses of their rows, have the row ports read
    them, compute, and have one port write the results.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse before each command.
    setting : In(bag_setting())
        From the pulse until the command is over.
    rows, lengths, targets, weights : In(stream)
        The lists, as of `BagReadRequests`.
    wanted : Out(stream(wanted_copy(config)))
    checked : In(stream(checked_copy(config)))
        What `AddressPipeline` makes of them, in order.
    copies : Out(stream(addressed_copy(config))).array(config.row_ports)
    read_rows : In(stream(arrived_copy(config))).array(config.row_ports)
    read_words : In(stream(source_word(config))).array(config.row_ports)
    made : Out(stream(made_row(config)))
    made_words : Out(stream(source_word(config)))
        As of `RowPort`; rows are made for one port.
    refused, refusing : Out
        Bags that are not written, in order.
    bags : Out(32)
        How many bags are refused or made, once `counted`.
    counted : Out(1)

    Timing
    ------
    See ``hotrow_sim.cycles.bags``. Entries are asked for one a cycle, and words computed
    one a cycle, over however many ports they come.
    """

    def __init__(self, config: Config):
        self.config = config
        ports = config.row_ports
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            "rows": In(stream.Signature(element(row_entry))),
            "lengths": In(stream.Signature(element(LENGTH))),
            "targets": In(stream.Signature(element(32))),
            "weights": In(stream.Signature(element(32))),
            "wanted": Out(stream.Signature(wanted_copy(config))),
            "checked": In(stream.Signature(checked_copy(config))),
            "copies": Out(stream.Signature(addressed_copy(config))).array(ports),
            "read_rows": In(stream.Signature(arrived_copy(config))).array(ports),
            "read_words": In(stream.Signature(source_word(config))).array(ports),
            "made": Out(stream.Signature(made_row(config))),
            "made_words": Out(stream.Signature(source_word(config))),
            "refused": Out(refusal()),
            "refusing": Out(1),
            "bags": Out(32),
            "counted": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.entries = entries = BagReadRequests(config)
        m.submodules.items = items = RamFifo(bag_item(), ENTRIES_CHECKED)
        m.submodules.reads = reads = BagReadIssue(config)
        m.submodules.order = order = RamFifo(bag_read(config), max(16, copies_waiting(config)))
        m.submodules.words = words = BagReadCollect(config)
        m.submodules.ends = ends = RamFifo(bag_end(config), BAGS_COMPUTED)
        m.submodules.pool = pool = RowPool(config)
        m.submodules.states = states = RamFifo(32, STATES)
        m.submodules.update = update = RowUpdate(config)
        m.submodules.writes = writes = BagWriteBack(config)

        for name in ("rows", "lengths", "targets", "weights"):
            connect(m, flipped(getattr(self, name)), getattr(entries, name))
        connect(m, entries.copies, flipped(self.wanted))
        connect(m, entries=entries.items, items=items.i)
        connect(m, flipped(self.checked), reads.checked)
        connect(m, items=items.o, reads=reads.items)
        connect(m, reads=reads.order, order=order.i)
        connect(m, order=order.o, words=words.order)
        for number in range(config.row_ports):
            connect(m, reads.copies[number], flipped(self.copies[number]))
            connect(m, flipped(self.read_rows[number]), words.read_rows[number])
            connect(m, flipped(self.read_words[number]), words.read_words[number])
        connect(m, words=words.rows, pool=pool.rows)
        connect(m, words=words.words, pool=pool.words)
        connect(m, words=words.ends, ends=ends.i)
        connect(m, ends=ends.o, writes=writes.ends)
        connect(m, pool=pool.gradients, update=update.gradients)
        connect(m, words=words.row_words, update=update.words)
        connect(m, words=words.states, states=states.i)
        connect(m, states=states.o, update=update.states)
        with m.If(self.setting.updates):
            stream_connect(m, update.updated, writes.rows)
        with m.Else():
            stream_connect(m, pool.pooled, writes.rows)
        connect(m, update=update.updated_states, writes=writes.states)
        connect(m, writes.made, flipped(self.made))
        connect(m, writes.words, flipped(self.made_words))
        m.d.comb += [
            entries.start.eq(self.start),
            entries.setting.eq(self.setting),
            reads.start.eq(self.start),
            reads.setting.eq(self.setting),
            words.setting.eq(self.setting),
            words.settled.eq(reads.settled),
            words.summands.eq(reads.summands),
            words.shape.eq(reads.shape),
            pool.row_format.eq(reads.summands),
            pool.mean.eq(self.setting.mean),
            pool.sequential.eq(self.setting.updates),
            update.row_format.eq(reads.shape),
            update.optimizer.eq(self.setting.adagrad),
            update.lr.eq(self.setting.lr),
            update.eps.eq(self.setting.eps),
            writes.start.eq(self.start),
            writes.shape.eq(reads.shape),
            self.refused.eq(writes.refused),
            self.refusing.eq(writes.refusing),
            self.bags.eq(entries.bags),
            self.counted.eq(entries.ended),
        ]
        return m
