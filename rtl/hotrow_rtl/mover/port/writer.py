"""Row writer: complete rows to their destinations, many writes in flight."""

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...memory.axi import AXI4Write
from ...primitives.fifo import RamFifo
from .axi_write import RowWritePort
from .byte_aligner import ByteAligner
from .page_splitter import PageSplitter
from .payloads import arrived_copy, burst_end, read_end, source_word, writes_waiting


class RowWriter(wiring.Component):
    """Write rows that have been read; pass by those that could not.

    Parameters
    ----------
    config : Config

    Members
    -------
    rows : In(stream(arrived_copy(config)))
    words : In(stream(source_word(config)))
        The words of the rows without fault, in order.
    moves : Out(stream)
        Every row, in order: its `fault`, and whether it has `two_writes`.
    answers : Out(stream)
        The `fault` of each burst written, in order; while stopped TIMEOUT, again and again.
    bus : Out(AXI4Write)
    timeout, restart, idle, stopped : In, In, Out, Out
        As of `RowWritePort`.
    clear : In(1)
        Forget all but what is in flight on the bus: high from `restart` until `idle`.

    Timing
    ------
    Latency 3 cycles from source words to W; one destination word per cycle, see `ByteAligner`. In
    the steady state a row of w words takes at least (w + b + 2) / writes_waiting(config) cycles
    if B comes b cycles after the last W.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "rows": In(stream.Signature(arrived_copy(config))),
            "words": In(stream.Signature(source_word(config))),
            "moves": Out(stream.Signature(read_end())),
            "answers": Out(stream.Signature(burst_end())),
            "bus": Out(AXI4Write(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                 id_width=1)),
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
        moves = RamFifo(read_end(), writes_waiting(config))
        cutter, realigner = PageSplitter(config), ByteAligner(config)
        m.submodules.moves = cleared(moves)
        m.submodules.cutter = cleared(cutter)
        m.submodules.realigner = cleared(realigner)
        m.submodules.port = port = RowWritePort(config)

        # Both take a row in one cycle; one with a fault is not written. No queue lies in front
        # of the cutter, so that addresses are never behind the words.
        row = self.rows.p
        # The cutter is not asked about a row that it does not get: of one across two pages it
        # would wait for the first half to leave.
        cut = cutter.spans.ready | (row.fault != 0)
        m.d.comb += [
            self.rows.ready.eq(cut & moves.i.ready),
            cutter.spans.valid.eq(self.rows.valid & moves.i.ready & (row.fault == 0)),
            cutter.spans.p.address.eq(row.destination),
            cutter.spans.p.bytes.eq(row.bytes),
            cutter.spans.p.crosses.eq(row.two_writes),
            moves.i.valid.eq(self.rows.valid & cut),
            moves.i.p.fault.eq(row.fault),
            moves.i.p.two_writes.eq(row.two_writes),
        ]
        connect(m, cutter=cutter.bursts, port=port.bursts)
        connect(m, words=flipped(self.words), realigner=realigner.words)
        connect(m, realigner=realigner.aligned, port=port.words)
        connect(m, moves=moves.o, tracker=flipped(self.moves))
        connect(m, port=port.answers, tracker=flipped(self.answers))
        connect(m, flipped(self.bus), port.bus)
        m.d.comb += [
            port.timeout.eq(self.timeout),
            port.restart.eq(self.restart),
            self.idle.eq(port.idle),
            self.stopped.eq(port.stopped),
        ]
        return m
