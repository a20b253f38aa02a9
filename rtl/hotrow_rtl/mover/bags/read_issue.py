"""BagReadIssue: checked reads of bags to the row ports, and in order to `BagReadCollect`."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...arithmetic.payloads import row_format
from ...config import ROW_ALIGNMENT, Config, log2
from ...contract.encoding import Status
from ...float.formats import ElementType
from ..addressing.address_pipeline import first_error
from ..addressing.port_interleave import row_port
from ..port.payloads import checked_transfer, row_transfer
from .payloads import ReadKind, bag_read, bag_setting, issued_read, read_buffer, read_info

FORMAT_DELAY = 5  # cycles from the first row's format to the first word in the arithmetic units


class BagReadIssue(wiring.Component):
    """Refuse rows whose format differs from the first row's, and issue the other reads.

    The first listed row sets size and type. If its table is unknown, or its rows do not fit the
    card, every row is refused.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    setting : In(bag_setting())
        Stable from `start` until the command completes.
    checked : In(stream(checked_transfer(config)))
    infos : In(stream(read_info()))
        One for each of `checked`, in the same order.
    transfers : Out(stream(row_transfer(config))).array(config.row_ports)
        The reads of each port, aligned to the first byte of a bus word.
    reads : Out(stream(bag_read(config)))
        Every read.
    summand_format, row_format : Out(row_format)
        Of all summands, and of the written rows. 16 bytes of fp32 if the first row has no valid
        format.
    formats_valid : Out(1)
        Both formats have been stable for `FORMAT_DELAY` cycles.

    Timing
    ------
    Latency 1 cycle; one read per cycle, or one every 2 where the arithmetic of a word takes two.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            "checked": In(stream.Signature(checked_transfer(config))),
            "infos": In(stream.Signature(read_info())),
            "transfers": Out(stream.Signature(row_transfer(config))).array(config.row_ports),
            "reads": Out(stream.Signature(bag_read(config))),
            "summand_format": Out(row_format),
            "row_format": Out(row_format),
            "formats_valid": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, info, checked = self.config, self.infos.p, self.checked.p
        setting = self.setting
        m.submodules.skid = skid = read_buffer(config, issued_read(config))
        issue, issued = skid.i.p, skid.o.p
        transfer = checked.transfer

        # The format of all rows is that of the first summand.
        known, fits, common_valid, differs = Signal(), Signal(), Signal(), Signal()
        known_for = Signal(FORMAT_DELAY)
        format_, common, fire = Signal(row_format), Signal(row_format), Signal()
        is_summand, widened = info.kind == ReadKind.SUMMAND, Signal()
        m.d.comb += [
            format_.row16.eq(transfer.info.bytes >> log2(ROW_ALIGNMENT)),
            format_.type.eq(checked.type),
            fits.eq(checked.row_valid & (checked.type <= ElementType.BF16)),
            differs.eq(setting.adagrad & ~checked.scalar_state
                       | ~Mux(known, common_valid & (~is_summand | (Cat(format_) == Cat(common))),
                              fits)),
            widened.eq(setting.updates & ~setting.typed & (common.type != ElementType.FP32)),
            self.formats_valid.eq(known_for[-1]),
        ]
        m.d.sync += [
            self.summand_format.type.eq(Mux(widened, ElementType.FP32, common.type)),
            self.summand_format.row16.eq(common.row16),
            self.row_format.type.eq(common.type),
            self.row_format.row16.eq(common.row16 >> widened),
        ]
        m.d.sync += known_for.eq(Cat(known, known_for))
        with m.If(fire):
            m.d.sync += known.eq(1)
            with m.If(~known):
                m.d.sync += [common.eq(format_), common_valid.eq(fits)]
                with m.If(~fits):
                    m.d.sync += [common.eq(0), common.row16.eq(1)]
        with m.If(self.start):
            m.d.sync += [known.eq(0), known_for.eq(0)]

        # Errors of the destination belong to the bag, all others to the read; for an UPDATE the
        # read of the row reports the former.
        read, has_list_error = issue.read, info.list_error != Status.OK
        entry_error, slot_error, row_rejected = Signal(), Signal(), Signal()
        slot_status = Signal(8)
        m.d.comb += [
            fire.eq(self.checked.valid & self.infos.valid & skid.i.ready),
            self.checked.ready.eq(self.infos.valid & skid.i.ready),
            self.infos.ready.eq(self.checked.valid & skid.i.ready),
            skid.i.valid.eq(self.checked.valid & self.infos.valid),
            entry_error.eq(checked.refused & checked.no_address),
            slot_error.eq(checked.refused & ~checked.no_address & ~checked.at_source),
            slot_status.eq(Mux(info.slot_fault != 0, Status.SLVERR - 1 + info.slot_fault,
                               Mux(slot_error, checked.status, Status.OK))),
            read.port.eq(row_port(config, issue.transfer.source)),
            read.from_memory.eq((read.status == Status.OK) & ~info.empty & ~row_rejected),
            read.kind.eq(info.kind),
            read.last.eq(info.last),
            read.last_summand.eq(info.last_summand),
            read.empty.eq(info.empty),
            read.weight.eq(info.weight),
            read.index.eq(info.index),
            # An empty bag drops silently; the first row reports the error of its format.
            read.drop.eq(has_list_error | entry_error | differs),
            read.status.eq(first_error(
                (has_list_error, info.list_error),
                (info.empty, Status.OK),
                (entry_error, checked.status),
                (differs, Status.ROW_SHAPE),
                (setting.updates & (info.slot_fault != 0), slot_status),
                (checked.refused & checked.at_source, checked.status),
                (setting.updates & ~is_summand, slot_status),
            )),
            read.address.eq(Mux(
                entry_error | differs | info.empty | setting.updates & (info.slot_fault != 0), 0,
                Mux(is_summand, transfer.info.source.as_value(),
                    transfer.info.destination.as_value()))),
            read.slot_status.eq(Mux(setting.updates, Status.OK, slot_status)),
            read.destination.eq(transfer.destination),
            read.two_writes.eq(transfer.two_writes),
            read.packed_destination.eq(
                Mux(info.slot_fault != 0, 0, transfer.info.destination.as_value())),
            issue.transfer.source.eq(
                Mux(is_summand, transfer.source, transfer.destination)),
            issue.transfer.two_reads.eq(
                Mux(is_summand, transfer.two_reads, transfer.two_writes)),
            issue.transfer.info.bytes.eq(transfer.info.bytes),
        ]

        # After a refused read the rest of the bag is not read from memory.
        with m.If(fire):
            m.d.sync += row_rejected.eq(
                ~info.last & (row_rejected | (read.status != Status.OK)))
        if config.bag_units > 1:  # the first request asks for the format only
            with m.If(info.empty & ~info.last_summand):
                m.d.comb += skid.i.valid.eq(0)
                m.d.sync += row_rejected.eq(0)
        with m.If(self.start):
            m.d.sync += row_rejected.eq(0)

        # A read enters `reads` and its port's `transfers` in the same cycle.
        port, port_ready = issued.read.port, Signal()
        m.d.comb += [
            port_ready.eq(~issued.read.from_memory
                          | Cat(one.ready for one in self.transfers).bit_select(port, 1)),
            self.reads.valid.eq(skid.o.valid & port_ready),
            self.reads.p.eq(issued.read),
            skid.o.ready.eq(port_ready & self.reads.ready),
        ]
        for number, one in enumerate(self.transfers):
            m.d.comb += [
                one.valid.eq(skid.o.valid & self.reads.ready & issued.read.from_memory
                             & (port == number)),
                one.p.eq(issued.transfer),
            ]
        return m
