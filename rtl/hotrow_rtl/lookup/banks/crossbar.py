"""Ring of banks: beats of requests go out to the banks and come back in order with the answers."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, ResetInserter, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import RING_BEATS, Config, log2
from ...interfaces.lookup_payloads import crossbar_request, crossbar_response
from ...primitives.fifo import RamFifo
from ...primitives.ram import Ram
from ...primitives.replicated_register import replicated
from ...primitives.shared_module import shared_instance
from ...primitives.skid_buffer import SkidBuffer
from .bank_queue import BankQueue

LOGIC_ROWS = 16  # of a memory made of logic


class BankCrossbar(wiring.Component):
    """Ask the banks on behalf of beats of lanes, and return the beats in order.

    A bank sees its lanes in the order of beats, and within one in the order of lanes. So what it
    answers does not depend on when the other banks answer.

    Parameters
    ----------
    config : Config
    carried, request, shared, answer : ShapeCastable
        What stays with a beat, what a lane asks, what all lanes of a beat ask besides, and what
        each is told.
    beats : int, optional
        Places for beats, a power of two.

    Members
    -------
    beats : In(stream(crossbar_request(config, carried, request, shared)))
    requests : Out(stream(request and shared)).array(config.banks)
        What is shared in the high bits.
    answers : In(stream(answer, always_ready=True)).array(config.banks)
        One for each request of that bank, in its order, at any time from the cycle after it was
        taken.
    answered : Out(stream(crossbar_response(config, carried, answer)))
    idle : Out(1)
        No beat is inside.
    restart : In(1)
        A pulse drops everything. Restarts the banks too: they answer nothing asked before.

    Timing
    ------
    A request leaves 1 + `BankQueue.latency` cycles after its beat came; the beat follows `latency`
    cycles after the last answer to it, or `latency` + 1 after it came if it asks for nothing. One
    beat a cycle while the banks keep up. Up to `beats` are inside, the few at the exit not
    counted, and up to `BACKLOG` of those wait for one bank.
    """

    latency = 4  # done, read, select, exit

    def __init__(self, config: Config, carried, request, shared, answer, *, beats=RING_BEATS):
        self.config, self._beats = config, beats
        self._carried, self._request, self._shared = carried, request, shared
        self._answer = answer
        asked = Shape.cast(request).width + Shape.cast(shared).width
        super().__init__({
            "beats": In(stream.Signature(crossbar_request(config, carried, request, shared))),
            "requests": Out(stream.Signature(asked)).array(config.banks),
            "answers": In(stream.Signature(answer, always_ready=True)).array(config.banks),
            "answered": Out(stream.Signature(crossbar_response(config, carried, answer))),
            "idle": Out(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        # Opaque bits from here: every field of a signal is a name in the Verilog.
        carried, *widths = (Shape.cast(shape).width
                            for shape in (self._carried, self._request, self._shared,
                                          self._answer))
        m.submodules.kept = rows = Ram(carried, self._beats, block=self._beats > LOGIC_ROWS)

        entry, oldest = Signal(range(self._beats)), Signal(range(self._beats))
        # Which banks each beat asks, and the bank of each lane.
        asked = data.StructLayout({
            "any": c.banks, "banks": data.ArrayLayout(log2(c.banks), c.lanes)})
        m.submodules.order = order = RamFifo(asked, self._beats)
        oldest_asks = order.o.p
        # Decided a cycle ahead, for its many readers, and told those who ask from a register.
        open_, opens = Signal(init=1), Signal()
        enter, leave = Signal(), Signal()
        out = crossbar_response(c, self._carried, self._answer)
        skid = SkidBuffer(out.size)
        m.submodules.exit = exit_ = ResetInserter(self.restart)(skid)
        advance = exit_.i.ready  # a register, for the many that it moves
        may_leave = replicated(m, "may_leave", skid.ready_next | self.restart, init=1)  # the same, for it
        m.d.comb += [
            self.beats.ready.eq(replicated(m, "opens", opens, init=1)),
            enter.eq(self.beats.valid & open_),
            self.answered.valid.eq(exit_.o.valid),
            Value.cast(self.answered.p).eq(exit_.o.p),
            exit_.o.ready.eq(self.answered.ready),
            order.i.valid.eq(enter),
            order.o.ready.eq(leave),
            order.clear.eq(self.restart),
        ]
        with m.If(enter):
            m.d.sync += entry.eq(entry + 1)
        with m.If(leave):
            m.d.sync += oldest.eq(oldest + 1)

        # One step on the way to the banks, as every lane may go to each.
        comes, place = Signal(), Signal.like(entry, reset_less=True)
        masks = Signal(data.ArrayLayout(c.lanes, c.banks), reset_less=True)
        requests, shared = (Signal(width, name=name, reset_less=True) for name, width in (
            ("requests", c.lanes * widths[0]), ("shared", widths[1])))
        lanes = self.beats.p.lanes
        m.d.sync += [
            comes.eq(enter),
            place.eq(entry),
            requests.eq(Cat(lane.request for lane in lanes)),
            shared.eq(self.beats.p.shared),
        ]
        feeds = []
        for number in range(c.banks):
            feed = BankQueue(c, *widths, self._beats)
            m.submodules[f"feed{number}"] = shared_instance(platform, feed)
            feeds.append(feed)
            m.d.comb += [
                feed.enter.eq(comes),
                feed.slot.eq(place),
                feed.mask.eq(masks[number]),
                feed.requests.eq(requests),
                feed.shared.eq(shared),
                order.i.p.any[number].eq(
                    Cat(lane.valid & (lane.bank == number) for lane in lanes).any()),
                feed.leave.eq(leave & oldest_asks.any[number]),
                feed.read.eq(advance),
                feed.read_slot.eq(oldest),
                [wanted.eq(bank == number)
                 for wanted, bank in zip(feed.wanted, oldest_asks.banks)],
                feed.restart.eq(self.restart),
            ]
            m.d.sync += masks[number].eq(
                Cat(lane.valid & (lane.bank == number) for lane in lanes))
            connect(m, feed=feed.request, bank=flipped(self.requests[number]))
            connect(m, bank=flipped(self.answers[number]), feed=feed.answer)
        done, rooms = Cat(feed.done for feed in feeds), Cat(feed.room for feed in feeds)
        m.d.comb += [
            leave.eq(order.o.valid & (done | ~oldest_asks.any).all() & may_leave),
            opens.eq((order.level <= self._beats - 2) & rooms.all()),
        ]
        m.d.sync += open_.eq(opens)

        m.d.comb += [
            rows.write_enable.eq(enter),
            rows.write_address.eq(entry),
            rows.write_data.eq(Value.cast(self.beats.p.carried)),
            [bank.eq(lane.bank) for bank, lane in zip(order.i.p.banks, lanes)],
            # Whether or not it leaves: that is known late.
            rows.read_enable.eq(advance),
            rows.read_address.eq(oldest),
        ]
        read, chosen = Signal(), Signal()  # stages of the exit that hold a beat
        read_banks = Signal.like(oldest_asks.banks.as_value(), reset_less=True)
        leaving = Signal(out, reset_less=True)
        m.d.comb += self.idle.eq((order.level == 0) & ~read & ~chosen & ~self.answered.valid)
        with m.If(advance):
            m.d.sync += [
                read.eq(leave),
                read_banks.eq(oldest_asks.banks),
                chosen.eq(read),
                Value.cast(leaving.carried).eq(rows.read_data),
                leaving.banks.eq(read_banks),
                # All banks but the one that a lane asked say zero.
                [Value.cast(leaving.answers[lane]).eq(
                    reduce(or_, (feed.answers[lane] for feed in feeds)))
                 for lane in range(c.lanes)],
            ]
        m.d.comb += [exit_.i.valid.eq(chosen), exit_.i.p.eq(leaving)]
        with m.If(self.restart):
            m.d.sync += [
                entry.eq(0), oldest.eq(0), comes.eq(0),
                read.eq(0), chosen.eq(0),
            ]
        return m
