"""Mark rounds: which words of marks the lanes of a beat touch, two words at a time."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...primitives.skid_buffer import SkidBuffer

PARITIES = range(2)


def marked_beat(config: Config) -> data.StructLayout:
    """Samples of the lookups of one cycle; those whose bit of `marks` is set are cold."""
    return data.StructLayout({
        "samples": data.ArrayLayout(log2(config.batch_samples), config.lanes),
        "marks": config.lanes,
        "last": 1,
    })


def row_width(config: Config) -> int:
    """Bits of the row of a mark word: words of `lanes` marks lie in two memories in turn."""
    return log2(config.batch_samples) - log2(config.lanes) - 1


def mark_round(config: Config) -> data.StructLayout:
    """Marks for up to one even and one odd word: `members` are the lanes that set a bit of it, each
    at its `places`. `last` ends the batch."""
    return data.StructLayout({
        "rows": data.ArrayLayout(row_width(config), 2),
        "members": data.ArrayLayout(config.lanes, 2),
        "places": data.ArrayLayout(log2(config.lanes), config.lanes),
        "last": 1,
    })


class BitmapWriteScheduler(wiring.Component):
    """Cut each beat into rounds that touch one even and one odd mark word at most.

    The first lane that marks a word leads the others that mark the same; a round serves the first
    leader left of either kind.

    Members
    -------
    beats : In(stream(marked_beat(config)))
    rounds : Out(stream(mark_round(config)))
        At least one per beat.
    restart : In(1)

    Timing
    ------
    A round a cycle, the first 3 cycles after its beat.
    """

    latency = 3  # take, compare, lead

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "beats": In(stream.Signature(marked_beat(config))),
            "rounds": Out(stream.Signature(mark_round(config))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.rounds
        m.submodules.taken = taken = ResetInserter(self.restart)(
            SkidBuffer(marked_beat(c).size, rigid=True))
        m.d.comb += [
            taken.i.valid.eq(self.beats.valid),
            taken.i.p.eq(self.beats.p.as_value()),
            self.beats.ready.eq(taken.i.ready),
        ]
        given = data.View(marked_beat(c), taken.o.p)
        lanes, low = range(c.lanes), log2(c.lanes)

        # Compare the word of every lane with those of the lanes before.
        compared, led, free, done = (Signal(name=name) for name in (
            "compared", "led", "free", "done"))
        samples = [Signal(log2(c.batch_samples), name=f"sample{lane}", reset_less=True)
                   for lane in lanes]
        marks, last = Signal(c.lanes, reset_less=True), Signal(reset_less=True)
        same = [Signal(max(1, lane), name=f"same{lane}", reset_less=True) for lane in lanes]
        m.d.comb += [
            free.eq(~led | out.ready & done),
            taken.o.ready.eq(free),
        ]
        with m.If(free):
            m.d.sync += [
                compared.eq(taken.o.valid),
                [here.eq(sample) for here, sample in zip(samples, given.samples)],
                marks.eq(given.marks),
                last.eq(given.last),
                [same[lane].eq(Cat(given.marks[lane] & given.marks[other]
                                   & (given.samples[lane][low:] == given.samples[other][low:])
                                   for other in range(lane))) for lane in lanes],
            ]

        # Find the leaders, then let them go, the lowest first.
        led_samples = [Signal(log2(c.batch_samples), name=f"led{lane}", reset_less=True)
                       for lane in lanes]
        led_last = Signal(reset_less=True)
        leaders = [Signal(c.lanes, name=name, reset_less=True) for name in ("even", "odd")]
        follow = [Signal(c.lanes, name=f"follow{lane}", reset_less=True) for lane in lanes]
        with m.If(free):
            m.d.sync += [
                led.eq(compared),
                [after.eq(before) for after, before in zip(led_samples, samples)],
                led_last.eq(last),
                [leaders[parity].eq(Cat(
                    marks[lane] & ~same[lane].any() & (samples[lane][low] == parity)
                    for lane in lanes)) for parity in PARITIES],
                [follow[lane].eq(Cat(same[lane][:lane], marks[lane], *(
                    same[other][lane] for other in range(lane + 1, c.lanes)))) for lane in lanes],
            ]
        rests = []
        for parity, left in zip(PARITIES, leaders):
            lowest, rest = (Signal(c.lanes, name=f"{name}{parity}") for name in ("lowest", "rest"))
            m.d.comb += [
                lowest.eq(Cat(left[lane] & ~left[:lane].any() for lane in lanes)),
                rest.eq(Cat(left[lane] & left[:lane].any() for lane in lanes)),
                out.p.rows[parity].eq(reduce(or_, (
                    Mux(here, sample[low + 1:], 0) for here, sample in zip(lowest, led_samples)))),
                out.p.members[parity].eq(Cat((lowest & follow[lane]).any() for lane in lanes)),
            ]
            rests.append(rest)
            with m.If(led & out.ready & ~done):
                m.d.sync += left.eq(rest)
        m.d.comb += [
            out.valid.eq(led),
            done.eq(~Cat(rests).any()),
            [place.eq(sample[:low]) for place, sample in zip(out.p.places, led_samples)],
            out.p.last.eq(led_last & done),
        ]
        with m.If(self.restart):
            m.d.sync += [compared.eq(0), led.eq(0)]
        return m
