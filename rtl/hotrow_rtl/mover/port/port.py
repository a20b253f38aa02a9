"""RowPort: one AXI4 read and one write bus, and the transfers between them."""

from amaranth import Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...memory.axi import AXI4Read, AXI4Write
from ...primitives.fifo import RamFifo
from ...primitives.stream_routing import fork, stream_connect
from .fill_source import FillSource
from .payloads import (
    burst_response,
    computed_row,
    fetched_row,
    finished_transfer,
    id_width,
    read_response,
    row_transfer,
    source_word,
    transfer_info,
    transfers_in_flight,
)
from .reader import RowReader
from .writer import RowWriter


class WriteTracker(wiring.Component):
    """Report when each transfer has landed or failed.

    Attributes
    ----------
    infos : In(stream(transfer_info()))
        Every transfer, in order.
    read_responses : In(stream(read_response()))
        Of every transfer, in order.
    write_responses : In(stream(burst_response()))
        Of each write burst. A transfer with a read fault has no write burst.
    finished : Out(finished_transfer())
        Every transfer, in order, after its last write response.

    Timing
    ------
    Throughput 1 transfer per cycle.
    """

    infos: In(stream.Signature(transfer_info()))
    read_responses: In(stream.Signature(read_response()))
    write_responses: In(stream.Signature(burst_response()))
    finished: Out(finished_transfer())

    def elaborate(self, platform):
        m = Module()
        read, write, finished = self.read_responses.p, self.write_responses, self.finished
        half, half_fault = Signal(), Signal(2)  # of two writes the first has a response
        valid = self.read_responses.valid & self.infos.valid
        read_failed = read.fault != 0
        first_of_two = valid & ~read_failed & read.two_writes & ~half
        m.d.comb += [
            finished.valid.eq(valid & (read_failed | (write.valid & ~first_of_two))),
            finished.written.eq(~read_failed),
            finished.fault.eq(Mux(read_failed, read.fault, Mux(
                half & (half_fault > write.p.fault), half_fault, write.p.fault))),
            finished.info.eq(self.infos.p),
            write.ready.eq(valid & ~read_failed),
            self.read_responses.ready.eq(finished.valid),
            self.infos.ready.eq(finished.valid),
        ]
        with m.If(first_of_two & write.valid):
            m.d.sync += [half.eq(1), half_fault.eq(write.p.fault)]
        with m.Elif(finished.valid):
            m.d.sync += half.eq(0)
        return m


class RowPort(wiring.Component):
    """Carry out transfers through memory, and report when each has landed or failed.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    transfers : In(stream(row_transfer(config)))
    finished : Out(finished_transfer())
        Every transfer, or with `bags` every computed row, in order.
    bags : In(1)
        Transfers are only read, and leave as `read_rows` and `read_words`, see `RowReader`; the
        port writes `computed_rows` instead. Stable while transfers are inside.
    computed_rows : In(stream(computed_row(config)))
    computed_words : In(stream(source_word(config)))
        See `RowWriter`.
    start, fills, pattern : In
        See `FillSource`.
    read_bus : Out(AXI4Read)
        `outstanding` ids, responses in any order.
    write_bus : Out(AXI4Write)
        One id.
    timeout, restart : In
        See `RowMover`.
    clear : In(1)
        Clear everything but the bursts on the buses: high from `restart` until `idle`.
    idle : Out(1)
        Nothing is in flight, or only on halves that have stopped.
    read_stopped, write_stopped : Out(1)

    Timing
    ------
    See `RowReader` and `RowWriter`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "transfers": In(stream.Signature(row_transfer(config))),
            "finished": Out(finished_transfer()),
            **({
                "bags": In(1),
                "read_rows": Out(stream.Signature(fetched_row(config))),
                "read_words": Out(stream.Signature(source_word(config))),
                "computed_rows": In(stream.Signature(computed_row(config))),
                "computed_words": In(stream.Signature(source_word(config))),
            } if config.arithmetic else {}),
            "start": In(1),
            "fills": In(1),
            "pattern": In(32),
            "read_bus": Out(AXI4Read(address_width=config.address_width,
                                     bus_bytes=config.bus_bytes, id_width=id_width(config))),
            "write_bus": Out(AXI4Write(address_width=config.address_width,
                                       bus_bytes=config.bus_bytes, id_width=1)),
            "timeout": In(32),
            "restart": In(1),
            "clear": In(1),
            "idle": Out(1),
            "read_stopped": Out(1),
            "write_stopped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        cleared = ResetInserter(self.clear)
        infos = RamFifo(transfer_info(), transfers_in_flight(config), block=True)
        tracker = WriteTracker()
        m.submodules.infos = cleared(infos)
        m.submodules.reader = reader = RowReader(config)
        m.submodules.fill_source = fill_source = FillSource(config)
        m.submodules.writer = writer = RowWriter(config)
        m.submodules.tracker = cleared(tracker)

        m.d.comb += reader.transfers.p.eq(self.transfers.p)
        with m.If(self.bags if config.arithmetic else 0):
            if config.arithmetic:
                m.d.comb += [
                    reader.transfers.valid.eq(self.transfers.valid),
                    self.transfers.ready.eq(reader.transfers.ready),
                    writer.rows.p.eq(self.computed_rows.p.row),
                    infos.i.p.eq(self.computed_rows.p.info),
                ]
                stream_connect(m, reader.rows, self.read_rows)
                stream_connect(m, reader.words, self.read_words)
                stream_connect(m, self.computed_words, writer.words)
                fork(m, self.computed_rows, writer.rows, infos.i)
        with m.Else():
            fork(m, self.transfers, reader.transfers, infos.i)
            m.d.comb += infos.i.p.eq(self.transfers.p.info)
            stream_connect(m, reader.rows, writer.rows)
            stream_connect(m, reader.words, writer.words)
        connect(m, reader=reader.bus, fill_source=fill_source.reader)
        connect(m, fill_source.memory, flipped(self.read_bus))
        connect(m, writer.bus, flipped(self.write_bus))
        connect(m, infos=infos.o, tracker=tracker.infos)
        connect(m, writer=writer.read_responses, tracker=tracker.read_responses)
        connect(m, writer=writer.write_responses, tracker=tracker.write_responses)
        m.d.comb += [
            fill_source.start.eq(self.start),
            fill_source.fills.eq(self.fills),
            fill_source.pattern.eq(self.pattern),
            fill_source.idle.eq(reader.idle),
            self.finished.eq(tracker.finished),
            self.idle.eq((reader.idle | reader.stopped) & (writer.idle | writer.stopped)),
            self.read_stopped.eq(reader.stopped),
            self.write_stopped.eq(writer.stopped),
        ]
        for half in (reader, writer):
            m.d.comb += [
                half.timeout.eq(self.timeout),
                half.restart.eq(self.restart),
                half.clear.eq(self.clear),
            ]
        return m
