"""UnitRequests: from the bags of one bag unit to their reads, in order."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ..port.payloads import transfer_request
from .batch_ids import BagColumn
from .payloads import (
    LENGTH_WIDTH,
    ReadKind,
    bag_item,
    bag_setting,
    batch_setting,
    list_row,
    read_info,
    summand,
)


class UnitRequests(wiring.Component):
    """Request the reads of every bag of one unit, as `BagReadRequests` does for all bags.

    The first request of a command is no read: it asks for the format of the first listed row, in
    `read_info` an `empty` summand that is not the last one.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    unit : In(range(config.bag_units))
        Constant.
    start : In(1)
        A pulse before each command.
    begin : In(1)
        A pulse after `start`; `common_row` is valid from then on.
    common_row : In(list_row(config))
        The first listed row of the command.
    setting : In(bag_setting())
        Stable from `start` until the command completes.
    batch : In(batch_setting(config))
        See `BagReadRequests`.
    bags : In(stream(bag_item(config)))
    summands : In(stream(summand(config))).array(config.row_ports)
        Of each lane of the list: summand i comes from lane i mod `row_ports`.
    requests : Out(stream(transfer_request(config)))
    infos : Out(stream(read_info()))
        One for each of `requests`.

    Timing
    ------
    Combinational; one read per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "unit": In(range(config.bag_units)),
            "start": In(1),
            "begin": In(1),
            "common_row": In(list_row(config)),
            "setting": In(bag_setting()),
            **({"batch": In(batch_setting(config))} if config.pools_batches else {}),
            "bags": In(stream.Signature(bag_item(config))),
            "summands": In(stream.Signature(summand(config))).array(config.row_ports),
            "requests": Out(stream.Signature(transfer_request(config))),
            "infos": Out(stream.Signature(read_info())),
        })

    def elaborate(self, platform):
        m = Module()
        config, setting, bag = self.config, self.setting, self.bags.p
        request, info = self.requests.p, self.infos.p
        asks, inside, kind = Signal(), Signal(), Signal(ReadKind)
        number, bag_number = Signal(32 - len(self.unit)), Signal(32)
        summand_idx, position, position_q = Signal(LENGTH_WIDTH), Signal(32), Signal(32)
        is_summand, empty, last_summand, last = Signal(), Signal(), Signal(), Signal()
        without_row, takes, valid, fire = Signal(), Signal(), Signal(), Signal()

        lane = position[:log2(config.row_ports)]
        head, row = Signal(summand(config)), Signal(list_row(config))
        slot = Signal(list_row(config))
        bag_valid, table = self.bags.valid, row.table
        if config.pools_batches:
            m.submodules.columns = columns = BagColumn(config)
            bag_valid, table = bag_valid & columns.ready, table + columns.column
            m.d.comb += [
                columns.unit.eq(self.unit),
                columns.start.eq(self.start),
                columns.batch.eq(self.batch),
                columns.next.eq(self.bags.valid & self.bags.ready),
            ]
        head_valid = Array(one.valid for one in self.summands)[lane]
        m.d.comb += [
            bag_number.eq(Cat(self.unit, number)),
            position.eq(Mux(inside, position_q, bag.position)),
            head.eq(Array(one.p.as_value() for one in self.summands)[lane]),
            row.eq(Mux(setting.updates, bag.entry, head.entry)),
            slot.eq(Mux(setting.updates, head.entry, bag.entry)),
            is_summand.eq(kind == ReadKind.SUMMAND),
            empty.eq(is_summand & ((bag.list_error != 0) | ~setting.updates & (bag.length == 0))),
            last_summand.eq(is_summand & (empty | (summand_idx + 1 == bag.length))),
            last.eq(Mux(setting.updates, Mux(
                setting.adagrad, kind == ReadKind.STATE, kind == ReadKind.ROW), last_summand)),
            # The read takes an element of the list of summands.
            takes.eq(is_summand & ~empty & (~setting.updates | setting.listed)),
            valid.eq(asks | bag_valid & (head_valid | ~takes)),
            self.requests.valid.eq(valid & self.infos.ready),
            self.infos.valid.eq(valid & self.requests.ready),
            fire.eq(valid & self.requests.ready & self.infos.ready),
            self.bags.ready.eq(fire & last & ~asks),

            without_row.eq(asks | empty | (bag.list_error != 0)),
            request.table.eq(table),
            request.row.eq(row.row),
            request.unknown.eq(row.unknown),
            request.entry_fault.eq(row.fault),
            request.slot.eq(Mux(setting.listed, slot.row, Mux(
                setting.updates, position, bag_number))),
            request.is_state.eq(kind == ReadKind.STATE),
            request.write_only.eq(~is_summand),
            request.slot_fault.eq(Mux(setting.weighted, head.weight_fault, 0)),
            request.last.eq(1),
            info.weight.eq(Mux(setting.weighted, head.weight, 0x3F800000)),
            info.kind.eq(kind),
            info.index.eq(Mux(
                setting.updates & (bag.list_error == 0), bag_number, position)),
            info.last.eq(last & ~asks),
            info.last_summand.eq(last_summand & ~asks),
            info.empty.eq(empty | asks),
            info.list_error.eq(Mux(asks, 0, bag.list_error)),
            info.slot_fault.eq(Mux(setting.listed & is_summand, slot.fault, 0)),
        ]
        with m.If(without_row):
            m.d.comb += [
                request.write_only.eq(~(setting.updates & is_summand)),
                request.row.eq(0),
                request.slot_fault.eq(0),
                request.table.eq(self.common_row.table),
                request.unknown.eq(self.common_row.unknown),
                request.entry_fault.eq(self.common_row.fault),
            ]
        for number_, one in enumerate(self.summands):
            m.d.comb += one.ready.eq(fire & takes & ~asks & (lane == number_))
        with m.If(fire):
            m.d.sync += asks.eq(0)
            with m.If(~asks):
                m.d.sync += [
                    inside.eq(~last),
                    position_q.eq(position + (is_summand & (bag.list_error == 0))),
                    summand_idx.eq(Mux(is_summand & ~last_summand, summand_idx + 1, 0)),
                    number.eq(number + last),
                ]
                with m.If(last):
                    m.d.sync += kind.eq(ReadKind.SUMMAND)
                with m.Elif(last_summand | ~is_summand):
                    m.d.sync += kind.eq(Mux(is_summand, ReadKind.ROW, ReadKind.STATE))
        with m.If(self.begin):
            m.d.sync += asks.eq(1)
        with m.If(self.start):
            m.d.sync += [number.eq(0), inside.eq(0), kind.eq(ReadKind.SUMMAND), summand_idx.eq(0)]
        return m
