"""A memory of entries that are invalid until they are written."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .ram import Ram


class ValidBitRam(wiring.Component):
    """A `Ram` of which `valid` is cleared in every row after reset, and nothing else.

    Parameters
    ----------
    shape : StructLayout
        With a field `valid` of one bit.
    depth : int

    Members
    -------
    write_enable, write_address, write_data : In
        Ignored while `ready` is low.
    read_enable, read_address : In
    read_data : Out(shape)
        As of `Ram`; undefined while `ready` is low.
    ready : Out(1)

    Timing
    ------
    As `Ram`, after `depth` cycles.
    """

    def __init__(self, shape, depth):
        self.shape, self.depth = shape, depth
        super().__init__({
            "write_enable": In(1),
            "write_address": In(range(depth)),
            "write_data": In(shape),
            "read_enable": In(1, init=1),
            "read_address": In(range(depth)),
            "read_data": Out(shape),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(self.shape, self.depth)
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
                ram.write_enable.eq(1),
                ram.write_address.eq(at),
                ram.write_data.valid.eq(0),
            ]
            m.d.sync += [at.eq(at + 1), self.ready.eq(at == self.depth - 1)]
        return m
