"""Crossbar between lanes and banks: requests out of order across banks, beats back in order."""

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

LOGIC_ROWS = 16  # a memory of up to so many rows is made of LUTs


class BankCrossbar(wiring.Component):
    """Issue the requests of beats of lanes to the banks, and return the beats in order.

    A bank receives its requests in the order of beats, within a beat in the order of lanes: its
    answers do not depend on the timing of other banks.

    Parameters
    ----------
    config : Config
    carried, request, shared, answer : ShapeCastable
        The payload that the crossbar carries with a beat, the part of a request that each lane has
        to itself, the part that all lanes of a beat share, and the answer.
    beats : int, optional
        Capacity in beats, a power of two.

    Attributes
    ----------
    beats : In(stream(crossbar_request(config, carried, request, shared)))
    requests : Out(stream(request and shared)).array(config.banks)
        `shared` in the high bits.
    answers : In(stream(answer, always_ready=True)).array(config.banks)
        One per request of that bank, in order, at any time after the cycle of the request.
    answered : Out(stream(crossbar_response(config, carried, answer)))
    restart : In(1)
        A pulse drops everything. The banks must restart too.

    Timing
    ------
    A request is issued 1 + `BankQueue.latency` cycles after its beat. The beat leaves
    `latency` cycles after the last answer, or `latency` + 1 cycles after it entered if it has no
    request. One beat a cycle while the banks keep up. Up to `beats` beats are inside (those in the
    exit registers not counted), up to `bank_queue.BACKLOG` + 1 of them waiting
    for one bank.
    """

    latency = 4  # done, read, select, exit

    def __init__(self, config: Config, carried, request, shared, answer, *, beats=RING_BEATS):
        self.config, self._beats = config, beats
        self._carried, self._request, self._shared = carried, request, shared
        self._answer = answer
        width = Shape.cast(request).width + Shape.cast(shared).width
        super().__init__({
            "beats": In(stream.Signature(crossbar_request(config, carried, request, shared))),
            "requests": Out(stream.Signature(width)).array(config.banks),
            "answers": In(stream.Signature(answer, always_ready=True)).array(config.banks),
            "answered": Out(stream.Signature(crossbar_response(config, carried, answer))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        # Within the crossbar payloads are plain bits: their fields would only be names in Verilog.
        carried_width, *widths = (Shape.cast(shape).width for shape in (
            self._carried, self._request, self._shared, self._answer))
        m.submodules.carried = carried = Ram(
            carried_width, self._beats, block=self._beats > LOGIC_ROWS)

        push_slot, pop_slot = Signal(range(self._beats)), Signal(range(self._beats))
        # Of each beat: the banks that it uses, and the bank of each lane.
        usage = data.StructLayout({
            "any": c.banks, "banks": data.ArrayLayout(log2(c.banks), c.lanes)})
        m.submodules.order = order = RamFifo(usage, self._beats)
        oldest = order.o.p
        # Timing: `space` is registered once for the logic here and once for `beats.ready`.
        space, space_q = Signal(), Signal(init=1)
        push, pop = Signal(), Signal()
        out = crossbar_response(c, self._carried, self._answer)
        skid = SkidBuffer(out)
        m.submodules.exit = exit_ = ResetInserter(self.restart)(skid)
        exit_ready = exit_.i.ready
        # Timing: a copy of `exit_ready` for the path to `pop`.
        pop_ready = replicated(m, "pop_ready", skid.ready_next | self.restart, init=1)
        m.d.comb += [
            self.beats.ready.eq(replicated(m, "space", space, init=1)),
            push.eq(self.beats.valid & space_q),
            order.i.valid.eq(push),
            order.o.ready.eq(pop),
            order.clear.eq(self.restart),
        ]
        connect(m, exit=exit_.o, answered=flipped(self.answered))
        with m.If(push):
            m.d.sync += push_slot.eq(push_slot + 1)
        with m.If(pop):
            m.d.sync += pop_slot.eq(pop_slot + 1)

        # Timing: a register stage between all lanes and all banks.
        push_q, push_slot_q = Signal(), Signal.like(push_slot, reset_less=True)
        masks = Signal(data.ArrayLayout(c.lanes, c.banks), reset_less=True)
        requests, shared = (Signal(width, name=name, reset_less=True) for name, width in (
            ("requests", c.lanes * widths[0]), ("shared", widths[1])))
        lanes = self.beats.p.lanes
        m.d.sync += [
            push_q.eq(push),
            push_slot_q.eq(push_slot),
            requests.eq(Cat(lane.request for lane in lanes)),
            shared.eq(self.beats.p.shared),
        ]
        queues = []
        for number in range(c.banks):
            queue = BankQueue(c, *widths, self._beats)
            m.submodules[f"queue{number}"] = shared_instance(platform, queue)
            queues.append(queue)
            mask = Cat(lane.valid & (lane.bank == number) for lane in lanes)
            m.d.comb += [
                queue.push.eq(push_q),
                queue.slot.eq(push_slot_q),
                queue.mask.eq(masks[number]),
                queue.requests.eq(requests),
                queue.shared.eq(shared),
                order.i.p.any[number].eq(mask.any()),
                queue.pop.eq(pop & oldest.any[number]),
                queue.read.eq(exit_ready),
                queue.read_slot.eq(pop_slot),
                queue.read_lanes.eq(Cat(bank == number for bank in oldest.banks)),
                queue.restart.eq(self.restart),
            ]
            m.d.sync += masks[number].eq(mask)
            connect(m, queue=queue.request, bank=flipped(self.requests[number]))
            connect(m, bank=flipped(self.answers[number]), queue=queue.answer)
        done = Cat(queue.done for queue in queues)
        m.d.comb += [
            pop.eq(order.o.valid & (done | ~oldest.any).all() & pop_ready),
            space.eq((order.level <= self._beats - 2) & Cat(queue.space for queue in queues).all()),
        ]
        m.d.sync += space_q.eq(space)

        m.d.comb += [
            carried.write_enable.eq(push),
            carried.write_address.eq(push_slot),
            carried.write_data.eq(Value.cast(self.beats.p.carried)),
            [bank.eq(lane.bank) for bank, lane in zip(order.i.p.banks, lanes, strict=True)],
            carried.read_enable.eq(exit_ready),  # Timing: without the late `pop`
            carried.read_address.eq(pop_slot),
        ]
        read_valid, select_valid = Signal(), Signal()  # stages of the exit
        read_banks = Signal.like(oldest.banks.as_value(), reset_less=True)
        selected = Signal(out, reset_less=True)
        with m.If(exit_ready):
            m.d.sync += [
                read_valid.eq(pop),
                read_banks.eq(oldest.banks),
                select_valid.eq(read_valid),
                Value.cast(selected.carried).eq(carried.read_data),
                selected.banks.eq(read_banks),
                # Every bank but that of the lane returns 0.
                [Value.cast(selected.answers[lane]).eq(
                    reduce(or_, (queue.answers[lane] for queue in queues)))
                 for lane in range(c.lanes)],
            ]
        m.d.comb += [exit_.i.valid.eq(select_valid), exit_.i.p.eq(selected)]
        with m.If(self.restart):
            m.d.sync += [
                push_slot.eq(0), pop_slot.eq(0), push_q.eq(0),
                read_valid.eq(0), select_valid.eq(0),
            ]
        return m
