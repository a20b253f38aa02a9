"""Schedule of bitmap writes: which words of marks the lanes of a beat set, two words at a time."""

from amaranth import Cat, Module, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...primitives.bits import onehot_mux
from ...primitives.skid_buffer import SkidBuffer

PARITIES = range(2)


def marked_beat(config: Config) -> data.StructLayout:
    """Samples of the lookups of one cycle; a set bit of `marks` says that the sample is cold."""
    return data.StructLayout({
        "samples": data.ArrayLayout(log2(config.batch_samples), config.lanes),
        "marks": config.lanes,
        "last": 1,
    })


def row_width(config: Config) -> int:
    """Bits of a row address: words of `lanes` marks alternate between two memories."""
    return log2(config.batch_samples) - log2(config.lanes) - 1


def mark_round(config: Config) -> data.StructLayout:
    """Marks for at most one even and one odd word. `members` are the lanes that set a bit of the
    word; `places` has the bit of each lane. `last` ends the batch."""
    return data.StructLayout({
        "rows": data.ArrayLayout(row_width(config), 2),
        "members": data.ArrayLayout(config.lanes, 2),
        "places": data.ArrayLayout(log2(config.lanes), config.lanes),
        "last": 1,
    })


class BitmapWriteScheduler(wiring.Component):
    """Split each beat into rounds that write at most one even and one odd mark word.

    The lowest lane that marks a word is the leader of all lanes that mark the same word. A round
    serves the lowest remaining leader of an even word and of an odd word.

    Attributes
    ----------
    beats : In(stream(marked_beat(config)))
    rounds : Out(stream(mark_round(config)))
        At least one per beat.
    restart : In(1)

    Timing
    ------
    One round a cycle; the first one 3 cycles after its beat.
    """

    latency = 3  # register, compare, find leaders

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
        m.submodules.buffer = buffer = ResetInserter(self.restart)(
            SkidBuffer(marked_beat(c), rigid=True))
        connect(m, flipped(self.beats), buffer.i)
        given = buffer.o.p
        lanes, low = range(c.lanes), log2(c.lanes)

        # Compare the word of every lane with the words of all lower lanes.
        compared, led, ready, done = (Signal(name=name) for name in (
            "compared", "led", "ready", "done"))
        samples = [Signal(log2(c.batch_samples), name=f"sample{lane}", reset_less=True)
                   for lane in lanes]
        marks, last = Signal(c.lanes, reset_less=True), Signal(reset_less=True)
        same = [Signal(max(1, lane), name=f"same{lane}", reset_less=True) for lane in lanes]
        m.d.comb += [
            ready.eq(~led | out.ready & done),
            buffer.o.ready.eq(ready),
        ]
        with m.If(ready):
            m.d.sync += [
                compared.eq(buffer.o.valid),
                [here.eq(sample) for here, sample in zip(samples, given.samples, strict=True)],
                marks.eq(given.marks),
                last.eq(given.last),
                [same[lane].eq(Cat(given.marks[lane] & given.marks[other]
                                   & (given.samples[lane][low:] == given.samples[other][low:])
                                   for other in range(lane))) for lane in lanes],
            ]

        # Find the leaders, then serve them, the lowest first.
        led_samples = [Signal(log2(c.batch_samples), name=f"led{lane}", reset_less=True)
                       for lane in lanes]
        led_last = Signal(reset_less=True)
        leaders = [Signal(c.lanes, name=name, reset_less=True) for name in ("even", "odd")]
        follow = [Signal(c.lanes, name=f"follow{lane}", reset_less=True) for lane in lanes]
        with m.If(ready):
            m.d.sync += [
                led.eq(compared),
                [after.eq(before) for after, before in zip(led_samples, samples, strict=True)],
                led_last.eq(last),
                [leaders[parity].eq(Cat(
                    marks[lane] & ~same[lane].any() & (samples[lane][low] == parity)
                    for lane in lanes)) for parity in PARITIES],
                [follow[lane].eq(Cat(same[lane][:lane], marks[lane], *(
                    same[other][lane] for other in range(lane + 1, c.lanes)))) for lane in lanes],
            ]
        remaining = []
        for parity, left in zip(PARITIES, leaders, strict=True):
            lowest, others = (Signal(c.lanes, name=f"{name}{parity}")
                              for name in ("lowest", "others"))
            m.d.comb += [
                lowest.eq(Cat(left[lane] & ~left[:lane].any() for lane in lanes)),
                others.eq(Cat(left[lane] & left[:lane].any() for lane in lanes)),
                out.p.rows[parity].eq(onehot_mux(
                    lowest, [sample[low + 1:] for sample in led_samples])),
                out.p.members[parity].eq(Cat((lowest & follow[lane]).any() for lane in lanes)),
            ]
            remaining.append(others)
            with m.If(led & out.ready & ~done):
                m.d.sync += left.eq(others)
        m.d.comb += [
            out.valid.eq(led),
            done.eq(~Cat(remaining).any()),
            [place.eq(sample[:low])
             for place, sample in zip(out.p.places, led_samples, strict=True)],
            out.p.last.eq(led_last & done),
        ]
        with m.If(self.restart):
            m.d.sync += [compared.eq(0), led.eq(0)]
        return m
