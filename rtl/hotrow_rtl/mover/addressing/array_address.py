"""Item address: where item `number` of an array lies, as a packed address."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...contract.encoding import OFFSET_WIDTH
from ...interfaces.records import packed_address

STRIDE4_WIDTH = 14  # strides below 64 KiB, in steps of 4 bytes


class ArrayAddress(wiring.Component):
    """Compute `base + 4 * stride4 * number`.

    Members
    -------
    enable : In(1)
        Advances the pipeline.
    base : In(packed_address)
        Of the item whose `number` came 3 enabled cycles before.
    stride4 : In(14)
        Bytes from item to item, divided by 4.
    number : In(32)
    address : Out(packed_address)
        Its offset modulo 2**48.
    overflow : Out(1)
        The offset does not fit 48 bits: no region reaches there.

    Timing
    ------
    Latency 4 enabled cycles, throughput 1 per enabled cycle.
    """

    latency = 4

    enable: In(1)
    base: In(packed_address)
    stride4: In(STRIDE4_WIDTH)
    number: In(32)
    address: Out(packed_address)
    overflow: Out(1)

    def elaborate(self, platform):
        m = Module()
        # Two partial products of 16 by 14 bits, each one multiplier of any FPGA, every step
        # registered.
        number, stride4 = Signal(32), Signal(STRIDE4_WIDTH)
        low, high = Signal(16 + STRIDE4_WIDTH), Signal(16 + STRIDE4_WIDTH)
        product = Signal(32 + STRIDE4_WIDTH)
        with m.If(self.enable):
            m.d.sync += [
                number.eq(self.number),
                stride4.eq(self.stride4),
                low.eq(number[:16] * stride4),
                high.eq(number[16:] * stride4),
                product.eq(low + (high << 16)),
                Cat(self.address.offset, self.overflow).eq(self.base.offset + (product << 2)),
                self.address.handle.eq(self.base.handle),
            ]
        assert len(product) + 2 <= OFFSET_WIDTH  # one overflow bit suffices
        return m
