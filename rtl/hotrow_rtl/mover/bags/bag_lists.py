"""BagLists: the lists of a POOL or UPDATE, from their lanes to the queues of several bag units."""

from amaranth import Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import element, row_entry
from ...primitives.bits import popcount
from ...primitives.fifo import RamFifo
from ...primitives.shared_module import shared_instance
from ...primitives.skid_buffer import SkidBuffer
from .bag_groups import BagGroups
from .list_dispatch import BagDispatch, SummandLane
from .payloads import (
    LENGTH_WIDTH,
    bag_item,
    bag_setting,
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
    taken : Out(1)
        A pulse per summand that has gone to a unit or is dropped.

    Timing
    ------
    Latency 3 cycles, one summand per cycle.
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
            "taken": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.segments = segments = RamFifo(segment(self.config), BAGS)
        # Timing: `ready` of a lane is late, and stalls the lists of all lanes.
        m.submodules.skid = skid = SkidBuffer(summand(self.config))
        m.submodules.distributor = distributor = SummandLane(self.config)
        connect(m, flipped(self.summands), skid.i)
        connect(m, flipped(self.segments), segments.i)
        connect(m, segments=segments.o, distributor=distributor.segments)
        m.d.comb += [
            distributor.lane.eq(self.lane),
            distributor.start.eq(self.start),
            distributor.valid.eq(skid.o.valid),
            skid.o.ready.eq(distributor.ready),
        ]
        m.d.sync += self.taken.eq(skid.o.valid & skid.o.ready)
        for number, out in enumerate(self.units):
            queue = RamFifo(summand(self.config), summand_queue(self.config))
            m.submodules[f"queue_{number}"] = queue
            connect(m, queue.o, flipped(out))
            m.d.comb += [
                queue.i.valid.eq(distributor.unit_valid[number]),
                queue.i.p.eq(skid.o.p),
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
    lengths : In(stream(element(16))).array(config.bag_units)
        The lists of the command; element i comes in lane i mod the number of lanes.
    begin, common_row, bag_count, done : Out
        See `BagDispatch`.
    bags : Out(stream(bag_item(config))).array(config.bag_units)
    summands : Out(stream(summand(config))).array(config.bag_units, config.row_ports)
        For each `UnitRequests`.

    Timing
    ------
    `bag_units` bags and `row_ports` summands per cycle.
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
            "lengths": In(stream.Signature(element(LENGTH_WIDTH))).array(units),
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
        dispatch, groups = BagDispatch(config), BagGroups(config)
        m.submodules.dispatch = cleared(dispatch)
        m.submodules.groups = cleared(groups)
        for outer, inner in zip(self.lengths, groups.lengths, strict=True):
            connect(m, flipped(outer), inner)
        connect(m, groups=groups.groups, dispatch=dispatch.groups)
        m.d.comb += [
            groups.start.eq(self.start),
            groups.setting.eq(setting),
            dispatch.start.eq(self.start),
            dispatch.setting.eq(setting),
            self.begin.eq(dispatch.begin),
            self.common_row.eq(dispatch.common_row),
            self.bag_count.eq(dispatch.bag_count),
            self.done.eq(dispatch.done),
        ]

        # A POOL has a row, and a weight, per summand and a target per bag; an UPDATE has a target
        # per summand and a row per bag.
        taken, taken_count = Signal(config.row_ports), Signal(32)  # summands
        for number, (row, target, weight) in enumerate(zip(
                self.rows, self.targets, self.weights, strict=True)):
            lane = SummandQueues(config)
            m.submodules[f"lane_{number}"] = shared_instance(platform, lane)
            listed, slot = Signal(list_row(config)), Signal(list_row(config))
            summands, entry = lane.summands, groups.entries[number]
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
                summands.valid.eq(Mux(setting.updates, target.valid,
                                      row.valid & (weight.valid | ~setting.weighted))),
                summands.p.entry.eq(Mux(setting.updates, slot, listed)),
                summands.p.weight.eq(weight.p.value),
                summands.p.weight_fault.eq(weight.p.fault),
                entry.valid.eq(Mux(setting.updates, row.valid, target.valid)),
                entry.p.eq(Mux(setting.updates, listed, slot)),
                row.ready.eq(Mux(setting.updates, entry.ready, summands.valid & summands.ready)),
                target.ready.eq(Mux(setting.updates, summands.ready, entry.ready)),
                weight.ready.eq(summands.valid & summands.ready & setting.weighted),
            ]
            connect(m, dispatch=dispatch.segments[number], lane=lane.segments)
            for unit in range(config.bag_units):
                connect(m, lane.units[unit], flipped(self.summands[unit][number]))
            m.d.comb += taken[number].eq(lane.taken)
            if number == 0:
                group = groups.groups
                m.d.comb += [
                    dispatch.first_row.eq(Mux(setting.updates, group.p.bags[0].entry, listed)),
                    dispatch.first_row_valid.eq(Mux(setting.updates, group.valid, row.valid)),
                ]

        m.d.comb += dispatch.summands_ended.eq(taken_count == setting.summands)
        m.d.sync += taken_count.eq(taken_count + popcount(m, taken))
        with m.If(self.start):
            m.d.sync += taken_count.eq(0)

        for unit, out in enumerate(self.bags):
            queue = RamFifo(bag_item(config), BAGS)
            m.submodules[f"bags_{unit}"] = cleared(queue)
            connect(m, dispatch=dispatch.bags[unit], queue=queue.i)
            connect(m, queue.o, flipped(out))
        return m
