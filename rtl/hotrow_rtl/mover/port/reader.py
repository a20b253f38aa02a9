"""Row reader: many rows on their way from memory at a time, handed on in order and complete."""

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...memory.axi import AXI4Read
from ...primitives.fifo import RamFifo
from ...primitives.stream_routing import fork
from .alignment import CopyAlignment
from .axi_read import RowReadPort
from .burst_tracker import BurstTracker
from .page_splitter import PageSplitter
from .payloads import addressed_copy, arrived_copy, copies_waiting, placed_copy, source_word, tag
from .reorder_buffer import ReorderBuffer
from .row_stream import RowStream


class RowReader(wiring.Component):
    """Read copies with up to `config.outstanding` bursts in flight.

    Parameters
    ----------
    config : Config

    Members
    -------
    copies : In(stream(addressed_copy(config)))
    rows : Out(stream(arrived_copy(config)))
        Every copy, in order, when all its words have come or one of them failed.
    words : Out(stream(source_word(config)))
        The words of the copies without fault, in order.
    bus : Out(AXI4Read)
    timeout, restart, idle, stopped : In, In, Out, Out
        As of `RowReadPort`. While stopped every copy that has not come ends with TIMEOUT.
    clear : In(1)
        Forget all but what is in flight on the bus: high from `restart` until `idle`.

    Timing
    ------
    A copy of w words in one burst announces itself a + w + 6 cycles after it was taken, where its
    first beat comes a cycles after its AR handshake. In the steady state it takes
    max(w, (a + w + 5) / outstanding) cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "copies": In(stream.Signature(addressed_copy(config))),
            "rows": Out(stream.Signature(arrived_copy(config))),
            "words": Out(stream.Signature(source_word(config))),
            "bus": Out(AXI4Read(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                id_width=tag(config))),
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
        cutter, window = PageSplitter(config), BurstTracker(config)
        placement = CopyAlignment(config)
        waiting = RamFifo(placed_copy(config), copies_waiting(config))
        buffer, streamer = ReorderBuffer(config), RowStream(config)
        m.submodules.cutter = cleared(cutter)
        m.submodules.window = cleared(window)
        m.submodules.placement = cleared(placement)
        m.submodules.waiting = cleared(waiting)
        m.submodules.buffer = cleared(buffer)
        m.submodules.streamer = cleared(streamer)
        m.submodules.port = port = RowReadPort(config)

        fork(m, self.copies, cutter.spans, placement.copies)
        m.d.comb += [
            cutter.spans.p.address.eq(self.copies.p.source),
            cutter.spans.p.bytes.eq(self.copies.p.identity.bytes),
            cutter.spans.p.crosses.eq(self.copies.p.two_reads),
            placement.copies.p.eq(self.copies.p),
        ]
        connect(m, cutter=cutter.bursts, window=window.bursts)
        connect(m, window=window.requests, port=port.bursts)
        connect(m, flipped(self.bus), port.bus)
        connect(m, placement=placement.placed, waiting=waiting.i)
        connect(m, waiting=waiting.o, streamer=streamer.placed)
        connect(m, window=window.arrivals, streamer=streamer.arrivals)
        connect(m, streamer=streamer.rows, rows=flipped(self.rows))
        connect(m, streamer=streamer.words, words=flipped(self.words))
        m.d.comb += [
            buffer.places.eq(window.places),
            buffer.beats.eq(port.beats),
            buffer.read_enable.eq(streamer.read_enable),
            buffer.read_position.eq(streamer.read_position),
            streamer.read_data.eq(buffer.read_data),
            window.ended.eq(buffer.ended),
            window.freed.eq(streamer.freed),
            window.stopped.eq(port.stopped),
            port.timeout.eq(self.timeout),
            port.restart.eq(self.restart),
            self.idle.eq(port.idle),
            self.stopped.eq(port.stopped),
        ]
        return m
