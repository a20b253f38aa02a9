"""AddressPipeline: from rows and slots to byte addresses, each checked against its region."""

from itertools import pairwise

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import ROW_ALIGNMENT, STATE_ALIGNMENT, Config, log2
from ...contract.encoding import OFFSET_WIDTH, Status
from ...float.formats import ElementType
from ...interfaces.records import packed_address, region_update, table, table_update
from ...memory.region_check import RegionCheck
from ...primitives.ram import ClearedRam
from ...primitives.skid_buffer import SkidBuffer
from ..port.page_splitter import crosses_page
from ..port.payloads import BYTES_WIDTH, checked_transfer, transfer_request, transfer_setting

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


def first_error(*checks):
    """Status of the first (condition, status) that holds, else OK."""
    status = int(Status.OK)
    for condition, code in reversed(checks):
        status = Mux(condition, code, status)
    return status


class AddressPipeline(wiring.Component):
    """Compute and check the addresses of transfers.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    table_update : In(table_update(config))
    region_update : In(region_update(config))
    setting : In(transfer_setting())
        Stable while transfers of a command are inside.
    requests : In(stream(transfer_request(config)))
        `ready` is a register.
    checked : Out(stream(checked_transfer(config)))
        One per request, in order. The state of a table without state is a transfer of 0 bytes. A
        row longer than `config.row_bytes`, or of 0 bytes, is refused with STRIDE.
    ready : Out(1)
        Low while the tables are cleared after reset.

    Timing
    ------
    Latency 11 cycles, throughput 1 transfer per cycle.
    """

    latency = 11

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "table_update": In(table_update(config)),
            "region_update": In(region_update(config)),
            "setting": In(transfer_setting()),
            "requests": In(stream.Signature(transfer_request(config))),
            "checked": Out(stream.Signature(checked_transfer(config))),
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
            tables.write_data.eq(self.table_update.entry),
            self.ready.eq(tables.ready & source_check.ready & destination_check.ready),
        ]

        # All stages advance together with those of the region checks: when the output is empty or
        # fires, and no table or region is written.
        advance = source_check.accesses.ready
        stage = data.StructLayout({"valid": 1, "request": transfer_request(config)})
        m.submodules.skid = skid = SkidBuffer(transfer_request(config), rigid=True)
        connect(m, requests=flipped(self.requests), skid=skid.i)
        m.d.comb += [
            skid.o.ready.eq(advance),
            tables.read_enable.eq(advance),
            tables.read_address.eq(skid.o.p.table),
            source.enable.eq(advance),
            destination.enable.eq(advance),
        ]

        # Stages 2 and 3: table read, and a register for its output.
        read, described = Signal(stage), Signal(stage)
        entry = Signal(table(config))
        with m.If(advance):
            m.d.sync += [
                read.valid.eq(skid.o.valid),
                read.request.eq(skid.o.p),
                described.eq(read),
                entry.eq(tables.read_data),
            ]

        # Stages 4 to 7: checks of the table entry; address computation.
        item = described.request
        for to_tables, table_end, slot_end in ((0, source, destination), (1, destination, source)):
            with m.If(setting.to_tables == to_tables):
                m.d.comb += [
                    table_end.stride4.eq(Mux(setting.spans, setting.stride >> 2, Mux(
                        item.is_state, entry.state4, entry.stride16 << 2))),
                    table_end.index.eq(Mux(setting.spans, item.slot, item.row)),
                    slot_end.stride4.eq(Mux(item.is_state, entry.state4, setting.stride >> 2)),
                    slot_end.index.eq(item.slot),
                ]
        attributes = data.StructLayout({
            "valid": 1, "status": 8, "bytes": BYTES_WIDTH, "is_state": 1, "write_only": 1,
            "row_valid": 1, "scalar_state": 1, "type": len(entry.type), "last": 1})
        assert len(setting.stride) == STRIDE4_WIDTH + 2
        stages = [Signal(attributes, name=f"stage{number}")
                  for number in range(ArrayAddress.latency + RegionCheck.latency)]
        # Base of the table's end, and of both ends one stage later.
        bases = [Signal(packed_address, name=f"base{number}")
                 for number in range(ArrayAddress.latency - 2)]
        source_base, destination_base = Signal(packed_address), Signal(packed_address)
        slot_base = Mux(stages[len(bases) - 1].is_state, setting.state_slots, setting.slots)
        slot16 = bytes16 = entry.row16  # size of a row in its slot, and of the transfer
        if config.arithmetic:
            slot16 = entry.row16 << (setting.widened & (entry.type != ElementType.FP32))
            bytes16 = Mux(item.write_only, entry.row16, slot16)
        row_misfit = ((slot16 == 0) | (slot16 > config.row_bytes // ROW_ALIGNMENT)
                      | (slot16 > setting.stride >> log2(ROW_ALIGNMENT)))
        with m.If(advance):
            m.d.sync += [
                stages[0].valid.eq(described.valid),
                stages[0].bytes.eq(Mux(
                    setting.spans, Mux(item.last_entry, setting.final_bytes, setting.stride),
                    Mux(item.is_state, entry.state4 << log2(STATE_ALIGNMENT),
                        bytes16 << log2(ROW_ALIGNMENT)))),
                stages[0].is_state.eq(item.is_state),
                stages[0].write_only.eq(item.write_only),
                stages[0].row_valid.eq(
                    ~row_misfit & ~item.unknown & entry.valid & (item.entry_fault == 0)),
                stages[0].type.eq(entry.type),
                stages[0].scalar_state.eq(entry.state4 == 1),
                stages[0].last.eq(item.last),
                stages[0].status.eq(first_error(
                    (setting.spans, Status.OK),
                    (item.entry_fault != 0, Status.SLVERR - 1 + item.entry_fault),
                    (item.unknown | ~entry.valid, Status.TABLE_UNKNOWN),
                    (item.row > entry.last_row, Status.ROW_OUT_OF_RANGE),
                    (item.slot_fault != 0, Status.SLVERR - 1 + item.slot_fault),
                    (row_misfit, Status.STRIDE),
                )),
                *(after.eq(before) for before, after in pairwise(stages)),
                bases[0].eq(Mux(setting.spans, setting.source, Mux(
                    item.is_state, entry.state, entry.weights))),
                *(after.eq(before) for before, after in pairwise(bases)),
                source_base.eq(Mux(setting.to_tables, slot_base, bases[-1])),
                destination_base.eq(Mux(setting.to_tables, bases[-1], slot_base)),
            ]
        m.d.comb += [source.base.eq(source_base), destination.base.eq(destination_base)]

        # Stages 8 to 10: both region checks. Timing: their `ready` is a register, as it enables all
        # stages, and that of `checked` is late.
        m.submodules.decided = decided = SkidBuffer(out.p.shape())
        connect(m, decided=decided.o, checked=flipped(out))
        to_check = stages[ArrayAddress.latency - 1]
        for check, end in ((source_check, source), (destination_check, destination)):
            m.d.comb += [
                check.accesses.valid.eq(to_check.valid),
                check.accesses.p.address.eq(end.address),
                check.accesses.p.bytes.eq(to_check.bytes),
                check.verdicts.ready.eq(decided.i.ready),
            ]
        m.d.comb += destination_check.accesses.p.write.eq(1)
        ends = data.StructLayout({"source": packed_address, "source_overflow": 1,
                                  "destination": packed_address, "destination_overflow": 1})
        addresses = [Signal(ends, name=f"ends{number}") for number in range(RegionCheck.latency)]
        with m.If(advance):
            m.d.sync += [
                addresses[0].source.eq(source.address),
                addresses[0].source_overflow.eq(source.overflow),
                addresses[0].destination.eq(destination.address),
                addresses[0].destination_overflow.eq(destination.overflow),
                *(after.eq(before) for before, after in pairwise(addresses)),
            ]

        self._decide(m, decided.i, stages[-1], addresses[-1], source_check.verdicts,
                     destination_check.verdicts.p)
        return m

    def _decide(self, m, out, final, packed, read_verdicts, writes):
        """Stage 11: the first error decides."""
        setting, reads = self.setting, read_verdicts.p
        write_only = final.write_only if self.config.arithmetic else Const(0)
        low = Mux(setting.to_tables, reads.address, writes.address)[:log2(ROW_ALIGNMENT)]
        misaligned = Mux(final.is_state | setting.spans, low[:log2(STATE_ALIGNMENT)].any(),
                         low.any()) & ~(setting.to_tables & write_only)
        outside_source, bad_source, outside_destination = Signal(), Signal(), Signal()
        m.d.comb += [
            outside_source.eq((reads.region | packed.source_overflow) & ~write_only),
            bad_source.eq(outside_source | setting.to_tables & misaligned),
            outside_destination.eq(writes.region | packed.destination_overflow),
        ]
        entry_error, empty = final.status != Status.OK, final.bytes == 0
        m.d.comb += [
            out.valid.eq(read_verdicts.valid),
            out.p.status.eq(first_error(
                (entry_error, final.status),
                (empty, Status.OK),
                (outside_source, Status.REGION),
                (bad_source, Status.MISALIGNED),
                (outside_destination, Status.REGION),
                (writes.read_only, Status.READ_ONLY),
                (misaligned, Status.MISALIGNED),
            )),
            out.p.refused.eq(entry_error | ~empty & (
                bad_source | outside_destination | writes.read_only | misaligned)),
            out.p.no_address.eq(entry_error),
            out.p.at_source.eq(bad_source),
            out.p.row_valid.eq(final.row_valid),
            out.p.type.eq(final.type),
            out.p.scalar_state.eq(final.scalar_state),
            out.p.transfer.source.eq(reads.address),
            out.p.transfer.destination.eq(writes.address),
            out.p.transfer.two_reads.eq(crosses_page(reads.address, final.bytes)),
            out.p.transfer.two_writes.eq(crosses_page(writes.address, final.bytes)),
            out.p.transfer.info.source.eq(packed.source),
            out.p.transfer.info.destination.eq(packed.destination),
            out.p.transfer.info.bytes.eq(final.bytes),
            out.p.transfer.info.last.eq(final.last),
        ]
