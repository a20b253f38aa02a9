"""Region check: an address leaves the card only if it lies inside a region registered by the host.

Commands name memory by (handle, offset), so each access is compared with the region of its handle
alone, whatever the number of regions.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..contract.encoding import OFFSET_WIDTH
from ..interfaces.records import packed_address, region, region_update
from ..primitives.ram import ClearedRam

# An access of `bytes` from `address`.
access = data.StructLayout({"address": packed_address, "bytes": OFFSET_WIDTH, "write": 1})


def verdict(config: Config) -> data.StructLayout:
    """Byte address of an access; `region` or `read_only` (never both) refuse it."""
    return data.StructLayout({"address": config.address_width, "region": 1, "read_only": 1})


class RegionCheck(wiring.Component):
    """Translate packed addresses, and refuse accesses that do not lie inside a region.

    Parameters
    ----------
    config : Config
        `handles` gives the depth of the region table, `address_width` the verdicts' width.

    Attributes
    ----------
    update : In(region_update(config))
        Registers a region, or removes one (`valid` low), for accesses accepted in later cycles;
        ignored while `ready` is low. The pipeline stalls in its cycle, so that the table is never
        read while it is written.
    accesses : In(stream(access))
    verdicts : Out(stream(verdict(config)))
        One per access, in order. `region`: the handle is not registered, or a byte lies beyond the
        region's end. `read_only`: otherwise, a write to a region registered for reading. The
        address of a refused access is undefined.
    stall : In(1)
        The pipeline stalls in this cycle.
    ready : Out(1)
        Low while the table is cleared after reset; `accesses.valid` must then be low.

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
            "stall": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        handle_width = log2(self.config.handles)
        m.submodules.table = table = ClearedRam(
            region(self.config), self.config.handles, valid_only=True)
        request, out = self.accesses.p, self.verdicts
        m.d.comb += [
            table.write_enable.eq(self.update.enable),
            table.write_address.eq(self.update.index),
            table.write_data.eq(self.update.entry),
            self.ready.eq(table.ready),
        ]

        # Timing: stage 1 reads the table, stage 2 registers its output, stage 3 compares, as the
        # output of a block RAM is slow, and so is a carry chain of 49 bits.
        stage = data.StructLayout({
            "valid": 1, "known": 1, "write": 1, "offset": OFFSET_WIDTH, "end": OFFSET_WIDTH + 1})
        read, compared = Signal(stage), Signal(stage)
        entry = Signal(region(self.config))
        step = Signal()
        m.d.comb += [
            step.eq((~out.valid | out.ready) & ~self.update.enable & ~self.stall),
            self.accesses.ready.eq(step),
            table.read_enable.eq(step),
            table.read_address.eq(request.address.handle[:handle_width]),
        ]
        refused = ~compared.known | ~entry.valid | (compared.end > entry.size)
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(step):
            m.d.sync += [
                read.valid.eq(self.accesses.valid),
                read.known.eq(~request.address.handle[handle_width:].any()),
                read.write.eq(request.write),
                read.offset.eq(request.address.offset),
                read.end.eq(request.address.offset + request.bytes),
                compared.eq(read),
                entry.eq(table.read_data),
                out.valid.eq(compared.valid),
                out.p.address.eq((entry.base16 << 4) + compared.offset),
                out.p.region.eq(refused),
                out.p.read_only.eq(Mux(refused, 0, compared.write & ~entry.writable)),
            ]
        return m
