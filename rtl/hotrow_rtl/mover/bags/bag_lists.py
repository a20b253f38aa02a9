"""BagLists: the lists of a POOL or UPDATE, from their lanes to the queues of several bag units."""

from amaranth import Array, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import element, row_entry
from ...primitives.fifo import RamFifo
from ...primitives.shared_module import shared_instance
from ...primitives.skid_buffer import SkidBuffer
from .list_dispatch import BagDispatch, SummandLane
from .payloads import (
    LENGTH_WIDTH,
    bag_item,
    bag_setting,
    list_element,
    list_row,
    segment,
    summand,
    summand_queue,
)

BAGS = 32  # that wait for one unit, or in one lane of the list of summands


class SummandQueues(wiring.Component):
    """A lane of the list of summands, and its queue for every unit.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    clear, lane, start, segments : In
        See `SummandLane`.
    summands : In(stream(summand(config)))
        Every `row_ports`-th of the list.
    units : Out(stream(summand(config))).array(config.bag_units)

    Timing
    ------
    Latency 2 cycles, one summand per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        summands = stream.Signature(summand(config))
        super().__init__({
            "clear": In(1),
            "lane": In(range(config.row_ports)),
            "start": In(1),
            "segments": In(stream.Signature(segment(config))),
            "summands": In(summands),
            "units": Out(summands).array(config.bag_units),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.segments = segments = RamFifo(segment(self.config), BAGS)
        m.submodules.distributor = distributor = SummandLane(self.config)
        connect(m, flipped(self.segments), segments.i)
        connect(m, segments=segments.o, distributor=distributor.segments)
        m.d.comb += [
            distributor.lane.eq(self.lane),
            distributor.start.eq(self.start),
            distributor.valid.eq(self.summands.valid),
            self.summands.ready.eq(distributor.ready),
        ]
        for number, out in enumerate(self.units):
            queue = RamFifo(summand(self.config), summand_queue(self.config))
            m.submodules[f"queue_{number}"] = queue
            connect(m, queue.o, flipped(out))
            m.d.comb += [
                queue.i.valid.eq(distributor.unit_valid[number]),
                queue.i.p.eq(self.summands.p),
                distributor.unit_ready[number].eq(queue.i.ready),
            ]
        return ResetInserter(self.clear)(m)


class BagLists(wiring.Component):
    """Divide the lists of a command among the bag units.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    clear : In(1)
    start, setting : In
        See `BagDispatch`.
    rows : In(stream(element(row_entry))).array(config.row_ports)
    targets, weights : In(stream(element(32))).array(config.row_ports)
    lengths : In(stream(element(16)))
        The lists of the command; element i comes in lane i mod `row_ports`.
    begin, common_row, bag_count, done : Out
        See `BagDispatch`.
    bags : Out(stream(bag_item(config))).array(config.bag_units)
    summands : Out(stream(summand(config))).array(config.bag_units, config.row_ports)
        For each `UnitRequests`.

    Timing
    ------
    One bag and `row_ports` summands per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        units, lanes = config.bag_units, config.row_ports
        super().__init__({
            "clear": In(1),
            "start": In(1),
            "setting": In(bag_setting()),
            "rows": In(stream.Signature(element(row_entry))).array(lanes),
            "targets": In(stream.Signature(element(32))).array(lanes),
            "weights": In(stream.Signature(element(32))).array(lanes),
            "lengths": In(stream.Signature(element(LENGTH_WIDTH))),
            "begin": Out(1),
            "common_row": Out(list_row(config)),
            "bag_count": Out(32),
            "done": Out(1, init=1),
            "bags": Out(stream.Signature(bag_item(config))).array(units),
            "summands": Out(stream.Signature(summand(config))).array(units, lanes),
        })

    def elaborate(self, platform):
        m = Module()
        config, setting = self.config, self.setting
        cleared = ResetInserter(self.clear)
        dispatch, entries = BagDispatch(config), SkidBuffer(list_element(config))
        m.submodules.dispatch = cleared(dispatch)
        m.submodules.entries = cleared(entries)
        connect(m, flipped(self.lengths), dispatch.lengths)
        connect(m, entries=entries.o, dispatch=dispatch.entries)
        m.d.comb += [
            dispatch.start.eq(self.start),
            dispatch.setting.eq(setting),
            self.begin.eq(dispatch.begin),
            self.common_row.eq(dispatch.common_row),
            self.bag_count.eq(dispatch.bag_count),
            self.done.eq(dispatch.done),
        ]

        # A POOL has a row, and a weight, per summand and a target per bag; an UPDATE has a target
        # per summand and a row per bag.
        lane_idx, taken_count = Signal(range(config.row_ports)), Signal(32)  # summands
        by_lane, fires = [], []
        for number, (row, target, weight) in enumerate(zip(
                self.rows, self.targets, self.weights, strict=True)):
            lane = SummandQueues(config)
            m.submodules[f"lane_{number}"] = shared_instance(platform, lane)
            listed, slot = Signal(list_row(config)), Signal(list_row(config))
            entry, entry_ready = Signal(list_element(config)), Signal()
            summands = lane.summands
            m.d.comb += [
                listed.row.eq(row.p.value.row),
                listed.table.eq(row.p.value.table),
                listed.unknown.eq(row.p.value.table >= config.tables),
                listed.fault.eq(row.p.fault),
                slot.row.eq(target.p.value),
                slot.fault.eq(target.p.fault),
                lane.clear.eq(self.clear),
                lane.lane.eq(number),
                lane.start.eq(self.start),
                entry_ready.eq(entries.i.ready & (lane_idx == number)),
                summands.valid.eq(Mux(setting.updates, target.valid,
                                      row.valid & (weight.valid | ~setting.weighted))),
                summands.p.entry.eq(Mux(setting.updates, slot, listed)),
                summands.p.weight.eq(weight.p.value),
                summands.p.weight_fault.eq(weight.p.fault),
                entry.row.eq(Mux(setting.updates, listed, slot)),
                entry.last.eq(Mux(setting.updates, row.p.last, target.p.last)),
                row.ready.eq(Mux(setting.updates, entry_ready, summands.valid & summands.ready)),
                target.ready.eq(Mux(setting.updates, summands.ready, entry_ready)),
                weight.ready.eq(summands.valid & summands.ready & setting.weighted),
            ]
            connect(m, dispatch=dispatch.segments[number], lane=lane.segments)
            for unit in range(config.bag_units):
                connect(m, lane.units[unit], flipped(self.summands[unit][number]))
            by_lane.append((Mux(setting.updates, row.valid, target.valid), entry))
            fires.append(summands.valid & summands.ready)
            if number == 0:
                with m.If(setting.updates):
                    m.d.comb += [
                        dispatch.first_row.eq(entries.o.p.row),
                        dispatch.first_row_valid.eq(entries.o.valid),
                    ]
                with m.Else():
                    m.d.comb += [
                        dispatch.first_row.eq(listed),
                        dispatch.first_row_valid.eq(row.valid),
                    ]

        # The elements of the other list, one by one.
        m.d.comb += [
            entries.i.valid.eq(Array(valid for valid, _ in by_lane)[lane_idx]),
            entries.i.p.eq(Array(entry.as_value() for _, entry in by_lane)[lane_idx]),
            dispatch.summands_ended.eq(taken_count == setting.summands),
        ]
        m.d.sync += taken_count.eq(taken_count + sum(fires))
        with m.If(entries.i.valid & entries.i.ready):
            m.d.sync += lane_idx.eq(lane_idx + 1)
        with m.If(self.start):
            m.d.sync += [lane_idx.eq(0), taken_count.eq(0)]

        for unit, out in enumerate(self.bags):
            queue = RamFifo(bag_item(config), BAGS)
            m.submodules[f"bags_{unit}"] = cleared(queue)
            connect(m, dispatch=dispatch.bags[unit], queue=queue.i)
            connect(m, queue.o, flipped(out))
        return m
