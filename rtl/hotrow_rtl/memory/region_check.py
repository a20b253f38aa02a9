"""Region check: no address leaves the card unless it lies inside a region that the host registered.

Commands name memory by (handle, offset), so one look at the handle's region decides, however many
regions there are.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..contract.encoding import OFFSET_WIDTH
from ..interfaces.records import packed_address, region, region_update
from ..primitives.ram import ClearedRam

# One access that an engine wants to make: `bytes` from `address`.
access = data.StructLayout({"address": packed_address, "bytes": OFFSET_WIDTH, "write": 1})


def verdict(config: Config) -> data.StructLayout:
    """Byte address of an access; refused when `region` or `read_only` is set, never both."""
    return data.StructLayout({"address": config.address_width, "region": 1, "read_only": 1})


class RegionCheck(wiring.Component):
    """Translate packed addresses, and refuse accesses that a region does not hold entirely.

    Parameters
    ----------
    config : Config
        `handles` gives the depth of the region table, `address_width` the verdicts' width.

    Members
    -------
    update : In(region_update(config))
        Registers a region, or removes one (`valid` low). Takes effect for accesses accepted in
        later cycles; ignored while `ready` is low. Nothing moves in its cycle, so that the table
        is never read where it is written.
    accesses : In(stream(access))
    verdicts : Out(stream(verdict(config)))
        One per access, in order. `region`: the handle is not registered, or some byte lies beyond
        the region's end. `read_only`: otherwise, a write to a region registered for reading. The
        address of a refused access is undefined.
    hold : In(1)
        Nothing moves in this cycle.
    ready : Out(1)
        Low while the table is cleared after reset; no access may be offered then.

    Timing
    ------
    Latency 3 cycles, throughput 1 access per cycle. Clearing takes `handles` cycles.
    """

    latency = 3

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "update": In(region_update(config)),
            "accesses": In(stream.Signature(access)),
            "verdicts": Out(stream.Signature(verdict(config))),
            "hold": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        handle_width = log2(self.config.handles)
        m.submodules.table = table = ClearedRam(
            region(self.config), self.config.handles, valid_only=True)
        wanted, out = self.accesses.p, self.verdicts
        m.d.comb += [
            table.write_enable.eq(self.update.enable),
            table.write_address.eq(self.update.index),
            Cat(table.write_data).eq(Cat(self.update.entry)),
            self.ready.eq(table.ready),
        ]

        # Stage 1 reads the table, stage 2 takes its output, stage 3 compares: a block memory's
        # output is slow, and so is a carry chain of 49 bits.
        stage = data.StructLayout({
            "valid": 1, "known": 1, "write": 1, "offset": OFFSET_WIDTH, "end": OFFSET_WIDTH + 1})
        read, compared = Signal(stage), Signal(stage)
        held = Signal(region(self.config))
        advance = Signal()
        m.d.comb += [
            advance.eq((~out.valid | out.ready) & ~self.update.enable & ~self.hold),
            self.accesses.ready.eq(advance),
            table.read_enable.eq(advance),
            table.read_address.eq(wanted.address.handle[:handle_width]),
        ]
        beyond = ~compared.known | ~held.valid | (compared.end > held.size)
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(advance):
            m.d.sync += [
                read.valid.eq(self.accesses.valid),
                read.known.eq(~wanted.address.handle[handle_width:].any()),
                read.write.eq(wanted.write),
                read.offset.eq(wanted.address.offset),
                read.end.eq(wanted.address.offset + wanted.bytes),
                compared.eq(read),
                held.eq(table.read_data),
                out.valid.eq(compared.valid),
                out.p.address.eq((held.base16 << 4) + compared.offset),
                out.p.region.eq(beyond),
                out.p.read_only.eq(Mux(beyond, 0, compared.write & ~held.writable)),
            ]
        return m
