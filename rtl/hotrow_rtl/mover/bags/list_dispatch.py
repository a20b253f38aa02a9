"""BagDispatch: the lists of a POOL or UPDATE, divided into bags for several bag units.

Design of a card with several bag units: bag b belongs to unit b mod `bag_units`, with all its
reads, so that the additions of a bag, and their order, are those of a card with one unit.

    lists -> BagDispatch -> SummandLane of each list lane -> queue per lane and unit -> BagUnit
    BagUnit -> address lane of its number -> ReadCredits -> AddressCrossbar -> row port
    row port -> ReadReturn -> queue per port and unit -> BagUnit -> ResultDemux -> row port

A read leaves its unit only with a reservation for all its words in the queue that it returns to:
a row port never waits for a unit, and no unit waits for another.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.records import element
from .payloads import LENGTH_WIDTH, bag_item, bag_setting, list_element, list_row, segment


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
    lengths : In(stream(element(16)))
    entries : In(stream(list_element(config)))
        The list with an element per bag: the rows of an UPDATE, the targets of a POOL.
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
        The summands of each bag, for every lane of their list.
    bag_count : Out(32)
        Bags sent.
    done : Out(1)
        The lists have ended.

    Timing
    ------
    Combinational from lists to bags; one bag per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            "lengths": In(stream.Signature(element(LENGTH_WIDTH))),
            "entries": In(stream.Signature(list_element(config))),
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
        config, setting, lengths, entries = self.config, self.setting, self.lengths, self.entries
        length, item = lengths.p.value, Signal(bag_item(config))
        position, left_count = Signal(32), Signal(32)  # summands sent, and still to come
        unit = Signal(range(config.bag_units))
        entry_ended, length_ended = Signal(), Signal()
        send, ready, lists_valid, wrong = Signal(), Signal(), Signal(), Signal()
        has_entries, has_summands = Signal(), Signal()
        list_error, error_index = Signal(8), Signal(32)
        part = Signal(segment(config))
        drops = Signal()  # segments are for `drop`

        # A bag goes to its unit and to every lane in the same cycle, once all are ready.
        readies = [one.ready for one in self.segments]
        unit_ready = Signal()
        with m.Switch(unit):
            for number, one in enumerate(self.bags):
                with m.Case(number):
                    m.d.comb += unit_ready.eq(one.ready)
        m.d.comb += ready.eq(unit_ready & _all(readies))
        for number, one in enumerate(self.bags):
            m.d.comb += [one.p.eq(item), one.valid.eq(send & _all(readies) & (unit == number))]
        for number, one in enumerate(self.segments):
            others = readies[:number] + readies[number + 1:]
            m.d.comb += [
                one.p.eq(part),
                one.valid.eq(Mux(drops, 1, send & unit_ready) & _all(others)),
            ]
        m.d.comb += [
            has_entries.eq(setting.updates | setting.listed),
            has_summands.eq(~setting.updates | setting.listed),
            wrong.eq((lengths.p.fault != 0) | (length > left_count)
                     | setting.updates & (length == 0)),
            lists_valid.eq(lengths.valid & (entries.valid | ~has_entries)),
            item.entry.eq(entries.p.row),
            item.length.eq(length),
            item.position.eq(position),
            part.unit.eq(unit),
            part.length.eq(Mux(has_summands, length, 0)),
            part.drop.eq(drops),
        ]
        with m.If(send & ready):
            m.d.sync += [
                unit.eq(Mux(unit == config.bag_units - 1, 0, unit + 1)),
                self.bag_count.eq(self.bag_count + 1),
            ]
        with m.If(lengths.valid & lengths.ready & lengths.p.last):
            m.d.sync += length_ended.eq(1)
        with m.If(entries.valid & entries.ready & entries.p.last):
            m.d.sync += entry_ended.eq(1)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [position.eq(0), left_count.eq(setting.summands), unit.eq(0),
                             length_ended.eq(0), entry_ended.eq(~has_entries)]
                with m.If(self.start):
                    m.d.sync += [self.done.eq(0), self.bag_count.eq(0)]
                    m.next = "FIRST ROW"
            with m.State("FIRST ROW"):
                m.d.sync += self.common_row.eq(self.first_row)
                with m.If(self.first_row_valid):
                    m.d.sync += self.begin.eq(1)
                    m.next = "WALK"
            with m.State("WALK"):
                m.d.sync += self.begin.eq(0)
                m.d.comb += [
                    send.eq(lists_valid & ~wrong),
                    lengths.ready.eq(send & ready),
                    entries.ready.eq(send & ready & has_entries),
                ]
                m.d.sync += [
                    list_error.eq(Mux(lengths.p.fault != 0, Status.SLVERR - 1 + lengths.p.fault,
                                      Status.LOOKUPS)),
                    error_index.eq(position + Mux(lengths.p.fault != 0, 0, length)),
                ]
                with m.If(send & ready):
                    m.d.sync += [position.eq(position + length),
                                 left_count.eq(left_count - length)]
                    with m.If(lengths.p.last):
                        m.next = "LENGTHS ENDED"
                with m.Elif(lengths.valid & wrong):
                    m.next = "LIST ERROR"
            with m.State("LENGTHS ENDED"):
                m.d.sync += error_index.eq(position)
                m.next = "DROP"
                with m.If(left_count != 0):
                    m.d.sync += list_error.eq(Status.LOOKUPS)
                    m.next = "LIST ERROR"
            with m.State("LIST ERROR"):
                m.d.comb += [
                    send.eq(1),
                    item.list_error.eq(list_error),
                    item.position.eq(error_index),
                    part.length.eq(0),
                ]
                with m.If(ready):
                    m.next = "DROP"
            with m.State("DROP"):
                m.d.comb += drops.eq(1)
                with m.If(_all(readies)):
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.comb += [lengths.ready.eq(~length_ended), entries.ready.eq(~entry_ended)]
                with m.If(length_ended & entry_ended & (self.summands_ended | ~has_summands)):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
        return m


def _all(signals):
    """All of the signals, true if there is none."""
    value = 1
    for signal in signals:
        value = value & signal
    return value


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
        The bags in order. With `drop` all further summands are dropped until `start`.
    valid, ready : In, Out
        Handshake of the lane's summands.
    unit_valid, unit_ready : Out, In, config.bag_units bits each
        Handshake with the queue of each unit.

    Timing
    ------
    Combinational; a summand per cycle, and the end of a bag per cycle.
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
        # Summands of the bag from the lane's next one on, not above 0 after the bag's last.
        left, current = (Signal(range(-lanes, 1 << LENGTH_WIDTH), name=name)
                         for name in ("left", "current"))
        unit_q, unit = Signal.like(new.p.unit), Signal.like(new.p.unit)
        loads, active, inside, fire, drops = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            loads.eq(left <= 0),
            current.eq(Mux(loads, left + new.p.length, left)),
            active.eq(~drops & (~loads | new.valid & ~new.p.drop)),
            unit.eq(Mux(loads, new.p.unit, unit_q)),
            inside.eq(current > 0),
            fire.eq(active & inside & self.valid & self.unit_ready.bit_select(unit, 1)),
            self.ready.eq(fire | drops),
            new.ready.eq(~drops & loads & (~inside | fire | new.p.drop)),
        ]
        for number in range(self.config.bag_units):
            m.d.comb += self.unit_valid[number].eq(
                active & inside & self.valid & (unit == number))
        with m.If(active & (fire | ~inside)):
            m.d.sync += [left.eq(current - Mux(inside, lanes, 0)), unit_q.eq(unit)]
        with m.If(new.valid & new.ready & new.p.drop):
            m.d.sync += drops.eq(1)
        with m.If(self.start):
            m.d.sync += [left.eq(-self.lane), drops.eq(0)]
        return m
