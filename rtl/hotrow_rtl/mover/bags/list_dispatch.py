"""BagDispatch: the lists of a POOL or UPDATE, divided into bags for several bag units.

Design of a card with several bag units: bag b belongs to unit b mod `bag_units`, with all its
reads, so that the additions of a bag, and their order, are those of a card with one unit.

    lists -> BagGroups -> BagDispatch -> queue per unit -> BagUnit
    BagDispatch -> SummandLane of each list lane -> queue per lane and unit -> BagUnit
    BagUnit -> address lane of its number -> ReadCredits -> AddressCrossbar -> row port
    row port -> ReadReturn -> queue per port and unit -> BagUnit -> ResultDemux -> row port

A read leaves its unit only with a reservation for all its words in the queue that it returns to:
a row port never waits for a unit, and no unit waits for another.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...primitives.bits import onehot_mux, popcount
from .payloads import bag_group, bag_item, bag_setting, list_row, segment


class BagDispatch(wiring.Component):
    """Check the lengths of bags, and send each bag to its unit and to the lanes of its list.

    If the lengths do not add up to the number of summands, one more bag carries the error, no
    further bag is sent, and the rest of the lists is dropped.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    setting : In(bag_setting())
        Stable from `start` until the command completes.
    groups : In(stream(bag_group(config)))
    first_row, first_row_valid : In
        The first element of the list of rows, valid once it has come, until it is transferred.
    summands_ended : In(1)
        Every element of the list of summands has left it.
    begin : Out(1)
        A pulse before the first bag; `common_row` is valid from then on.
    common_row : Out(list_row(config))
        The first listed row, whose table sets the format of all rows.
    bags : Out(stream(bag_item(config))).array(config.bag_units)
    segments : Out(stream(segment(config))).array(config.row_ports)
        The summands of each group, for every lane of their list. A `valid` waits for the `ready`
        of all `bags` and `segments`.
    bag_count : Out(32)
        Bags sent, valid with `done`.
    done : Out(1)
        The lists have ended.

    Timing
    ------
    Combinational from groups to bags; a group, which has a bag for every unit, per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            "groups": In(stream.Signature(bag_group(config))),
            "first_row": In(list_row(config)),
            "first_row_valid": In(1),
            "summands_ended": In(1),
            "begin": Out(1),
            "common_row": Out(list_row(config)),
            "bags": Out(stream.Signature(bag_item(config))).array(config.bag_units),
            "segments": Out(stream.Signature(segment(config))).array(config.row_ports),
            "bag_count": Out(32),
            "done": Out(1, init=1),
        })

    def elaborate(self, platform):
        m = Module()
        setting, groups, group, units = self.setting, self.groups, self.groups.p, len(self.bags)
        position, left_count = Signal(32), Signal(32)  # summands sent, and still to come
        ends = [Signal(32, name=f"end_{unit}") for unit in range(units)]
        kept, wrong = Signal(units), Signal(units)  # bags that are sent; the first that is not
        kept_count, sent_count = Signal(range(units + 1)), Signal(range(units + 1))
        send, ready, reports, ended, has_summands = (
            Signal(name=name) for name in ("send", "ready", "reports", "ended", "has_summands"))
        list_error, error_index, error_unit = Signal(8), Signal(32), Signal(range(units))
        part = Signal(segment(self.config))

        # A group goes to all units and lanes in the same cycle, once all are ready.
        m.d.comb += [
            ready.eq(Cat(one.ready for one in [*self.bags, *self.segments]).all()),
            has_summands.eq(~setting.updates | setting.listed),
            wrong.eq(Cat(bag.present for bag in group.bags) & ~kept & (kept << 1 | 1)),
            kept_count.eq(popcount(m, kept)),
            part.keep.eq(Mux(has_summands, kept, 0)),
            part.drop.eq(group.last | wrong.any()),
        ]
        for unit, (bag, out) in enumerate(zip(group.bags, self.bags, strict=True)):
            m.d.comb += [
                ends[unit].eq(position + bag.end),
                kept[unit].eq(bag.sound & (bag.end <= left_count)),
                part.ends[unit].eq(ends[unit]),
                out.valid.eq(ready & Mux(reports, error_unit == unit, send & kept[unit])),
                out.p.entry.eq(bag.entry),
                out.p.length.eq(bag.length),
                out.p.position.eq(
                    Mux(reports, error_index, ends[unit - 1] if unit else position)),
                out.p.list_error.eq(Mux(reports, list_error, 0)),
            ]
        for one in self.segments:
            m.d.comb += [one.p.eq(part), one.valid.eq(send & ready)]

        m.d.sync += [sent_count.eq(0), self.bag_count.eq(self.bag_count + sent_count)]
        with m.If(groups.valid & groups.ready & group.last):
            m.d.sync += ended.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [position.eq(0), left_count.eq(setting.summands), ended.eq(0)]
                with m.If(self.start):
                    m.d.sync += [self.done.eq(0), self.bag_count.eq(0)]
                    m.next = "FIRST ROW"
            with m.State("FIRST ROW"):
                m.d.sync += self.common_row.eq(self.first_row)
                with m.If(self.first_row_valid):
                    m.d.sync += self.begin.eq(1)
                    m.next = "WALK"
            with m.State("WALK"):
                fault = onehot_mux(wrong, [bag.fault for bag in group.bags])
                m.d.comb += [send.eq(groups.valid), groups.ready.eq(ready)]
                m.d.sync += [
                    self.begin.eq(0),
                    error_unit.eq(kept_count),
                    error_index.eq(onehot_mux(wrong, ends)),
                    list_error.eq(Mux(fault != 0, Status.SLVERR - 1 + fault, Status.LOOKUPS)),
                ]
                with m.If(send & ready):
                    m.d.sync += [
                        sent_count.eq(kept_count),
                        position.eq(position + group.bags[-1].end),
                        left_count.eq(left_count - group.bags[-1].end),
                    ]
                    with m.If(wrong.any()):
                        m.next = "LIST ERROR"
                    with m.Elif(group.last):
                        m.next = "LENGTHS ENDED"
            with m.State("LENGTHS ENDED"):
                m.d.sync += [list_error.eq(Status.LOOKUPS), error_index.eq(position)]
                m.next = "DRAIN"
                with m.If(left_count != 0):
                    m.next = "LIST ERROR"
            with m.State("LIST ERROR"):
                m.d.comb += reports.eq(1)
                with m.If(ready):
                    m.d.sync += sent_count.eq(1)
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.comb += groups.ready.eq(1)
                with m.If(ended & (self.summands_ended | ~has_summands)):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
        return m


class SummandLane(wiring.Component):
    """Send every `row_ports`-th summand of a list, starting with number `lane`, to its bag's unit.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    lane : In(range(config.row_ports))
        Constant.
    start : In(1)
        A pulse before each command.
    segments : In(stream(segment(config)))
        The bags in order. After one with `drop` all further summands are dropped until `start`.
    valid, ready : In, Out
        Handshake of the lane's summands.
    unit_valid, unit_ready : Out, In, config.bag_units bits each
        Handshake with the queue of each unit.

    Timing
    ------
    Combinational; a summand per cycle, and the end of a segment per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "lane": In(range(config.row_ports)),
            "start": In(1),
            "segments": In(stream.Signature(segment(config))),
            "valid": In(1),
            "ready": Out(1),
            "unit_valid": Out(config.bag_units),
            "unit_ready": In(config.bag_units),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, new = self.config.row_ports, self.segments
        held, current = Signal.like(new.p), Signal.like(new.p)
        # Positions of the lane's next summand and the one after it, as those of a segment.
        place, following = (Signal.like(new.p.ends[0], name=name)
                            for name in ("place", "following"))
        loads, drops = Signal(init=1), Signal()
        active, fire, passes, ends = Signal(), Signal(), Signal(), Signal()
        below = Signal(self.config.bag_units)  # bags that the summand belongs to, or comes before
        m.d.comb += [
            current.eq(Mux(loads, new.p, held)),
            active.eq(~drops & (~loads | new.valid)),
            below.eq(Cat(_before(place, end) for end in current.ends) & current.keep),
            self.unit_valid.eq(Mux(active & self.valid, below & ~(below << 1), 0)),
            fire.eq((self.unit_valid & self.unit_ready).any()),
            passes.eq(active & (fire | ~below.any())),
            ends.eq(~below.any() | ~_before(following, current.ends[-1])),
            self.ready.eq(fire | drops),
            new.ready.eq(loads & passes),
        ]
        with m.If(fire):
            m.d.sync += [place.eq(following), following.eq(following + lanes)]
        with m.If(passes):
            m.d.sync += [held.eq(current), loads.eq(ends), drops.eq(ends & current.drop)]
        with m.If(self.start):
            m.d.sync += [place.eq(self.lane), following.eq(self.lane + lanes), loads.eq(1),
                         drops.eq(0)]
        return m


def _before(place, end):
    """Whether a position lies before an end, of both of which the lowest bits are given."""
    return (place - end)[len(end) - 1]
