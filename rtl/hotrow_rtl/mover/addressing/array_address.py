"""ArrayAddress: the packed address of an item of an array."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...contract.encoding import OFFSET_WIDTH
from ...interfaces.records import packed_address

STRIDE4_WIDTH = 14  # strides below 64 KiB in units of 4 bytes


class ArrayAddress(wiring.Component):
    """Compute `base + 4 * stride4 * index`.

    Attributes
    ----------
    enable : In(1)
        The pipeline advances.
    base : In(packed_address)
        Base of the array whose `index` came 3 enabled cycles before.
    stride4 : In(14)
        Bytes from item to item, divided by 4.
    index : In(32)
    address : Out(packed_address)
        Its offset is modulo 2**48.
    overflow : Out(1)
        The offset exceeds 48 bits and lies outside every region.

    Timing
    ------
    Latency 4 enabled cycles, throughput 1 per enabled cycle.
    """

    latency = 4

    enable: In(1)
    base: In(packed_address)
    stride4: In(STRIDE4_WIDTH)
    index: In(32)
    address: Out(packed_address)
    overflow: Out(1)

    def elaborate(self, platform):
        m = Module()
        # Timing: two partial products of 16 by 14 bits, one hardware multiplier each, and a
        # register after every step.
        index, stride4 = Signal(32), Signal(STRIDE4_WIDTH)
        low, high = Signal(16 + STRIDE4_WIDTH), Signal(16 + STRIDE4_WIDTH)
        product = Signal(32 + STRIDE4_WIDTH)
        with m.If(self.enable):
            m.d.sync += [
                index.eq(self.index),
                stride4.eq(self.stride4),
                low.eq(index[:16] * stride4),
                high.eq(index[16:] * stride4),
                product.eq(low + (high << 16)),
                Cat(self.address.offset, self.overflow).eq(self.base.offset + (product << 2)),
                self.address.handle.eq(self.base.handle),
            ]
        assert len(product) + 2 <= OFFSET_WIDTH  # one overflow bit suffices
        return m
