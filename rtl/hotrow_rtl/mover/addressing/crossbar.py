"""Copy exchange: from the lanes that check copies to the row ports that carry them."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...primitives.fifo import RamFifo
from ...primitives.round_robin_arbiter import RoundRobinArbiter
from ...primitives.skid_buffer import SkidBuffer
from ..port.payloads import addressed_copy
from .port_interleave import row_port

# Copies from one lane that wait for one port. Random rows pile up before ports that each carry as
# much as a lane brings: with 8 they keep 0.94 of that rate, with 16 0.96, with 32 0.98.
QUEUE = 32


def copy_stream(config: Config) -> stream.Signature:
    """Copies as plain bits, as most of what they pass looks into few of their fields."""
    return stream.Signature(addressed_copy(config).size)


class CopySteering(wiring.Component):
    """Send each entry's copies to the port of its row in the table.

    Parameters
    ----------
    config : Config

    Members
    -------
    copies : In(copy_stream(config))
        Of each entry its row, then its state, if any; `last` on the final copy.
    to_tables : In(1)
        The table is the destination, else the source; stable while copies are inside.
    ports : Out(copy_stream(config)).array(config.row_ports)

    Timing
    ------
    Latency 1 cycle, throughput 1 copy per cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "copies": In(copy_stream(config)),
            "to_tables": In(1),
            "ports": Out(copy_stream(config)).array(config.row_ports),
        })

    def elaborate(self, platform):
        m = Module()
        copy = data.View(addressed_copy(self.config), self.copies.p)
        width, port_width = len(self.copies.p), log2(self.config.row_ports)
        m.submodules.skid = skid = SkidBuffer(width + port_width)
        begun, first, chosen = Signal(), Signal(port_width), Signal(port_width)
        row = Signal.like(copy.source)
        m.d.comb += [
            row.eq(Mux(self.to_tables, copy.destination, copy.source)),
            chosen.eq(Mux(begun, first, row_port(self.config, row))),
            skid.i.valid.eq(self.copies.valid),
            skid.i.p.eq(Cat(self.copies.p, chosen)),
            self.copies.ready.eq(skid.i.ready),
        ]
        with m.If(self.copies.valid & self.copies.ready):
            m.d.sync += [begun.eq(~copy.identity.last), first.eq(chosen)]

        port = skid.o.p[width:]
        m.d.comb += skid.o.ready.eq(Cat(out.ready for out in self.ports).bit_select(port, 1))
        for number, out in enumerate(self.ports):
            m.d.comb += [
                out.valid.eq(skid.o.valid & (port == number)),
                out.p.eq(skid.o.p[:width]),
            ]
        return m


class EntryTurns(wiring.Component):
    """Take entries from lanes in turn, each with all its copies.

    Parameters
    ----------
    config : Config

    Members
    -------
    lanes : In(copy_stream(config)).array(config.row_ports)
    copies : Out(copy_stream(config))

    Timing
    ------
    Latency 1 cycle, throughput 1 copy per cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "lanes": In(copy_stream(config)).array(config.row_ports),
            "copies": Out(copy_stream(config)),
        })

    def elaborate(self, platform):
        m = Module()
        count, width = len(self.lanes), len(self.copies.p)
        m.submodules.turns = turns = RoundRobinArbiter(count)
        m.submodules.skid = skid = SkidBuffer(width)
        inside, owner, chosen = Signal(), Signal(count), Signal(count)  # an entry has begun
        valids, taken = Cat(lane.valid for lane in self.lanes), Signal()
        copy = data.View(addressed_copy(self.config), skid.i.p)
        m.d.comb += [
            turns.requests.eq(valids),
            turns.accept.eq(taken & ~inside),
            chosen.eq(Mux(inside, owner, turns.grant)),
            skid.i.valid.eq((chosen & valids).any()),
            skid.i.p.eq(reduce(or_, (lane.p & chosen[number].replicate(width)
                                     for number, lane in enumerate(self.lanes)))),
            taken.eq(skid.i.valid & skid.i.ready),
            self.copies.valid.eq(skid.o.valid),
            self.copies.p.eq(skid.o.p),
            skid.o.ready.eq(self.copies.ready),
        ]
        for number, lane in enumerate(self.lanes):
            m.d.comb += lane.ready.eq(skid.i.ready & chosen[number])
        with m.If(taken):
            m.d.sync += [inside.eq(~copy.identity.last), owner.eq(chosen)]
        return m


class AddressCrossbar(wiring.Component):
    """Steer entries to row ports; entries of one lane and one port keep their order, no others do.

    Between each lane and each port lies a queue, so that a lane waits only for a port that is far
    behind the others.

    Parameters
    ----------
    config : Config

    Members
    -------
    lanes : In(copy_stream(config)).array(config.row_ports)
    ports : Out(copy_stream(config)).array(config.row_ports)
        The copies of one entry follow one another.
    to_tables : In(1)
        As of `CopySteering`.

    Timing
    ------
    Latency 4 cycles; throughput 1 copy per lane and port and cycle, for random rows 0.98 of it.
    """

    latency = CopySteering.latency + RamFifo.latency + EntryTurns.latency

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "lanes": In(copy_stream(config)).array(config.row_ports),
            "ports": Out(copy_stream(config)).array(config.row_ports),
            "to_tables": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        turns = [EntryTurns(self.config) for _ in self.ports]
        for number, (unit, port) in enumerate(zip(turns, self.ports)):
            m.submodules[f"turns_{number}"] = unit
            connect(m, turns=unit.copies, port=flipped(port))
        for number, lane in enumerate(self.lanes):
            m.submodules[f"steering_{number}"] = steering = CopySteering(self.config)
            connect(m, lane=flipped(lane), steering=steering.copies)
            m.d.comb += steering.to_tables.eq(self.to_tables)
            for port, unit in enumerate(turns):
                queue = RamFifo(len(lane.p), QUEUE)
                m.submodules[f"queue_{number}_{port}"] = queue
                connect(m, steering=steering.ports[port], queue=queue.i)
                connect(m, queue=queue.o, turns=unit.lanes[number])
        return m
