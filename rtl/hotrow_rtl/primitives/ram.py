"""Memories with one write and one read port, emitted as instances of one small Verilog module.

Amaranth's own memory writes an initial value for every row into the Verilog: megabytes of text
and minutes of conversion for the tables here. `Ram` behaves the same in Amaranth's simulator and
becomes an instance of `hotrow_ram` (see ``emit``) for any platform that carries `ram_instances`.
"""

from amaranth import Cat, ClockSignal, Instance, Module, Mux, Signal
from amaranth.hdl import Shape
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

RAM_MODULE = "hotrow_ram"
RAM_VERILOG = f"""\
module {RAM_MODULE} #(
  parameter WIDTH = 1, parameter DEPTH = 2, parameter ADDRESS = 1, parameter READS_OLD = 0,
  parameter PARTS = 1, parameter STYLE = "auto"
) (
  input clk,
  input [PARTS-1:0] write_enable,
  input [ADDRESS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input read_enable,
  input read_clear,
  input [ADDRESS-1:0] read_address,
  output reg [WIDTH-1:0] read_data
);
  localparam PART = WIDTH / PARTS;
  integer part;
  generate
    if (READS_OLD) begin : exact
      (* ram_style = STYLE *) reg [WIDTH-1:0] rows [DEPTH-1:0];
      always @(posedge clk) begin
        for (part = 0; part < PARTS; part = part + 1)
          if (write_enable[part])
            rows[write_address][part*PART +: PART] <= write_data[part*PART +: PART];
        if (read_enable)
          if (read_clear) read_data <= 0;
          else read_data <= rows[read_address];
      end
    end else begin : loose
      (* no_rw_check, ram_style = STYLE *) reg [WIDTH-1:0] rows [DEPTH-1:0];
      always @(posedge clk) begin
        for (part = 0; part < PARTS; part = part + 1)
          if (write_enable[part])
            rows[write_address][part*PART +: PART] <= write_data[part*PART +: PART];
        if (read_enable)
          if (read_clear) read_data <= 0;
          else read_data <= rows[read_address];
      end
    end
  endgenerate
endmodule
"""


class Ram(wiring.Component):
    """Rows of one shape; contents undefined until written.

    Parameters
    ----------
    shape : ShapeCastable
    depth : int
        Rows, at least 2.
    reads_old : bool
        A read of the row that is written in the same cycle returns its former contents. Beside
        a block RAM that takes logic; without, such a read is undefined.
    parts : int
        Equal parts of a row that are written apart, as the byte enables of block RAMs do it: of
        nine bits each, so that parts of so many lose nothing.
    block : bool
        In block RAM however few the rows are: those to spare cost less than logic.

    Members
    -------
    write_enable : In(parts)
    write_address, write_data : In
    read_enable, read_address : In
    read_clear : In(1)
        Read zero instead.
    read_data : Out(shape)
        Holds its value while `read_enable` is low.

    Timing
    ------
    Read latency 1 cycle; one read and one write per cycle.
    """

    def __init__(self, shape, depth, *, reads_old=False, parts=1, block=False):
        if depth < 2:
            raise ValueError(f"a memory needs at least 2 rows, not {depth}")
        self._width = Shape.cast(shape).width
        if self._width % parts:
            raise ValueError(f"{self._width} bits have no {parts} equal parts")
        self.shape, self.depth, self.reads_old, self.parts = shape, depth, reads_old, parts
        self.block = block
        super().__init__({
            "write_enable": In(parts),
            "write_address": In(range(depth)),
            "write_data": In(shape),
            "read_enable": In(1, init=1),
            "read_address": In(range(depth)),
            "read_clear": In(1),
            "read_data": Out(shape),
        })

    def elaborate(self, platform):
        m = Module()
        if getattr(platform, "ram_instances", False):
            flat = Signal(self._width)
            m.submodules.rows = Instance(
                RAM_MODULE,
                p_WIDTH=len(flat), p_DEPTH=self.depth, p_ADDRESS=len(self.read_address),
                p_READS_OLD=int(self.reads_old), p_PARTS=self.parts,
                p_STYLE="block" if self.block else "auto",
                i_clk=ClockSignal(),
                i_write_enable=self.write_enable, i_write_address=self.write_address,
                i_write_data=Cat(self.write_data),
                i_read_enable=self.read_enable, i_read_clear=self.read_clear,
                i_read_address=self.read_address,
                o_read_data=flat,
            )
            m.d.comb += Cat(self.read_data).eq(flat)
            return m
        m.submodules.rows = rows = memory.Memory(
            shape=self._width, depth=self.depth, init=[])
        write = rows.write_port(granularity=self._width // self.parts)
        read = rows.read_port()
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(Cat(self.write_data)),
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_address),
        ]
        # What is undefined comes out inverted, so that a test sees who relies on it.
        collided, cleared = Signal(), Signal()
        with m.If(self.read_enable):
            m.d.sync += [
                collided.eq(self.write_enable.any() & (self.write_address == self.read_address)
                            & (not self.reads_old)),
                cleared.eq(self.read_clear),
            ]
        m.d.comb += Cat(self.read_data).eq(
            Mux(cleared, 0, Mux(collided, ~read.data, read.data)))
        return m


class ClearedRam(wiring.Component):
    """A `Ram` that writes zero to every row after reset, and again on request.

    Parameters
    ----------
    As of `Ram`. Of one in `parts` the user sees to it that `write_data` is zero while `ready` is
    low: it has registers there to reset, and no gates are spent on every bit.

    Members
    -------
    The members of `Ram`, and:

    clear : In(1)
        A pulse starts another sweep.
    ready : Out(1)
        Low during a sweep; writes are then ignored and reads undefined.

    Timing
    ------
    A sweep takes `depth` cycles; otherwise as `Ram`.
    """

    def __init__(self, shape, depth, *, reads_old=False, parts=1):
        self.shape, self.depth, self.reads_old, self.parts = shape, depth, reads_old, parts
        super().__init__({
            "write_enable": In(parts),
            "write_address": In(range(depth)),
            "write_data": In(shape),
            "read_enable": In(1, init=1),
            "read_address": In(range(depth)),
            "read_data": Out(shape),
            "clear": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(
            self.shape, self.depth, reads_old=self.reads_old, parts=self.parts)
        at = Signal(range(self.depth))
        m.d.comb += [
            ram.write_enable.eq(self.write_enable),
            ram.write_address.eq(self.write_address),
            Cat(ram.write_data).eq(Cat(self.write_data)),
            ram.read_enable.eq(self.read_enable),
            ram.read_address.eq(self.read_address),
            Cat(self.read_data).eq(Cat(ram.read_data)),
        ]
        with m.If(~self.ready):
            m.d.comb += [
                ram.write_enable.eq(~0),
                ram.write_address.eq(at),
            ]
            if self.parts == 1:
                m.d.comb += Cat(ram.write_data).eq(0)
            m.d.sync += [at.eq(at + 1), self.ready.eq(at == self.depth - 1)]
        with m.Elif(self.clear):
            m.d.sync += [at.eq(0), self.ready.eq(0)]
        return m
