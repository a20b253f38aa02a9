"""Ring of banks: beats of requests go out to the banks and come back in order with the answers."""

from amaranth import Array, Cat, Module, ResetInserter, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bank_feed import BankFeed
from .bank_layouts import answered_beat, ring_beat
from .config import RING_BEATS, Config, log2
from .fifo import RamFifo
from .ram import Ram
from .skid import Skid


class BankRing(wiring.Component):
    """Ask the banks on behalf of beats of lanes, and return the beats in order.

    A bank sees its lanes in the order of beats, and within one in the order of lanes. So what it
    answers does not depend on when the other banks answer.

    Parameters
    ----------
    config : Config
    carried, request, answer : ShapeCastable
        What stays with a beat, what a lane asks, what it is told.
    beats : int, optional
        Places for beats, a power of two.

    Members
    -------
    beats : In(stream(ring_beat(config, carried, request)))
    requests : Out(stream(request)).array(config.banks)
    answers : In(stream(answer, always_ready=True)).array(config.banks)
        One for each request of that bank, in its order, at any time from the cycle after it was
        taken.
    answered : Out(stream(answered_beat(config, carried, answer)))
    idle : Out(1)
        No beat is inside.
    restart : In(1)
        A pulse drops everything. Restarts the banks too: they answer nothing asked before.

    Timing
    ------
    A request leaves `BankFeed.latency` cycles after its beat came; the beat follows `latency`
    cycles after the last answer to it, or `latency` + 1 after it came if it asks for nothing. One
    beat a cycle while the banks keep up. Up to `beats` are inside, the few at the exit not
    counted, and up to `BACKLOG` of those wait for one bank.
    """

    latency = 4  # done, read, two steps of selection

    def __init__(self, config: Config, carried, request, answer, *, beats=RING_BEATS):
        self.config, self._beats = config, beats
        self._carried, self._request, self._answer = carried, request, answer
        super().__init__({
            "beats": In(stream.Signature(ring_beat(config, carried, request))),
            "requests": Out(stream.Signature(request)).array(config.banks),
            "answers": In(stream.Signature(answer, always_ready=True)).array(config.banks),
            "answered": Out(stream.Signature(answered_beat(config, carried, answer))),
            "idle": Out(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        # Opaque bits from here: every field of a signal is a name in the Verilog.
        carried, *widths = (Shape.cast(shape).width
                            for shape in (self._carried, self._request, self._answer))
        kept = data.StructLayout({
            "carried": carried, "banks": data.ArrayLayout(log2(c.banks), c.lanes)})
        m.submodules.kept = rows = Ram(kept, self._beats)

        entry, oldest = Signal(range(self._beats)), Signal(range(self._beats))
        m.submodules.order = order = RamFifo(c.banks, self._beats)  # banks that each beat asks
        open_ = Signal(init=1)  # decided a cycle ahead, for its many readers
        enter, leave = Signal(), Signal()
        out = answered_beat(c, self._carried, self._answer)
        m.submodules.exit = exit_ = ResetInserter(self.restart)(Skid(out.size))
        advance = exit_.i.ready  # a register, for the many that it moves
        m.d.comb += [
            self.beats.ready.eq(open_),
            enter.eq(self.beats.valid & self.beats.ready),
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

        feeds = []
        for number in range(c.banks):
            m.submodules[f"feed{number}"] = feed = BankFeed(c, *widths, self._beats)
            feeds.append(feed)
            m.d.comb += [
                feed.enter.eq(enter),
                feed.slot.eq(entry),
                feed.mask.eq(Cat(lane.valid for lane in self.beats.p.lanes)
                             & Cat(lane.bank == number for lane in self.beats.p.lanes)),
                feed.requests.eq(Cat(lane.request for lane in self.beats.p.lanes)),
                order.i.p[number].eq(feed.mask.any()),
                feed.leave.eq(leave & order.o.p[number]),
                feed.read.eq(leave),
                feed.read_slot.eq(oldest),
                feed.restart.eq(self.restart),
            ]
            connect(m, feed=feed.request, bank=flipped(self.requests[number]))
            connect(m, bank=flipped(self.answers[number]), feed=feed.answer)
        done, rooms = Cat(feed.done for feed in feeds), Cat(feed.room for feed in feeds)
        m.d.comb += leave.eq(order.o.valid & (done | ~order.o.p).all() & advance)
        m.d.sync += open_.eq((order.level <= self._beats - 2) & rooms.all())

        m.d.comb += [
            rows.write_enable.eq(enter),
            rows.write_address.eq(entry),
            rows.write_data.carried.eq(Value.cast(self.beats.p.carried)),
            [bank.eq(lane.bank) for bank, lane in zip(rows.write_data.banks, self.beats.p.lanes)],
            rows.read_enable.eq(leave),
            rows.read_address.eq(oldest),
        ]
        read, chosen = Signal(), Signal()  # stages of the exit that hold a beat
        m.d.comb += self.idle.eq((order.level == 0) & ~read & ~chosen & ~self.answered.valid)
        with m.If(advance):
            m.d.sync += [read.eq(leave), chosen.eq(read)]
        m.d.comb += exit_.i.valid.eq(chosen)
        self._select(m, advance, rows.read_data, [feed.answers for feed in feeds],
                     data.View(out, exit_.i.p))
        with m.If(self.restart):
            m.d.sync += [
                entry.eq(0), oldest.eq(0),
                read.eq(0), chosen.eq(0),
            ]
        return m

    def _select(self, m, advance, beat, answers, out):
        """From the stage `read` to the exit: each lane's answer, by the low bits of its bank's
        number first."""
        banks, bits = self.config.banks, log2(self.config.banks)
        low = (bits + 1) // 2
        kept = Signal.like(beat, name="kept_chosen", reset_less=True)
        with m.If(advance):
            m.d.sync += kept.eq(beat)
        m.d.comb += [
            Value.cast(out.carried).eq(kept.carried),
            out.banks.eq(kept.banks),
        ]
        for lane in range(self.config.lanes):
            groups = []
            for first in range(0, banks, 1 << low):
                group = Signal.like(answers[first][lane], reset_less=True,
                                    name=f"chosen{lane}_{first}")
                words = Array(answers[first + n][lane] for n in range(1 << low))
                with m.If(advance):
                    m.d.sync += group.eq(words[beat.banks[lane][:low]])
                groups.append(group)
            m.d.comb += Value.cast(out.answers[lane]).eq(Array(groups)[kept.banks[lane][low:]])
