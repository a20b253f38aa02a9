"""AddressCrossbar: from the lanes that check addresses to the row ports."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...primitives.entry_arbiter import EntryArbiter
from ...primitives.fifo import RamFifo
from ...primitives.skid_buffer import SkidBuffer
from ..port.payloads import row_transfer
from .port_interleave import row_port

# Transfers from one lane that wait for one port. With random rows and ports that are as fast as the
# lanes, 8 keep 0.94 of the rate, 16 keep 0.96, 32 keep 0.98.
QUEUE = 32


class PortDemux(wiring.Component):
    """Send each entry's transfers to the port of its row in the table.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    transfers : In(stream(row_transfer(config)))
        Of each entry its row, then its state, if any; `last` marks the final transfer.
    to_tables : In(1)
        The table is the destination, else the source. Stable while transfers are inside.
    ports : Out(stream(row_transfer(config))).array(config.row_ports)

    Timing
    ------
    Latency 1 cycle, throughput 1 transfer per cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        transfers = stream.Signature(row_transfer(config))
        super().__init__({
            "transfers": In(transfers),
            "to_tables": In(1),
            "ports": Out(transfers).array(config.row_ports),
        })

    def elaborate(self, platform):
        m = Module()
        transfer, width = self.transfers.p, log2(self.config.row_ports)
        m.submodules.skid = skid = SkidBuffer(data.StructLayout({
            "transfer": transfer.shape(), "port": width}))
        inside, first_port, port = Signal(), Signal(width), Signal(width)
        row = Signal.like(transfer.source)
        m.d.comb += [
            row.eq(Mux(self.to_tables, transfer.destination, transfer.source)),
            port.eq(Mux(inside, first_port, row_port(self.config, row))),
            skid.i.valid.eq(self.transfers.valid),
            skid.i.p.transfer.eq(transfer),
            skid.i.p.port.eq(port),
            self.transfers.ready.eq(skid.i.ready),
        ]
        with m.If(self.transfers.valid & self.transfers.ready):
            m.d.sync += [inside.eq(~transfer.info.last), first_port.eq(port)]

        select = skid.o.p.port
        m.d.comb += skid.o.ready.eq(Cat(out.ready for out in self.ports).bit_select(select, 1))
        for number, out in enumerate(self.ports):
            m.d.comb += [
                out.valid.eq(skid.o.valid & (select == number)),
                out.p.eq(skid.o.p.transfer),
            ]
        return m


class AddressCrossbar(wiring.Component):
    """Route entries to row ports. The entries of one lane and one port stay in order.

    A queue per lane and port: a lane stalls only when one of its queues is full.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    lanes : In(stream(row_transfer(config))).array(config.row_ports)
    ports : Out(stream(row_transfer(config))).array(config.row_ports)
        The transfers of one entry are consecutive.
    to_tables : In(1)
        See `PortDemux`.

    Timing
    ------
    Latency 4 cycles; throughput 1 transfer per lane, port and cycle, 0.98 with random rows.
    """

    latency = PortDemux.latency + RamFifo.latency + EntryArbiter.latency

    def __init__(self, config: Config):
        self.config = config
        transfers = stream.Signature(row_transfer(config))
        super().__init__({
            "lanes": In(transfers).array(config.row_ports),
            "ports": Out(transfers).array(config.row_ports),
            "to_tables": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        arbiters = [EntryArbiter(row_transfer(self.config), len(self.lanes),
                                 lambda transfer: transfer.info.last) for _ in self.ports]
        for number, (arbiter, port) in enumerate(zip(arbiters, self.ports, strict=True)):
            m.submodules[f"arbiter_{number}"] = arbiter
            connect(m, arbiter=arbiter.transfers, port=flipped(port))
        for number, lane in enumerate(self.lanes):
            m.submodules[f"demux_{number}"] = demux = PortDemux(self.config)
            connect(m, lane=flipped(lane), demux=demux.transfers)
            m.d.comb += demux.to_tables.eq(self.to_tables)
            for port, arbiter in enumerate(arbiters):
                queue = RamFifo(row_transfer(self.config), QUEUE)
                m.submodules[f"queue_{number}_{port}"] = queue
                connect(m, demux=demux.ports[port], queue=queue.i)
                connect(m, queue=queue.o, arbiter=arbiter.lanes[number])
        return m
