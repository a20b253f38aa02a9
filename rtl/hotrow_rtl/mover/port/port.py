"""Row port: one AXI4 read and one write bus, and what carries copies from one to the other."""

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...memory.axi import AXI4Read, AXI4Write
from ...primitives.fifo import RamFifo
from ...primitives.stream_routing import fork, stream_connect
from .fill_source import FillSource
from .payloads import (
    addressed_copy,
    arrived_copy,
    copies_in_flight,
    copy_identity,
    ended_copy,
    made_row,
    source_word,
    tag,
)
from .reader import RowReader
from .write_tracker import WriteTracker
from .writer import RowWriter


class RowPort(wiring.Component):
    """Carry copies through memory, and tell when each has landed or failed.

    Parameters
    ----------
    config : Config

    Members
    -------
    copies : In(stream(addressed_copy(config)))
    ended : Out(ended_copy())
        Every copy, in order, or every row that is made.
    bags : In(1)
        Copies are only read, and leave as `read_rows` and `read_words`, as of `RowReader`; what is
        written are the rows `made`. Stable while any is inside.
    made : In(stream(made_row(config)))
    made_words : In(stream(source_word(config)))
        As of `RowWriter`.
    start, fills, pattern : In
        As of `FillSource`.
    read_bus : Out(AXI4Read)
        `outstanding` ids, answers in any order.
    write_bus : Out(AXI4Write)
        One id.
    timeout, restart : In
        As of `RowMover`.
    clear : In(1)
        Forget all but what is in flight on the buses: high from `restart` until `idle`.
    idle : Out(1)
        Nothing is in flight.
    read_stopped, write_stopped : Out(1)

    Timing
    ------
    See `RowReader` and `RowWriter`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "copies": In(stream.Signature(addressed_copy(config))),
            "ended": Out(ended_copy()),
            **({
                "bags": In(1),
                "read_rows": Out(stream.Signature(arrived_copy(config))),
                "read_words": Out(stream.Signature(source_word(config))),
                "made": In(stream.Signature(made_row(config))),
                "made_words": In(stream.Signature(source_word(config))),
            } if config.arithmetic else {}),
            "start": In(1),
            "fills": In(1),
            "pattern": In(32),
            "read_bus": Out(AXI4Read(address_width=config.address_width,
                                     bus_bytes=config.bus_bytes, id_width=tag(config))),
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
        identities = RamFifo(copy_identity(), copies_in_flight(config))
        tracker = WriteTracker()
        m.submodules.identities = cleared(identities)
        m.submodules.reader = reader = RowReader(config)
        m.submodules.fill_reads = fill_reads = FillSource(config)
        m.submodules.writer = writer = RowWriter(config)
        m.submodules.tracker = cleared(tracker)

        m.d.comb += reader.copies.p.eq(self.copies.p)
        with m.If(self.bags if config.arithmetic else 0):
            if config.arithmetic:
                m.d.comb += [
                    reader.copies.valid.eq(self.copies.valid),
                    self.copies.ready.eq(reader.copies.ready),
                    writer.rows.p.eq(self.made.p.row),
                    identities.i.p.eq(self.made.p.identity),
                ]
                stream_connect(m, reader.rows, self.read_rows)
                stream_connect(m, reader.words, self.read_words)
                stream_connect(m, self.made_words, writer.words)
                fork(m, self.made, writer.rows, identities.i)
        with m.Else():
            fork(m, self.copies, reader.copies, identities.i)
            m.d.comb += identities.i.p.eq(self.copies.p.identity)
            stream_connect(m, reader.rows, writer.rows)
            stream_connect(m, reader.words, writer.words)
        connect(m, reader=reader.bus, fill_reads=fill_reads.reader)
        connect(m, fill_reads.memory, flipped(self.read_bus))
        connect(m, writer.bus, flipped(self.write_bus))
        connect(m, identities=identities.o, tracker=tracker.identities)
        connect(m, writer=writer.moves, tracker=tracker.moves)
        connect(m, writer=writer.answers, tracker=tracker.answers)
        m.d.comb += [
            fill_reads.start.eq(self.start),
            fill_reads.fills.eq(self.fills),
            fill_reads.pattern.eq(self.pattern),
            fill_reads.idle.eq(reader.idle),
            self.ended.eq(tracker.ended),
            self.idle.eq(reader.idle & writer.idle),
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
