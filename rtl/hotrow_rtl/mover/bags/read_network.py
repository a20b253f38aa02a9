"""The reads of several bag units: to the row ports with reservations, and back to their units."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...primitives.fifo import RamFifo
from ..port.payloads import fetched_row, row_transfer, source_word, transfers_in_flight
from .payloads import return_words, returning_read


class ReadCredits(wiring.Component):
    """Send the reads of one unit once all their words have space where they return.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    unit : In(range(config.bag_units))
        Constant.
    transfers : In(stream(row_transfer(config))).array(config.row_ports)
        The reads of each port, at most one of them valid.
    sent : Out(stream(row_transfer(config)))
        Each an entry of its own, with a `returning_read` as its index.
    freed : In(range(return_words(config) + 2)).array(config.row_ports)
        Words that the unit has taken from the queue of each port.

    Timing
    ------
    Combinational from transfers to `sent`; a word taken from a queue is free in the next cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "unit": In(range(config.bag_units)),
            "transfers": In(stream.Signature(row_transfer(config))).array(config.row_ports),
            "sent": Out(stream.Signature(row_transfer(config))),
            "freed": In(range(return_words(config) + 2)).array(config.row_ports),
        })

    def elaborate(self, platform):
        m = Module()
        config, sent = self.config, self.sent
        first, info = self.transfers[0].p, Signal(returning_read(config))  # all payloads are equal
        word = log2(config.bus_bytes)
        m.d.comb += [
            info.unit.eq(self.unit),
            info.words.eq((first.source[:word] + first.info.bytes + config.bus_bytes - 1) >> word),
            sent.p.eq(first),
            sent.p.info.index.eq(info.as_value()),
            sent.p.info.last.eq(1),
        ]
        offered = []
        for port, one in enumerate(self.transfers):
            credit = Signal(range(return_words(config) + 1), init=return_words(config),
                            name=f"credit{port}")
            enough = Signal(name=f"enough{port}")
            m.d.comb += [enough.eq(credit >= info.words), one.ready.eq(enough & sent.ready)]
            offered.append(one.valid & enough)
            taken = Mux(one.valid & one.ready, info.words, 0)
            m.d.sync += credit.eq(credit - taken + self.freed[port])
        m.d.comb += sent.valid.eq(Cat(offered).any())
        return m


class ReadReturn(wiring.Component):
    """Give the rows that one port has read to their units, in the order of each unit's reads.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    sent : In(stream(row_transfer(config)))
        From `ReadCredits` of all units.
    transfers : Out(stream(row_transfer(config)))
        For the port.
    rows : In(stream(fetched_row(config)))
    words : In(stream(source_word(config)))
        From the port. Both are accepted at once, as their words have been reserved.
    unit_rows : Out(stream(fetched_row(config))).array(config.bag_units)
    unit_words : Out(stream(source_word(config))).array(config.bag_units)
        Of a row only the fault is set.
    freed : Out(range(return_words(config) + 2)).array(config.bag_units)
        Words taken by each unit, those of rows with a fault included.

    Timing
    ------
    Latency 2 cycles from words to units, one word per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        units = config.bag_units
        super().__init__({
            "sent": In(stream.Signature(row_transfer(config))),
            "transfers": Out(stream.Signature(row_transfer(config))),
            "rows": In(stream.Signature(fetched_row(config))),
            "words": In(stream.Signature(source_word(config))),
            "unit_rows": Out(stream.Signature(fetched_row(config))).array(units),
            "unit_words": Out(stream.Signature(source_word(config))).array(units),
            "freed": Out(range(return_words(config) + 2)).array(units),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        depth = return_words(config)
        returned = data.StructLayout({"fault": 2, "words": range(depth + 1)})
        m.submodules.owners = owners = RamFifo(
            returning_read(config), transfers_in_flight(config))
        m.d.comb += [
            self.sent.ready.eq(self.transfers.ready & owners.i.ready),
            self.transfers.valid.eq(self.sent.valid & owners.i.ready),
            self.transfers.p.eq(self.sent.p),
            owners.i.valid.eq(self.sent.valid & self.transfers.ready),
            owners.i.p.eq(self.sent.p.info.index),
        ]
        # The words of a row begin in the cycle after its handshake, and end no later than that of
        # the next row.
        owner, unit = owners.o.p, Signal(range(config.bag_units))
        m.d.comb += [
            self.rows.ready.eq(owners.o.valid),
            owners.o.ready.eq(self.rows.valid),
            self.words.ready.eq(1),
        ]
        with m.If(self.rows.valid & self.rows.ready):
            m.d.sync += unit.eq(owner.unit)
        for number in range(config.bag_units):
            rows = RamFifo(returned, depth)
            words = RamFifo(source_word(config), depth)
            m.submodules[f"rows_{number}"] = rows
            m.submodules[f"words_{number}"] = words
            out, taken, failed = self.unit_rows[number], Signal(), Signal()
            m.d.comb += [
                rows.i.valid.eq(self.rows.valid & self.rows.ready & (owner.unit == number)),
                rows.i.p.fault.eq(self.rows.p.fault),
                rows.i.p.words.eq(owner.words),
                words.i.valid.eq(self.words.valid & (unit == number)),
                words.i.p.eq(self.words.p),
                out.valid.eq(rows.o.valid),
                out.p.fault.eq(rows.o.p.fault),
                rows.o.ready.eq(out.ready),
                failed.eq(rows.o.valid & rows.o.ready & (rows.o.p.fault != 0)),
                taken.eq(words.o.valid & words.o.ready),
            ]
            connect(m, words=words.o, unit=flipped(self.unit_words[number]))
            m.d.sync += self.freed[number].eq(taken + Mux(failed, rows.o.p.words, 0))
        return m
