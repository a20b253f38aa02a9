"""Bitmap write rounds: the words of the cold-sample bitmap that a beat marks, two words a cycle."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...primitives.skid_buffer import SkidBuffer

PARITIES = range(2)


def marked_beat(config: Config) -> data.StructLayout:
    """Samples of the lookups of one cycle; those with their bit in `marks` set are cold."""
    return data.StructLayout({
        "samples": data.ArrayLayout(log2(config.batch_samples), config.lanes),
        "marks": config.lanes,
        "last": 1,
    })


def row_width(config: Config) -> int:
    """Bits of the row of a bitmap word: even and odd words of `lanes` marks are in two memories."""
    return log2(config.batch_samples) - log2(config.lanes) - 1


def write_round(config: Config) -> data.StructLayout:
    """Marks for up to one even and one odd word.

    `members` are the lanes that set a bit of the word in `rows`, each the bit `bits` of its lane.
    `last` ends the batch.
    """
    return data.StructLayout({
        "rows": data.ArrayLayout(row_width(config), 2),
        "members": data.ArrayLayout(config.lanes, 2),
        "bits": data.ArrayLayout(log2(config.lanes), config.lanes),
        "last": 1,
    })


class BitmapWriteScheduler(wiring.Component):
    """Split each beat into rounds that write at most one even and one odd word.

    The lowest lane that marks a word is the leader of all lanes that mark the same word. A round
    serves the lowest leader of each parity that is left.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(marked_beat(config)))
    rounds : Out(stream(write_round(config)))
        At least one per beat.
    restart : In(1)
        A pulse drops the beats inside.

    Timing
    ------
    One round a cycle; the first follows its beat by `latency` cycles.
    """

    latency = 3  # buffer, compare, find leaders

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "beats": In(stream.Signature(marked_beat(config))),
            "rounds": Out(stream.Signature(write_round(config))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.rounds
        m.submodules.buffer = buffer = ResetInserter(self.restart)(
            SkidBuffer(marked_beat(c), rigid=True))
        connect(m, beats=flipped(self.beats), buffer=buffer.i)
        beat = buffer.o.p
        lanes, low = range(c.lanes), log2(c.lanes)

        # Compare the word of every lane with those of lower lanes.
        compare_valid, lead_valid, enable, done = (Signal(name=name) for name in (
            "compare_valid", "lead_valid", "enable", "done"))
        samples = [Signal(log2(c.batch_samples), name=f"sample{lane}", reset_less=True)
                   for lane in lanes]
        marks, last = Signal(c.lanes, reset_less=True), Signal(reset_less=True)
        same = [Signal(max(1, lane), name=f"same{lane}", reset_less=True) for lane in lanes]
        m.d.comb += [
            enable.eq(~lead_valid | out.ready & done),
            buffer.o.ready.eq(enable),
        ]
        with m.If(enable):
            m.d.sync += [
                compare_valid.eq(buffer.o.valid),
                [sample.eq(each) for sample, each in zip(samples, beat.samples, strict=True)],
                marks.eq(beat.marks),
                last.eq(beat.last),
                [same[lane].eq(Cat(beat.marks[lane] & beat.marks[other]
                                   & (beat.samples[lane][low:] == beat.samples[other][low:])
                                   for other in range(lane))) for lane in lanes],
            ]

        # Find the leaders, then serve the lowest of each parity until none is left.
        lead_samples = [Signal(log2(c.batch_samples), name=f"lead_sample{lane}", reset_less=True)
                        for lane in lanes]
        lead_last = Signal(reset_less=True)
        leaders = [Signal(c.lanes, name=name, reset_less=True) for name in ("even", "odd")]
        group = [Signal(c.lanes, name=f"group{lane}", reset_less=True) for lane in lanes]
        with m.If(enable):
            m.d.sync += [
                lead_valid.eq(compare_valid),
                [after.eq(before) for after, before in zip(lead_samples, samples, strict=True)],
                lead_last.eq(last),
                [leaders[parity].eq(Cat(
                    marks[lane] & ~same[lane].any() & (samples[lane][low] == parity)
                    for lane in lanes)) for parity in PARITIES],
                [group[lane].eq(Cat(same[lane][:lane], marks[lane], *(
                    same[other][lane] for other in range(lane + 1, c.lanes)))) for lane in lanes],
            ]
        others = []
        for parity, left in zip(PARITIES, leaders, strict=True):
            lowest, other = (
                Signal(c.lanes, name=f"{name}{parity}") for name in ("lowest", "other"))
            m.d.comb += [
                lowest.eq(Cat(left[lane] & ~left[:lane].any() for lane in lanes)),
                other.eq(Cat(left[lane] & left[:lane].any() for lane in lanes)),
                out.p.rows[parity].eq(reduce(or_, (
                    Mux(leads, sample[low + 1:], 0)
                    for leads, sample in zip(lowest, lead_samples, strict=True)))),
                out.p.members[parity].eq(Cat((lowest & group[lane]).any() for lane in lanes)),
            ]
            others.append(other)
            with m.If(lead_valid & out.ready & ~done):
                m.d.sync += left.eq(other)
        m.d.comb += [
            out.valid.eq(lead_valid),
            done.eq(~Cat(others).any()),
            [bit.eq(sample[:low]) for bit, sample in zip(out.p.bits, lead_samples, strict=True)],
            out.p.last.eq(lead_last & done),
        ]
        with m.If(self.restart):
            m.d.sync += [compare_valid.eq(0), lead_valid.eq(0)]
        return m
