"""BagReadRequests: from the lists of a POOL or UPDATE to its reads, in order."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.records import element, row_entry
from ..port.payloads import transfer_request
from .batch_ids import BagColumn
from .payloads import LENGTH_WIDTH, ReadKind, bag_setting, batch_setting, read_info


class BagReadRequests(wiring.Component):
    """Request the reads of every bag, each with its list position, weight and slot.

    The reads of a POOL's bag are its rows. The reads of an UPDATE's bag are the gradients of one
    row, which are slots, then the row, and with Adagrad its state. An empty bag is one read without
    a row; its table is that of the first listed row. If the lengths do not add up to the number of
    summands, one more bag without rows carries the error, and no further bag is requested.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    setting : In(bag_setting())
        Stable from `start` until the command completes.
    batch : In(batch_setting(config))
        With `config.pools_batches`; also stable. The column of a bag is added to the table of its
        rows.
    rows : In(stream(element(row_entry)))
    lengths : In(stream(element(16)))
    targets, weights : In(stream(element(32)))
        The lists of the command, each to its end.
    requests : Out(stream(transfer_request(config)))
    infos : Out(stream(read_info()))
        One for each of `requests`.
    done : Out(1)
        The unit has requested every read and the lists have ended.
    bag_count : Out(32)
        Requested bags.

    Timing
    ------
    Combinational; one read per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            **({"batch": In(batch_setting(config))} if config.pools_batches else {}),
            "rows": In(stream.Signature(element(row_entry))),
            "lengths": In(stream.Signature(element(LENGTH_WIDTH))),
            "targets": In(stream.Signature(element(32))),
            "weights": In(stream.Signature(element(32))),
            "requests": Out(stream.Signature(transfer_request(config))),
            "infos": Out(stream.Signature(read_info())),
            "done": Out(1, init=1),
            "bag_count": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        setting, request, info = self.setting, self.requests.p, self.infos.p
        row, slot, weight = self.rows.p, self.targets.p, self.weights.p
        length = self.lengths.p.value
        first_row, first_row_valid = Signal(element(row_entry)), Signal()
        requested_count, left_count = Signal(32), Signal(32)  # summands
        summand_idx, kind = Signal(LENGTH_WIDTH), Signal(ReadKind)  # in this bag
        is_summand, last_summand = Signal(), Signal()
        inside, empty, last, wrong = Signal(), Signal(), Signal(), Signal()
        fire, both_ready = Signal(), Signal()
        list_error, error_index = Signal(8), Signal(32)
        # Lists that have ended.
        ended = {name: Signal(name=f"{name}_ended") for name in
                 ("rows", "lengths", "targets", "weights")}
        m.d.comb += [
            both_ready.eq(self.requests.ready & self.infos.ready),
            is_summand.eq(kind == ReadKind.SUMMAND),
            empty.eq(is_summand & ~setting.updates & (length == 0)),
            last_summand.eq(is_summand & (empty | (summand_idx + 1 == length))),
            last.eq(Mux(setting.updates, Mux(
                setting.adagrad, kind == ReadKind.STATE, kind == ReadKind.ROW), last_summand)),
            # The length of the next bag has a fault, or exceeds the summands left.
            wrong.eq(~inside & ((self.lengths.p.fault != 0) | (length > left_count)
                                | setting.updates & (length == 0))),
            request.table.eq(row.value.table),
            request.row.eq(row.value.row),
            request.unknown.eq(row.value.table >= self.config.tables),
            request.entry_fault.eq(row.fault),
            request.slot.eq(Mux(setting.listed, slot.value, Mux(
                setting.updates, requested_count, self.bag_count))),
            request.is_state.eq(kind == ReadKind.STATE),
            request.write_only.eq(~is_summand),
            # The fault of a weight refuses its row, that of a target its bag (`info.slot_fault`).
            request.slot_fault.eq(Mux(setting.weighted, weight.fault, 0)),
            request.last.eq(1),
            info.weight.eq(Mux(setting.weighted, weight.value, 0x3F800000)),
            info.kind.eq(kind),
            info.index.eq(Mux(setting.updates, self.bag_count, requested_count)),
            info.last.eq(last),
            info.last_summand.eq(last_summand),
            info.empty.eq(empty),
            info.slot_fault.eq(Mux(setting.listed & is_summand, slot.fault, 0)),
        ]

        def next_kind():
            """After the last summand: ROW and STATE of an UPDATE, then the next bag."""
            with m.If(info.last):
                m.d.sync += kind.eq(ReadKind.SUMMAND)
            with m.Else():
                m.d.sync += kind.eq(Mux(is_summand, ReadKind.ROW, ReadKind.STATE))

        bag_valid = self.lengths.valid
        if self.config.pools_batches:
            m.submodules.columns = columns = BagColumn(self.config)
            bag_valid = bag_valid & columns.ready
            m.d.comb += [
                columns.start.eq(self.start),
                columns.batch.eq(self.batch),
                columns.next.eq(fire & last),
                request.table.eq(row.value.table + columns.column),
            ]
        lists = {name: getattr(self, name) for name in ended}
        for name, one in lists.items():
            with m.If(one.valid & one.ready & one.p.last):
                m.d.sync += ended[name].eq(1)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    first_row_valid.eq(0), inside.eq(0), summand_idx.eq(0), requested_count.eq(0),
                    kind.eq(ReadKind.SUMMAND), left_count.eq(setting.summands),
                    ended["rows"].eq(0), ended["lengths"].eq(0),
                    ended["targets"].eq(~setting.listed), ended["weights"].eq(~setting.weighted),
                ]
                with m.If(self.start):
                    m.d.sync += [self.done.eq(0), self.bag_count.eq(0)]
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.next = "WALK"
            with m.State("WALK"):
                lists_valid = Signal()
                m.d.comb += [
                    lists_valid.eq(bag_valid & ~wrong
                                   & (self.targets.valid | ~setting.listed | ~is_summand)
                                   & (self.rows.valid | empty & first_row_valid)
                                   & (self.weights.valid | ~setting.weighted | empty)),
                    self.requests.valid.eq(lists_valid & self.infos.ready),
                    self.infos.valid.eq(lists_valid & self.requests.ready),
                    fire.eq(lists_valid & both_ready),
                    self.rows.ready.eq(fire & Mux(setting.updates, last, ~empty)),
                    self.weights.ready.eq(fire & ~empty & setting.weighted),
                    self.lengths.ready.eq(fire & last),
                    self.targets.ready.eq(
                        fire & Mux(setting.updates, is_summand, last) & setting.listed),
                ]
                with m.If(empty):
                    self._without_row(m, is_summand, first_row, first_row_valid)
                with m.If(fire):
                    m.d.sync += [
                        first_row_valid.eq(1),
                        inside.eq(~last),
                        summand_idx.eq(Mux(is_summand & ~last_summand, summand_idx + 1, 0)),
                    ]
                    with m.If(~first_row_valid):
                        m.d.sync += first_row.eq(row)
                    with m.If(is_summand & ~empty):
                        m.d.sync += [requested_count.eq(requested_count + 1),
                                     left_count.eq(left_count - 1)]
                    with m.If(last_summand | ~is_summand):
                        next_kind()
                    with m.If(last):
                        m.d.sync += self.bag_count.eq(self.bag_count + 1)
                        with m.If(self.lengths.p.last):
                            m.next = "LENGTHS ENDED"
                m.d.sync += [list_error.eq(Status.LOOKUPS),
                             error_index.eq(requested_count + length)]
                with m.If(self.lengths.valid & wrong):
                    with m.If(self.lengths.p.fault != 0):
                        m.d.sync += [
                            list_error.eq(Status.SLVERR - 1 + self.lengths.p.fault),
                            error_index.eq(requested_count),
                        ]
                    m.next = "LIST ERROR"
            with m.State("LENGTHS ENDED"):
                m.d.sync += error_index.eq(requested_count)
                m.next = "DRAIN"
                with m.If(left_count != 0):
                    m.next = "LIST ERROR"
            with m.State("LIST ERROR"):
                self._without_row(m, is_summand, first_row, first_row_valid)
                m.d.comb += [
                    info.list_error.eq(list_error),
                    info.index.eq(error_index),
                    info.last_summand.eq(is_summand),
                    info.empty.eq(is_summand),
                    self.requests.valid.eq((first_row_valid | self.rows.valid) & self.infos.ready),
                    self.infos.valid.eq((first_row_valid | self.rows.valid) & self.requests.ready),
                ]
                with m.If(~setting.updates):
                    m.d.comb += info.last.eq(1)
                with m.If(self.requests.valid & self.requests.ready):
                    next_kind()
                    with m.If(info.last):
                        m.d.sync += self.bag_count.eq(self.bag_count + 1)
                        m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.comb += [one.ready.eq(~ended[name]) for name, one in lists.items()]
                with m.If(Cat(ended.values()).all()):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
        return m

    def _without_row(self, m, is_summand, first_row, first_row_valid):
        """A read without a row: its table is that of the first listed row."""
        request, setting = self.requests.p, self.setting
        m.d.comb += [
            # The summand of an UPDATE is a gradient, whose size sets the formats of all rows.
            request.write_only.eq(~(setting.updates & is_summand)),
            request.row.eq(0),
            request.slot_fault.eq(0),
        ]
        with m.If(first_row_valid):
            m.d.comb += [
                request.table.eq(first_row.value.table),
                request.unknown.eq(first_row.value.table >= self.config.tables),
                request.entry_fault.eq(first_row.fault),
            ]
