"""RowReader: read rows with many bursts in flight, return them complete and in order."""

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...memory.axi import AXI4Read
from ...primitives.fifo import RamFifo
from ...primitives.stream_routing import fork
from .alignment import TransferAlignment
from .axi_read import RowReadPort
from .burst_tracker import BurstTracker
from .page_splitter import PageSplitter
from .payloads import (
    aligned_transfer,
    fetched_row,
    id_width,
    pending_reads,
    row_transfer,
    source_word,
)
from .reorder_buffer import ReorderBuffer
from .row_stream import RowStream


class RowReader(wiring.Component):
    """Read the sources of transfers with up to `config.outstanding` bursts in flight.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    transfers : In(stream(row_transfer(config)))
    rows : Out(stream(fetched_row(config)))
        Every transfer, in order, when all its words have come or one of them failed.
    words : Out(stream(source_word(config)))
        The words of the transfers without a fault, in order.
    bus : Out(AXI4Read)
    timeout, restart, idle, stopped : In, In, Out, Out
        See `RowReadPort`. While stopped every transfer in flight ends with TIMEOUT.
    clear : In(1)
        Clear everything but the bursts on the bus: high from `restart` until `idle`.

    Timing
    ------
    If the first beat comes a cycles after the AR handshake, `rows` returns a transfer of w words in
    one burst a + w + 6 cycles after its handshake. In the steady state a transfer takes
    max(w, (a + w + 5) / outstanding) cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "transfers": In(stream.Signature(row_transfer(config))),
            "rows": Out(stream.Signature(fetched_row(config))),
            "words": Out(stream.Signature(source_word(config))),
            "bus": Out(AXI4Read(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                id_width=id_width(config))),
            "timeout": In(32),
            "restart": In(1),
            "clear": In(1),
            "idle": Out(1),
            "stopped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        cleared = ResetInserter(self.clear)
        splitter, tracker = PageSplitter(config), BurstTracker(config)
        alignment = TransferAlignment(config)
        pending = RamFifo(aligned_transfer(config), pending_reads(config))
        buffer, row_stream = ReorderBuffer(config), RowStream(config)
        m.submodules.splitter = cleared(splitter)
        m.submodules.tracker = cleared(tracker)
        m.submodules.alignment = cleared(alignment)
        m.submodules.pending = cleared(pending)
        m.submodules.buffer = cleared(buffer)
        m.submodules.row_stream = cleared(row_stream)
        m.submodules.port = port = RowReadPort(config)

        fork(m, self.transfers, splitter.ranges, alignment.transfers)
        m.d.comb += [
            splitter.ranges.p.address.eq(self.transfers.p.source),
            splitter.ranges.p.bytes.eq(self.transfers.p.info.bytes),
            splitter.ranges.p.crosses.eq(self.transfers.p.two_reads),
            alignment.transfers.p.eq(self.transfers.p),
        ]
        connect(m, splitter=splitter.bursts, tracker=tracker.bursts)
        connect(m, tracker=tracker.requests, port=port.bursts)
        connect(m, flipped(self.bus), port.bus)
        connect(m, alignment=alignment.aligned, pending=pending.i)
        connect(m, pending=pending.o, row_stream=row_stream.aligned)
        connect(m, tracker=tracker.responses, row_stream=row_stream.responses)
        connect(m, row_stream=row_stream.rows, rows=flipped(self.rows))
        connect(m, row_stream=row_stream.words, words=flipped(self.words))
        m.d.comb += [
            buffer.allocations.eq(tracker.allocations),
            buffer.beats.eq(port.beats),
            buffer.read_enable.eq(row_stream.read_enable),
            buffer.read_address.eq(row_stream.read_address),
            row_stream.read_data.eq(buffer.read_data),
            tracker.finished.eq(buffer.finished),
            tracker.freed.eq(row_stream.freed),
            tracker.stopped.eq(port.stopped),
            port.timeout.eq(self.timeout),
            port.restart.eq(self.restart),
            self.idle.eq(port.idle),
            self.stopped.eq(port.stopped),
        ]
        return m
