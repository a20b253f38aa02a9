"""RowWriter: write complete rows, with many writes in flight."""

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...memory.axi import AXI4Write
from ...primitives.fifo import RamFifo
from .axi_write import RowWritePort
from .byte_aligner import ByteAligner
from .page_splitter import PageSplitter
from .payloads import burst_response, fetched_row, pending_writes, read_response, source_word


class RowWriter(wiring.Component):
    """Write the rows that were read without a fault.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    rows : In(stream(fetched_row(config)))
    words : In(stream(source_word(config)))
        The words of the rows without a fault, in order.
    read_responses : Out(stream(read_response()))
        Of every row, in order.
    write_responses : Out(stream(burst_response()))
        Of each write burst, in order; TIMEOUT in every cycle while stopped.
    bus : Out(AXI4Write)
    timeout, restart, idle, stopped : In, In, Out, Out
        See `RowWritePort`.
    clear : In(1)
        Clear everything but the bursts on the bus: high from `restart` until `idle`.

    Timing
    ------
    Latency 3 cycles from source words to W; one destination word per cycle, see `ByteAligner`. If B
    comes b cycles after the last W, a row of w words takes at least
    (w + b + 2) / pending_writes(config) cycles in the steady state.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "rows": In(stream.Signature(fetched_row(config))),
            "words": In(stream.Signature(source_word(config))),
            "read_responses": Out(stream.Signature(read_response())),
            "write_responses": Out(stream.Signature(burst_response())),
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
        responses = RamFifo(read_response(), pending_writes(config))
        splitter, aligner = PageSplitter(config), ByteAligner(config)
        m.submodules.responses = cleared(responses)
        m.submodules.splitter = cleared(splitter)
        m.submodules.aligner = cleared(aligner)
        m.submodules.port = port = RowWritePort(config)

        # A row enters `splitter` and `responses` in the same cycle. No queue precedes the splitter,
        # so that a burst is never later than its words. A row with a fault skips the splitter: its
        # `ready` would stay low for a row across two pages until the first half leaves.
        row = self.rows.p
        splitter_ready = splitter.ranges.ready | (row.fault != 0)
        m.d.comb += [
            self.rows.ready.eq(splitter_ready & responses.i.ready),
            splitter.ranges.valid.eq(self.rows.valid & responses.i.ready & (row.fault == 0)),
            splitter.ranges.p.address.eq(row.destination),
            splitter.ranges.p.bytes.eq(row.bytes),
            splitter.ranges.p.crosses.eq(row.two_writes),
            responses.i.valid.eq(self.rows.valid & splitter_ready),
            responses.i.p.fault.eq(row.fault),
            responses.i.p.two_writes.eq(row.two_writes),
        ]
        connect(m, splitter=splitter.bursts, port=port.bursts)
        connect(m, words=flipped(self.words), aligner=aligner.words)
        connect(m, aligner=aligner.aligned, port=port.words)
        connect(m, responses=responses.o, tracker=flipped(self.read_responses))
        connect(m, port=port.responses, tracker=flipped(self.write_responses))
        connect(m, flipped(self.bus), port.bus)
        m.d.comb += [
            port.timeout.eq(self.timeout),
            port.restart.eq(self.restart),
            self.idle.eq(port.idle),
            self.stopped.eq(port.stopped),
        ]
        return m
