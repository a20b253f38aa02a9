"""Combiner: of the lookups of one row close together, the first stands for all."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bank_layouts import combined_beat, tagged_beat
from .config import Config
from .contract import Status

# Where a beat is held. The owners of a beat are known once it is JOINED, while the beat behind it
# is decided; and its last lookups may come `config.window_beats` behind it.
COMPARED, DECIDED, JOINED, SUMMED = range(4)
CARRIED = ("key", "sample", "parts_log2", "part")  # of a lookup, as it came


class Combiner(wiring.Component):
    """Let lookups of a row join the first of them in their own beat or `window_beats` before it.

    A lookup that finds none of its row there is an owner. Those that are absent, out of range or
    faulty own nothing and join nothing. Lookups of different batches are never combined.

    Beats move on in step, pushed by the one that enters: the distance of two beats of a batch is
    their distance here. Only behind the end of a batch may there be a gap, so from there on the
    beats move by themselves.

    Parameters
    ----------
    config : Config

    Members
    -------
    beats : In(stream(tagged_beat(config)))
    combined : Out(stream(combined_beat(config)))
        `amount` is complete; `back` and `lane` of a lookup that does not join are 0.
    restart : In(1)
        A pulse drops every beat inside; the next is the first of its batch.

    Timing
    ------
    One beat a cycle, also from batch to batch. A beat leaves `latency` cycles after it came if
    beats of its batch follow it without a gap up to its end; otherwise it waits to be pushed.
    """

    def __init__(self, config: Config):
        self.config = config
        self.latency = latency(config)
        super().__init__({
            "beats": In(stream.Signature(tagged_beat(config))),
            "combined": Out(stream.Signature(combined_beat(config))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        leaves, window = self.latency - 1, range(1, c.window_beats + 1)
        lanes, places = range(c.lanes), range(leaves + 1)
        beats = [Signal(combined_beat(c), name=f"beat{at}", reset_less=True) for at in places]
        valid = Signal(leaves + 1)
        moves = Signal(leaves + 1)  # those at later places whenever those before
        free = Signal()
        m.d.comb += [
            free.eq(~self.combined.valid | self.combined.ready),
            self.beats.ready.eq(free),
            self.combined.valid.eq(valid[leaves]),
            self.combined.p.eq(beats[leaves]),
            moves[leaves].eq(free),
            [moves[at].eq(free & (self.beats.valid | Cat(
                valid[behind] & beats[behind].last for behind in range(at + 1)).any()))
             for at in range(leaves)],
        ]
        for at in range(leaves):
            with m.If(moves[at]):
                m.d.sync += beats[at + 1].eq(beats[at])
            with m.If(moves[at + 1]):
                m.d.sync += valid[at + 1].eq(valid[at] & moves[at])

        older = Signal(c.window_beats)  # bit k - 1: the beat k before COMPARED is of its batch
        begins = Signal(init=1)
        tagged, entered = self.beats.p, beats[COMPARED]
        with m.If(moves[COMPARED]):
            m.d.sync += valid[COMPARED].eq(self.beats.valid)
        with m.If(self.beats.valid & free):
            m.d.sync += [
                [(lane.present.eq(lookup.present), lane.status.eq(refusal(lookup)),
                  *(lane[name].eq(lookup[name]) for name in CARRIED))
                 for lane, lookup in zip(entered.lanes, tagged.beat.lanes)],
                entered.counts.eq(tagged.counts),
                entered.splits.eq(tagged.splits),
                entered.epoch.eq(tagged.epoch),
                entered.last.eq(tagged.beat.last),
                begins.eq(tagged.beat.last),
                older.eq(Mux(begins, 0, Cat(1, older))),
            ]

        # Compare the beat at COMPARED with itself and with those before it.
        served = Signal(c.lanes)
        served_decided, position = Signal.like(served), Signal(32)
        matrix = data.ArrayLayout(c.lanes, c.lanes)  # [lane that joins][lane joined]
        same = Signal(matrix)  # within the beat at DECIDED
        match = Signal(data.ArrayLayout(matrix, c.window_beats))
        m.d.comb += served.eq(Cat(
            lane.present & (lane.status == Status.OK) for lane in entered.lanes))
        # Nothing is served in a gap, nor does it join: the registers behind it may be of any beat.
        with m.If(moves[DECIDED]):
            m.d.sync += served_decided.eq(Mux(moves[COMPARED] & valid[COMPARED], served, 0))
        with m.If(moves[COMPARED]):
            for lane in lanes:
                key = entered.lanes[lane].key
                equal = Cat(key == entered.lanes[earlier].key for earlier in range(lane))
                m.d.sync += same[lane].eq(equal & served[:lane])
                for back in window:
                    equal = Cat(key == other.key for other in beats[back].lanes)
                    m.d.sync += match[back - 1][lane].eq(
                        equal & older[back - 1].replicate(c.lanes))
        with m.If(moves[COMPARED] & valid[COMPARED]):
            present = Cat(lane.present for lane in entered.lanes)
            m.d.sync += [
                beats[DECIDED].position.eq(position),
                position.eq(Mux(entered.last, 0, position + sum(present))),
            ]

        # Decide who owns. At most one owner of a row is within reach.
        joins = Signal.like(match)  # of the beat at JOINED, to those before
        joins_own = Signal.like(same)
        same_joined = Signal.like(same)
        for lane in lanes:
            reached = Signal(data.ArrayLayout(c.lanes, c.window_beats), name=f"reached{lane}")
            m.d.comb += [reached[back - 1].eq(
                Cat(ahead.owner for ahead in beats[DECIDED + back].lanes)
                & match[back - 1][lane] & served_decided[lane].replicate(c.lanes))
                for back in window]
            with m.If(moves[JOINED]):  # if into a gap, those of the first beat behind it: none
                m.d.sync += [joins[back][lane].eq(reached[back]) for back in range(c.window_beats)]
            with m.If(moves[DECIDED]):
                m.d.sync += [
                    same_joined[lane].eq(same[lane] & served_decided[lane].replicate(c.lanes)),
                    beats[JOINED].lanes[lane].owner.eq(
                        served_decided[lane] & ~reached.as_value().any() & ~same[lane].any()),
                ]
            m.d.comb += joins_own[lane].eq(
                same_joined[lane] & Cat(own.owner for own in beats[JOINED].lanes))

        # Say whom each joins, and count for each owner who joins it.
        joined = [joins_own, *joins]
        with m.If(moves[JOINED]):
            for lane in lanes:
                out = beats[SUMMED].lanes[lane]
                by_back = [joined[back][lane] for back in range(c.window_beats + 1)]
                m.d.sync += [
                    out.joins.eq(Cat(by_back).any()),
                    out.back.eq(_encode(each.any() for each in by_back)),
                    out.lane.eq(_encode(Cat(each[ahead] for each in by_back).any()
                                        for ahead in lanes)),
                ]
        for back in range(c.window_beats + 1):
            with m.If(moves[JOINED + back]):
                for lane in lanes:
                    owner = beats[JOINED + back].lanes[lane]
                    count = sum(joined[back][other][lane] for other in lanes)
                    before = owner.amount if back else owner.owner
                    m.d.sync += beats[SUMMED + back].lanes[lane].amount.eq(before + count)
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), begins.eq(1), position.eq(0)]
        return m


def _encode(bits):
    """Number of the bit that is set, 0 if none is."""
    bits = list(bits)
    return Cat(Cat(bit for number, bit in enumerate(bits) if number >> place & 1).any()
               for place in range((len(bits) - 1).bit_length()))


def latency(config):
    """Cycles from a beat that enters to the same that leaves, in a stream without gaps."""
    return SUMMED + config.window_beats + 1


def refusal(lookup):
    """Status for which a lookup is refused, or OK."""
    return Mux(lookup.fault != 0, Status.SLVERR - 1 + lookup.fault,
               Mux(lookup.out_of_range, Status.ROW_OUT_OF_RANGE, Status.OK))
