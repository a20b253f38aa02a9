"""Bag reads: checked entries of bags to the row ports of their rows, and in order to what follows.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...arithmetic.payloads import row_format
from ...config import ROW_ALIGNMENT, Config, log2
from ...contract.encoding import Status
from ...float.formats import ElementType
from ...primitives.skid_buffer import SkidBuffer
from ..addressing.address_pipeline import first_error
from ..addressing.port_interleave import row_port
from ..port.payloads import addressed_copy, checked_copy
from .payloads import ReadKind, asked_read, bag_item, bag_read, bag_setting

SETTLES = 5  # cycles from when the shape is known to the first row


class BagReadIssue(wiring.Component):
    """Refuse rows unlike the first one, read the others, and tell the order of all.

    The first listed row decides on bytes and type. If it has no table, or one whose rows cannot be
    carried, no other row is like it.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse before each command.
    setting : In(bag_setting())
        From the pulse until the command is over.
    checked : In(stream(checked_copy(config)))
    items : In(stream(bag_item()))
        One for each, in the same order.
    copies : Out(stream(addressed_copy(config))).array(config.row_ports)
        Of each port those that it is to read, to the first byte of a bus word.
    order : Out(stream(bag_read(config)))
        Every entry.
    summands, shape : Out(row_format)
        Of all rows that are pooled, or gradients, and of those that are written; 16 bytes of fp32
        if the first one tells none.
    settled : Out(1)
        Both have held for `SETTLES` cycles.

    Timing
    ------
    Latency 1 cycle, one entry a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            "checked": In(stream.Signature(checked_copy(config))),
            "items": In(stream.Signature(bag_item())),
            "copies": Out(stream.Signature(addressed_copy(config))).array(config.row_ports),
            "order": Out(stream.Signature(bag_read(config))),
            "summands": Out(row_format),
            "shape": Out(row_format),
            "settled": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, item, checked = self.config, self.items.p, self.checked.p
        setting = self.setting
        m.submodules.skid = skid = SkidBuffer(asked_read(config).size)
        given = data.View(asked_read(config), skid.i.p)
        taken = data.View(asked_read(config), skid.o.p)
        copy = checked.copy

        # The shape of all rows, and of what is read first of each bag.
        known, fits, sized, differs = Signal(), Signal(), Signal(), Signal()
        known_for = Signal(SETTLES)
        shape, same, takes = Signal(row_format), Signal(row_format), Signal()
        summand, widened = item.kind == ReadKind.SUMMAND, Signal()
        m.d.comb += [
            shape.row16.eq(copy.identity.bytes >> log2(ROW_ALIGNMENT)),
            shape.type.eq(checked.type),
            fits.eq(checked.sized & (checked.type <= ElementType.BF16)),
            differs.eq(setting.adagrad & ~checked.scalar
                       | ~Mux(known, sized & (~summand | (Cat(shape) == Cat(same))), fits)),
            widened.eq(setting.updates & ~setting.typed & (same.type != ElementType.FP32)),
            self.settled.eq(known_for[-1]),
        ]
        m.d.sync += [
            self.summands.type.eq(Mux(widened, ElementType.FP32, same.type)),
            self.summands.row16.eq(same.row16),
            self.shape.type.eq(same.type),
            self.shape.row16.eq(same.row16 >> widened),
        ]
        m.d.sync += known_for.eq(Cat(known, known_for))
        with m.If(takes):
            m.d.sync += known.eq(1)
            with m.If(~known):
                m.d.sync += [same.eq(shape), sized.eq(fits)]
                with m.If(~fits):
                    m.d.sync += [same.eq(0), same.row16.eq(1)]
        with m.If(self.start):
            m.d.sync += [known.eq(0), known_for.eq(0)]

        # What is to become of each entry. Errors of its destination are those of the bag, all
        # others its own; of an UPDATE the entry of the row tells the former.
        read, stray = given.read, item.stray != Status.OK
        early, of_slot, barred = Signal(), Signal(), Signal()
        status = Signal(8)  # of its destination
        m.d.comb += [
            takes.eq(self.checked.valid & self.items.valid & skid.i.ready),
            self.checked.ready.eq(self.items.valid & skid.i.ready),
            self.items.ready.eq(self.checked.valid & skid.i.ready),
            skid.i.valid.eq(self.checked.valid & self.items.valid),
            early.eq(checked.refused & checked.no_address),
            of_slot.eq(checked.refused & ~checked.no_address & ~checked.at_source),
            status.eq(Mux(item.slot_fault != 0, Status.SLVERR - 1 + item.slot_fault,
                          Mux(of_slot, checked.status, Status.OK))),
            read.port.eq(row_port(config, given.copy.source)),
            read.reads.eq((read.status == Status.OK) & ~item.empty & ~barred),
            read.kind.eq(item.kind),
            read.last.eq(item.last),
            read.closes.eq(item.closes),
            read.empty.eq(item.empty),
            read.weight.eq(item.weight),
            read.index.eq(item.index),
            # That of a bag without rows is told of the first row.
            read.drops.eq(stray | early | differs),
            read.status.eq(first_error(
                (stray, item.stray),
                (item.empty, Status.OK),
                (early, checked.status),
                (differs, Status.ROW_SHAPE),
                (setting.updates & (item.slot_fault != 0), status),
                (checked.refused & checked.at_source, checked.status),
                (setting.updates & ~summand, status),
            )),
            read.address.eq(Mux(
                early | differs | item.empty | setting.updates & (item.slot_fault != 0), 0,
                Mux(summand, copy.identity.source.as_value(),
                    copy.identity.destination.as_value()))),
            read.slot_status.eq(Mux(setting.updates, Status.OK, status)),
            read.destination.eq(copy.destination),
            read.two_writes.eq(copy.two_writes),
            read.packed.eq(Mux(item.slot_fault != 0, 0, copy.identity.destination.as_value())),
            given.copy.source.eq(Mux(summand, copy.source, copy.destination)),
            given.copy.two_reads.eq(Mux(summand, copy.two_reads, copy.two_writes)),
            given.copy.identity.bytes.eq(copy.identity.bytes),
        ]

        with m.If(takes):  # what follows in the bag of one that is refused is not read
            m.d.sync += barred.eq(~item.last & (barred | (read.status != Status.OK)))
        with m.If(self.start):
            m.d.sync += barred.eq(0)

        # To its port and into the order at once.
        port, free = taken.read.port, Signal()
        m.d.comb += [
            free.eq(~taken.read.reads | Cat(one.ready for one in self.copies).bit_select(port, 1)),
            self.order.valid.eq(skid.o.valid & free),
            self.order.p.eq(taken.read),
            skid.o.ready.eq(free & self.order.ready),
        ]
        for number, one in enumerate(self.copies):
            m.d.comb += [
                one.valid.eq(skid.o.valid & self.order.ready & taken.read.reads & (port == number)),
                one.p.eq(taken.copy),
            ]
        return m
