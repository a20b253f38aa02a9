"""FillSource: answer the reads of a FILL with its pattern, without memory traffic."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...memory.axi import OKAY, AXI4Read
from .payloads import id_width


class FillSource(wiring.Component):
    """Connect a row reader to memory, or answer its reads with the pattern of a FILL.

    To the other units a FILL is a transfer whose source is its destination.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    reader : In(AXI4Read)
    memory : Out(AXI4Read)
    start : In(1)
        A pulse before each command's first read.
    fills : In(1)
        With `start`: the command is a FILL.
    pattern : In(32)
        The value of every 4 bytes. Stable during a FILL.
    idle : In(1)
        The reader has no read in flight. The unit switches only while `idle`: a reader that a
        time-out has stopped issues no reads.

    Timing
    ------
    Combinational from reader to memory and back. The first beat of a pattern comes in the cycle
    after the read's handshake, the others without a gap.
    """

    def __init__(self, config: Config):
        self.config = config
        bus = AXI4Read(address_width=config.address_width, bus_bytes=config.bus_bytes,
                       id_width=id_width(config))
        super().__init__({
            "reader": In(bus),
            "memory": Out(bus),
            "start": In(1),
            "fills": In(1),
            "pattern": In(32),
            "idle": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        reader, memory = self.reader, self.memory
        filling = Signal()
        busy, burst_id, beats_left = Signal(), Signal.like(reader.arid), Signal(8)
        ready, fire = Signal(), Signal()
        with m.If(self.start & self.idle):
            m.d.sync += filling.eq(self.fills)
        m.d.comb += [
            *(getattr(memory, name).eq(getattr(reader, name))
              for name in ("arid", "araddr", "arlen", "arsize", "arburst", "rready")),
            memory.arvalid.eq(reader.arvalid & ~filling),
            ready.eq(~busy | reader.rready & (beats_left == 0)),
            fire.eq(reader.arvalid & filling & ready),
            reader.arready.eq(Mux(filling, ready, memory.arready)),
            reader.rvalid.eq(Mux(filling, busy, memory.rvalid)),
            reader.rid.eq(Mux(filling, burst_id, memory.rid)),
            reader.rlast.eq(Mux(filling, beats_left == 0, memory.rlast)),
            reader.rresp.eq(Mux(filling, OKAY, memory.rresp)),
            reader.rdata.eq(Mux(
                filling, self.pattern.replicate(self.config.word_lanes), memory.rdata)),
        ]
        with m.If(fire):
            m.d.sync += [busy.eq(1), burst_id.eq(reader.arid), beats_left.eq(reader.arlen)]
        with m.Elif(busy & reader.rready):
            m.d.sync += [busy.eq(beats_left != 0), beats_left.eq(beats_left - 1)]
        return m
