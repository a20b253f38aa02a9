"""Copy addresses: from rows and slots to byte addresses, every one of them checked."""

from itertools import pairwise

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import ROW_ALIGNMENT, STATE_ALIGNMENT, Config, log2
from ...contract.encoding import Status
from ...float.formats import ElementType
from ...interfaces.records import packed_address, region_update, table, table_update
from ...memory.region_check import RegionCheck
from ...primitives.ram import ClearedRam
from ...primitives.skid_buffer import SkidBuffer
from ..port.page_splitter import crosses_page
from ..port.payloads import COPY_BYTES, checked_copy, move_setting, wanted_copy
from .array_address import STRIDE4_WIDTH, ArrayAddress


def first_error(*checks):
    """Status of the first (condition, status) that holds, else OK."""
    status = int(Status.OK)
    for condition, code in reversed(checks):
        status = Mux(condition, code, status)
    return status


class AddressPipeline(wiring.Component):
    """Resolve copies, or say why they are refused.

    Parameters
    ----------
    config : Config

    Members
    -------
    table_update : In(table_update(config))
    region_update : In(region_update(config))
    setting : In(move_setting())
        Stable while copies of a command are in flight.
    wanted : In(stream(wanted_copy(config)))
        Its `ready` is a register.
    checked : Out(stream(checked_copy(config)))
        One per wanted copy, in order. The state of a table without state is a copy of 0 bytes.
        A row longer than `config.row_bytes`, or empty, counts as longer than the stride.
    ready : Out(1)
        Low while the tables inside are cleared after reset.

    Timing
    ------
    Latency 12 cycles, throughput 1 copy per cycle.
    """

    latency = 12

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "table_update": In(table_update(config)),
            "region_update": In(region_update(config)),
            "setting": In(move_setting()),
            "wanted": In(stream.Signature(wanted_copy(config))),
            "checked": Out(stream.Signature(checked_copy(config))),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, out, setting = self.config, self.checked, self.setting
        m.submodules.tables = tables = ClearedRam(
            table(config), config.tables, valid_only=True)
        m.submodules.source = source = ArrayAddress()
        m.submodules.destination = destination = ArrayAddress()
        m.submodules.source_check = source_check = RegionCheck(config)
        m.submodules.destination_check = destination_check = RegionCheck(config)
        for check in (source_check, destination_check):
            connect(m, flipped(self.region_update), check.update)
            m.d.comb += check.stall.eq(self.table_update.enable)
        m.d.comb += [
            tables.write_enable.eq(self.table_update.enable),
            tables.write_address.eq(self.table_update.index),
            Cat(tables.write_data).eq(Cat(self.table_update.entry)),
            self.ready.eq(tables.ready & source_check.ready & destination_check.ready),
        ]

        # One rigid pipeline: its stages advance together, with the stages of both region checks,
        # whenever the output can take what comes out, and no table is being written.
        advance = source_check.accesses.ready
        stage = data.StructLayout({"valid": 1, "wanted": wanted_copy(config)})
        m.submodules.taken = taken = SkidBuffer(wanted_copy(config).size, rigid=True)
        given = data.View(wanted_copy(config), taken.o.p)
        m.d.comb += [
            taken.i.valid.eq(self.wanted.valid),
            taken.i.p.eq(self.wanted.p.as_value()),
            self.wanted.ready.eq(taken.i.ready),
            taken.o.ready.eq(advance),
            tables.read_enable.eq(advance),
            tables.read_address.eq(given.table),
            source.enable.eq(advance),
            destination.enable.eq(advance),
        ]

        # Stages 2 and 3, after that: read the table, take its output.
        read, described = Signal(stage), Signal(stage)
        entry = Signal(table(config))
        with m.If(advance):
            m.d.sync += [
                read.valid.eq(taken.o.valid),
                read.wanted.eq(given),
                described.eq(read),
                entry.eq(tables.read_data),
            ]

        # Stages 4 to 7: what the descriptor refuses; the addresses.
        item = described.wanted
        for to_tables, table_end, slot_end in ((0, source, destination), (1, destination, source)):
            with m.If(setting.to_tables == to_tables):
                m.d.comb += [
                    table_end.stride4.eq(Mux(setting.spans, setting.stride >> 2, Mux(
                        item.is_state, entry.state4, entry.stride16 << 2))),
                    table_end.number.eq(Mux(setting.spans, item.slot, item.row)),
                    slot_end.stride4.eq(Mux(item.is_state, entry.state4, setting.stride >> 2)),
                    slot_end.number.eq(item.slot),
                ]
        note = data.StructLayout({"valid": 1, "status": 8, "bytes": COPY_BYTES, "is_state": 1,
                                  "unread": 1, "sized": 1, "scalar": 1, "type": len(entry.type),
                                  "last": 1})
        assert STRIDE4_WIDTH + 2 == len(setting.stride)
        notes = [Signal(note, name=f"note{number}")
                 for number in range(ArrayAddress.latency + RegionCheck.latency)]
        # Base of the table's end, and of both ends in the stage behind.
        bases = [Signal(packed_address, name=f"base{number}")
                 for number in range(ArrayAddress.latency - 2)]
        source_base, destination_base = Signal(packed_address), Signal(packed_address)
        slot_base = Mux(notes[len(bases) - 1].is_state, setting.state_slots, setting.slots)
        slot16 = carried16 = entry.row16  # what a row takes in its slot, and what is carried
        if config.arithmetic:
            slot16 = entry.row16 << (setting.widened & (entry.type != ElementType.FP32))
            carried16 = Mux(item.unread, entry.row16, slot16)
        unfit = ((slot16 == 0) | (slot16 > config.row_bytes // ROW_ALIGNMENT)
                 | (slot16 > setting.stride >> log2(ROW_ALIGNMENT)))
        with m.If(advance):
            m.d.sync += [
                notes[0].valid.eq(described.valid),
                notes[0].bytes.eq(Mux(
                    setting.spans, Mux(item.ends, setting.final_bytes, setting.stride),
                    Mux(item.is_state, entry.state4 << log2(STATE_ALIGNMENT),
                        carried16 << log2(ROW_ALIGNMENT)))),
                notes[0].is_state.eq(item.is_state),
                notes[0].unread.eq(item.unread),
                notes[0].sized.eq(~unfit & ~item.unknown & entry.valid & (item.entry_fault == 0)),
                notes[0].type.eq(entry.type),
                notes[0].scalar.eq(entry.state4 == 1),
                notes[0].last.eq(item.last),
                notes[0].status.eq(first_error(
                    (setting.spans, Status.OK),
                    (item.entry_fault != 0, Status.SLVERR - 1 + item.entry_fault),
                    (item.unknown | ~entry.valid, Status.TABLE_UNKNOWN),
                    (item.row > entry.last_row, Status.ROW_OUT_OF_RANGE),
                    (item.slot_fault != 0, Status.SLVERR - 1 + item.slot_fault),
                    (unfit, Status.STRIDE),
                )),
                *(after.eq(before) for before, after in pairwise(notes)),
                bases[0].eq(Mux(setting.spans, setting.source, Mux(
                    item.is_state, entry.state, entry.weights))),
                *(after.eq(before) for before, after in pairwise(bases)),
                source_base.eq(Mux(setting.to_tables, slot_base, bases[-1])),
                destination_base.eq(Mux(setting.to_tables, bases[-1], slot_base)),
            ]
        m.d.comb += [source.base.eq(source_base), destination.base.eq(destination_base)]

        # Stages 8 to 10: both region checks, in step.
        asked = notes[ArrayAddress.latency - 1]
        for check, end in ((source_check, source), (destination_check, destination)):
            m.d.comb += [
                check.accesses.valid.eq(asked.valid),
                check.accesses.p.address.eq(end.address),
                check.accesses.p.bytes.eq(asked.bytes),
                check.verdicts.ready.eq(~out.valid | out.ready),
            ]
        m.d.comb += destination_check.accesses.p.write.eq(1)
        ends = data.StructLayout({"source": packed_address, "beyond_source": 1,
                                  "destination": packed_address, "beyond_destination": 1})
        addresses = [Signal(ends, name=f"ends{number}") for number in range(RegionCheck.latency)]
        with m.If(advance):
            m.d.sync += [
                addresses[0].source.eq(source.address),
                addresses[0].beyond_source.eq(source.overflow),
                addresses[0].destination.eq(destination.address),
                addresses[0].beyond_destination.eq(destination.overflow),
                *(after.eq(before) for before, after in pairwise(addresses)),
            ]

        # Stage 11: the first error decides.
        told, packed = notes[-1], addresses[-1]
        unread = told.unread if config.arithmetic else Const(0)
        reads, writes = source_check.verdicts.p, destination_check.verdicts.p
        low = Mux(setting.to_tables, reads.address, writes.address)[:log2(ROW_ALIGNMENT)]
        crooked = Mux(told.is_state | setting.spans, low[:log2(STATE_ALIGNMENT)].any(),
                      low.any()) & ~(setting.to_tables & unread)
        beyond_source, bad_source, bad_destination = Signal(), Signal(), Signal()
        m.d.comb += [
            beyond_source.eq((reads.region | packed.beyond_source) & ~unread),
            bad_source.eq(beyond_source | setting.to_tables & crooked),
            bad_destination.eq(writes.region | packed.beyond_destination),
        ]
        early, nothing = told.status != Status.OK, told.bytes == 0
        with m.If(~out.valid | out.ready):
            m.d.sync += [
                out.valid.eq(source_check.verdicts.valid),
                out.p.status.eq(first_error(
                    (early, told.status),
                    (nothing, Status.OK),
                    (beyond_source, Status.REGION),
                    (bad_source, Status.MISALIGNED),
                    (bad_destination, Status.REGION),
                    (writes.read_only, Status.READ_ONLY),
                    (crooked, Status.MISALIGNED),
                )),
                out.p.refused.eq(early | ~nothing & (
                    bad_source | bad_destination | writes.read_only | crooked)),
                out.p.no_address.eq(early),
                out.p.at_source.eq(bad_source),
                out.p.sized.eq(told.sized),
                out.p.type.eq(told.type),
                out.p.scalar.eq(told.scalar),
                out.p.copy.source.eq(reads.address),
                out.p.copy.destination.eq(writes.address),
                out.p.copy.two_reads.eq(crosses_page(reads.address, told.bytes)),
                out.p.copy.two_writes.eq(crosses_page(writes.address, told.bytes)),
                out.p.copy.identity.source.eq(packed.source),
                out.p.copy.identity.destination.eq(packed.destination),
                out.p.copy.identity.bytes.eq(told.bytes),
                out.p.copy.identity.last.eq(told.last),
            ]
        return m
