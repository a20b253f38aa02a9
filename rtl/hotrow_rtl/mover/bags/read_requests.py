"""Bag entries: the lists of a command on bags, as the reads that it wants, in order."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.records import element, row_entry
from ..port.payloads import wanted_copy
from .payloads import ReadKind, bag_item, bag_setting

LENGTH = 16  # bits of a length in memory


class BagReadRequests(wiring.Component):
    """Walk the bags, and ask for each of their reads with its place, weight and slot.

    A bag of a POOL is its rows; that of an UPDATE the gradients of one row, which are its slots,
    then the row, and with Adagrad its state. An empty bag is one entry without a row, of the table
    of the first listed row. When the lengths do not add up to the summands, one more bag without
    rows says so, and none follows.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse before each command.
    setting : In(bag_setting())
        From the pulse until the command is over.
    rows : In(stream(element(row_entry)))
    lengths : In(stream(element(16)))
    targets, weights : In(stream(element(32)))
        The lists, those that the command has, each to its end.
    copies : Out(stream(wanted_copy(config)))
    items : Out(stream(bag_item()))
        One for each of `copies`.
    ended : Out(1)
        No further entry will come, and the lists have ended.
    bags : Out(32)
        Bags that have been asked for.

    Timing
    ------
    No latency; one entry a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            "rows": In(stream.Signature(element(row_entry))),
            "lengths": In(stream.Signature(element(LENGTH))),
            "targets": In(stream.Signature(element(32))),
            "weights": In(stream.Signature(element(32))),
            "copies": Out(stream.Signature(wanted_copy(config))),
            "items": Out(stream.Signature(bag_item())),
            "ended": Out(1, init=1),
            "bags": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        setting, copy, item = self.setting, self.copies.p, self.items.p
        row, slot, weight = self.rows.p, self.targets.p, self.weights.p
        length = self.lengths.p.value
        first, known = Signal(element(row_entry)), Signal()  # the first listed row
        done, left = Signal(32), Signal(32)  # summands asked for, and not
        at, kind = Signal(LENGTH), Signal(ReadKind)  # of them in this bag; what follows of it
        summands, closes = Signal(), Signal()
        inside, empty, last, wrong = Signal(), Signal(), Signal(), Signal()
        takes, both = Signal(), Signal()
        stray, stray_index = Signal(8), Signal(32)  # what is wrong with the lengths
        # Lists that have come to their end.
        over = {name: Signal(name=f"{name}_over") for name in
                ("rows", "lengths", "targets", "weights")}
        m.d.comb += [
            both.eq(self.copies.ready & self.items.ready),
            summands.eq(kind == ReadKind.SUMMAND),
            empty.eq(summands & ~setting.updates & (length == 0)),
            closes.eq(summands & (empty | (at + 1 == length))),
            last.eq(Mux(setting.updates, Mux(
                setting.adagrad, kind == ReadKind.STATE, kind == ReadKind.ROW), closes)),
            # No bag begins that goes beyond the end of the list.
            wrong.eq(~inside & ((self.lengths.p.fault != 0) | (length > left)
                                | setting.updates & (length == 0))),
            copy.table.eq(row.value.table),
            copy.row.eq(row.value.row),
            copy.unknown.eq(row.value.table >= self.config.tables),
            copy.entry_fault.eq(row.fault),
            copy.slot.eq(Mux(setting.listed, slot.value, Mux(setting.updates, done, self.bags))),
            copy.is_state.eq(kind == ReadKind.STATE),
            copy.unread.eq(~summands),
            copy.slot_fault.eq(Mux(setting.weighted, weight.fault, 0)),  # one of the row's own
            copy.last.eq(1),
            item.weight.eq(Mux(setting.weighted, weight.value, 0x3F800000)),
            item.kind.eq(kind),
            item.index.eq(Mux(setting.updates, self.bags, done)),
            item.last.eq(last),
            item.closes.eq(closes),
            item.empty.eq(empty),
            item.slot_fault.eq(Mux(setting.listed & summands, slot.fault, 0)),
        ]

        def next_kind():
            """Of an UPDATE, behind the last gradient."""
            with m.If(item.last):
                m.d.sync += kind.eq(ReadKind.SUMMAND)
            with m.Else():
                m.d.sync += kind.eq(Mux(summands, ReadKind.ROW, ReadKind.STATE))

        def without_row():
            m.d.comb += [copy.unread.eq(1), copy.row.eq(0), copy.slot_fault.eq(0)]
            with m.If(known):
                m.d.comb += [
                    copy.table.eq(first.value.table),
                    copy.unknown.eq(first.value.table >= self.config.tables),
                    copy.entry_fault.eq(first.fault),
                ]

        lists = {name: getattr(self, name) for name in over}
        for name, one in lists.items():
            with m.If(one.valid & one.ready & one.p.last):
                m.d.sync += over[name].eq(1)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    known.eq(0), inside.eq(0), at.eq(0), done.eq(0), kind.eq(ReadKind.SUMMAND),
                    left.eq(setting.items),
                    over["rows"].eq(0), over["lengths"].eq(0),
                    over["targets"].eq(~setting.listed), over["weights"].eq(~setting.weighted),
                ]
                with m.If(self.start):
                    m.d.sync += [self.ended.eq(0), self.bags.eq(0)]
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.next = "WALK"
            with m.State("WALK"):
                here = Signal()
                m.d.comb += [
                    here.eq(self.lengths.valid & ~wrong
                            & (self.targets.valid | ~setting.listed | ~summands)
                            & (self.rows.valid | empty & known)
                            & (self.weights.valid | ~setting.weighted | empty)),
                    self.copies.valid.eq(here & self.items.ready),
                    self.items.valid.eq(here & self.copies.ready),
                    takes.eq(here & both),
                    self.rows.ready.eq(takes & Mux(setting.updates, last, ~empty)),
                    self.weights.ready.eq(takes & ~empty & setting.weighted),
                    self.lengths.ready.eq(takes & last),
                    self.targets.ready.eq(
                        takes & Mux(setting.updates, summands, last) & setting.listed),
                ]
                with m.If(empty):
                    without_row()
                with m.If(takes):
                    m.d.sync += [
                        known.eq(1),
                        inside.eq(~last),
                        at.eq(Mux(summands & ~closes, at + 1, 0)),
                    ]
                    with m.If(~known):
                        m.d.sync += first.eq(row)
                    with m.If(summands & ~empty):
                        m.d.sync += [done.eq(done + 1), left.eq(left - 1)]
                    with m.If(closes | ~summands):
                        next_kind()
                    with m.If(last):
                        m.d.sync += self.bags.eq(self.bags + 1)
                        with m.If(self.lengths.p.last):
                            m.next = "ADDED UP"
                m.d.sync += [stray.eq(Status.LOOKUPS), stray_index.eq(done + length)]
                with m.If(self.lengths.valid & wrong):
                    with m.If(self.lengths.p.fault != 0):
                        m.d.sync += [
                            stray.eq(Status.SLVERR - 1 + self.lengths.p.fault),
                            stray_index.eq(done),
                        ]
                    m.next = "STRAY"
            with m.State("ADDED UP"):
                m.d.sync += stray_index.eq(done)
                m.next = "DRAIN"
                with m.If(left != 0):
                    m.next = "STRAY"
            with m.State("STRAY"):
                without_row()
                m.d.comb += [
                    item.stray.eq(stray),
                    item.index.eq(stray_index),
                    item.closes.eq(summands),
                    item.empty.eq(summands),
                    self.copies.valid.eq((known | self.rows.valid) & self.items.ready),
                    self.items.valid.eq((known | self.rows.valid) & self.copies.ready),
                ]
                with m.If(~setting.updates):
                    m.d.comb += item.last.eq(1)
                with m.If(self.copies.valid & self.copies.ready):
                    next_kind()
                    with m.If(item.last):
                        m.d.sync += self.bags.eq(self.bags + 1)
                        m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.comb += [one.ready.eq(~over[name]) for name, one in lists.items()]
                with m.If(Cat(over.values()).all()):
                    m.d.sync += self.ended.eq(1)
                    m.next = "IDLE"
        return m
