"""Fill reads: answer the reads of a FILL with its pattern, so that memory is not asked."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...memory.axi import OKAY, AXI4Read
from .payloads import tag


class FillSource(wiring.Component):
    """Lie between a row reader and memory, and take memory's place during a FILL.

    The reader, and all behind it, need not know: a FILL is a copy from its destination.

    Parameters
    ----------
    config : Config

    Members
    -------
    reader : In(AXI4Read)
    memory : Out(AXI4Read)
    start : In(1)
        A pulse before each command's first read.
    fills : In(1)
        With `start`: the command is a FILL.
    pattern : In(32)
        What every 4 bytes are, stable during a FILL.
    idle : In(1)
        The reader has no read in flight. Without it, behind a time-out, who answers stays as it
        is: the reader asks for nothing more.

    Timing
    ------
    No latency on the way to memory and back. The first beat of a pattern comes the cycle after the
    read was taken, the others without a gap.
    """

    def __init__(self, config: Config):
        self.config = config
        bus = AXI4Read(address_width=config.address_width, bus_bytes=config.bus_bytes,
                       id_width=tag(config))
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
        answers = Signal()  # reads are answered here
        busy, number, behind = Signal(), Signal.like(reader.arid), Signal(8)  # of a burst
        free, taken = Signal(), Signal()
        with m.If(self.start & self.idle):
            m.d.sync += answers.eq(self.fills)
        m.d.comb += [
            *(getattr(memory, name).eq(getattr(reader, name))
              for name in ("arid", "araddr", "arlen", "arsize", "arburst", "rready")),
            memory.arvalid.eq(reader.arvalid & ~answers),
            free.eq(~busy | reader.rready & (behind == 0)),
            taken.eq(reader.arvalid & answers & free),
            reader.arready.eq(Mux(answers, free, memory.arready)),
            reader.rvalid.eq(Mux(answers, busy, memory.rvalid)),
            reader.rid.eq(Mux(answers, number, memory.rid)),
            reader.rlast.eq(Mux(answers, behind == 0, memory.rlast)),
            reader.rresp.eq(Mux(answers, OKAY, memory.rresp)),
            reader.rdata.eq(Mux(answers, self.pattern.replicate(self.config.lanes), memory.rdata)),
        ]
        with m.If(taken):
            m.d.sync += [busy.eq(1), number.eq(reader.arid), behind.eq(reader.arlen)]
        with m.Elif(busy & reader.rready):
            m.d.sync += [busy.eq(behind != 0), behind.eq(behind - 1)]
        return m
