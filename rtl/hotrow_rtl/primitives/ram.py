"""Memories with one write and one read port, emitted as instances of one small Verilog module.

Amaranth's own memory writes an initial value for every row into the Verilog: megabytes of text
and minutes of conversion for the tables of a card. `Ram` behaves the same in Amaranth's simulator;
on a platform with `ram_instances` (see ``emit``) it is an instance of `hotrow_ram`.
"""

from amaranth import ClockSignal, Const, Instance, Module, Mux, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

RAM_MODULE = "hotrow_ram"
# Once for all texts of a design that have it.
RAM_VERILOG = f"""\
`ifndef HOTROW_RAM
`define HOTROW_RAM
module {RAM_MODULE} #(
  parameter WIDTH = 1, parameter DEPTH = 2, parameter ADDRESS = 1, parameter READS_OLD = 0,
  parameter CLEARS = 0, parameter PARTS = 1, parameter STYLE = "auto"
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
          if (CLEARS != 0 && read_clear) read_data <= 0;
          else read_data <= rows[read_address];
      end
    end else begin : loose
      (* no_rw_check, ram_style = STYLE *) reg [WIDTH-1:0] rows [DEPTH-1:0];
      always @(posedge clk) begin
        for (part = 0; part < PARTS; part = part + 1)
          if (write_enable[part])
            rows[write_address][part*PART +: PART] <= write_data[part*PART +: PART];
        if (read_enable)
          if (CLEARS != 0 && read_clear) read_data <= 0;
          else read_data <= rows[read_address];
      end
    end
  endgenerate
endmodule
`endif
"""


class Ram(wiring.Component):
    """Rows of one shape; contents undefined until written.

    Parameters
    ----------
    shape : ShapeCastable
    depth : int
        Rows, at least 2.
    reads_old : bool
        A read of the row that is written in the same cycle returns its previous contents. Block
        RAMs need extra logic for that; without it such a read is undefined.
    clears : bool
        There is a port `read_clear`. LUT memory needs a LUT for each bit of it.
    parts : int
        Equal parts of a row with a write enable each. Block RAMs have one per 9 bits.
    block : bool
        Use block RAM even for few rows.

    Attributes
    ----------
    write_enable : In(parts)
    write_address, write_data : In
    read_enable, read_address : In
    read_clear : In(1)
        The read returns zero. Only with `clears`.
    read_data : Out(shape)
        Keeps its value while `read_enable` is low.

    Timing
    ------
    Read latency 1 cycle; one read and one write per cycle.
    """

    def __init__(self, shape, depth, *, reads_old=False, clears=False, parts=1, block=False):
        if depth < 2:
            raise ValueError(f"a memory needs at least 2 rows, not {depth}")
        self._width = Shape.cast(shape).width
        if self._width % parts:
            raise ValueError(f"{self._width} bits have no {parts} equal parts")
        self.shape, self.depth, self.reads_old, self.parts = shape, depth, reads_old, parts
        self.block, self.clears = block, clears
        super().__init__({
            "write_enable": In(parts),
            "write_address": In(range(depth)),
            "write_data": In(shape),
            "read_enable": In(1, init=1),
            "read_address": In(range(depth)),
            **({"read_clear": In(1)} if clears else {}),
            "read_data": Out(shape),
        })

    def elaborate(self, platform):
        m = Module()
        read_clear = self.read_clear if self.clears else Const(0)
        if getattr(platform, "ram_instances", False):
            read_data = Signal(self._width)
            m.submodules.rows = Instance(
                RAM_MODULE,
                p_WIDTH=self._width, p_DEPTH=self.depth, p_ADDRESS=len(self.read_address),
                p_READS_OLD=int(self.reads_old), p_CLEARS=int(self.clears), p_PARTS=self.parts,
                p_STYLE="block" if self.block else "auto",
                i_clk=ClockSignal(),
                i_write_enable=self.write_enable, i_write_address=self.write_address,
                i_write_data=Value.cast(self.write_data),
                i_read_enable=self.read_enable, i_read_clear=read_clear,
                i_read_address=self.read_address,
                o_read_data=read_data,
            )
            m.d.comb += Value.cast(self.read_data).eq(read_data)
            return m
        m.submodules.rows = rows = memory.Memory(
            shape=self._width, depth=self.depth, init=[])
        write = rows.write_port(granularity=self._width // self.parts)
        read = rows.read_port()
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_address),
        ]
        # Undefined data is returned inverted, so that a test fails if a unit uses it.
        collided, cleared = Signal(), Signal()
        with m.If(self.read_enable):
            m.d.sync += [
                collided.eq(self.write_enable.any() & (self.write_address == self.read_address)
                            & (not self.reads_old)),
                cleared.eq(read_clear),
            ]
        m.d.comb += Value.cast(self.read_data).eq(
            Mux(cleared, 0, Mux(collided, ~read.data, read.data)))
        return m


class ClearedRam(wiring.Component):
    """A `Ram` that writes zero to every row after reset, and again on request.

    Parameters
    ----------
    shape, depth, reads_old, parts, block
        See `Ram`. With several `parts` the user holds `write_data` at zero while `ready` is low,
        which saves a gate for each bit.
    valid_only : bool
        Clear only the field `valid` of each row.

    Attributes
    ----------
    write_enable, write_address, write_data, read_enable, read_address, read_data
        See `Ram`.
    clear : In(1)
        A pulse starts another sweep.
    ready : Out(1)
        Low during a sweep; writes are then ignored and reads undefined.

    Timing
    ------
    A sweep takes `depth` cycles; otherwise as `Ram`.
    """

    def __init__(self, shape, depth, *, reads_old=False, parts=1, block=False, valid_only=False):
        self.shape, self.depth, self.reads_old, self.parts = shape, depth, reads_old, parts
        self.block, self.valid_only = block, valid_only
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
            self.shape, self.depth, reads_old=self.reads_old, parts=self.parts, block=self.block)
        sweep_row = Signal(range(self.depth))
        m.d.comb += [
            ram.write_enable.eq(self.write_enable),
            ram.write_address.eq(self.write_address),
            ram.write_data.eq(self.write_data),
            ram.read_enable.eq(self.read_enable),
            ram.read_address.eq(self.read_address),
            self.read_data.eq(ram.read_data),
        ]
        with m.If(~self.ready):
            m.d.comb += [
                ram.write_enable.eq(~0),
                ram.write_address.eq(sweep_row),
            ]
            if self.valid_only:
                m.d.comb += ram.write_data.valid.eq(0)
            elif self.parts == 1:
                m.d.comb += Value.cast(ram.write_data).eq(0)
            m.d.sync += [sweep_row.eq(sweep_row + 1), self.ready.eq(sweep_row == self.depth - 1)]
        with m.Elif(self.clear):
            m.d.sync += [sweep_row.eq(0), self.ready.eq(0)]
        return m
