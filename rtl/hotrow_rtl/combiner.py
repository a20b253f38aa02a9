"""Combiner: of the lookups of one row close together, the first stands for all."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bank_layouts import amount_width, combined_beat, tagged_beat
from .beat_amounts import BeatAmounts
from .config import Config
from .contract import Status
from .joined_place import JoinedPlace
from .key_matches import KeyMatches

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
        leaves, reach = self.latency - 1, range(c.window_beats + 1)
        lanes, places = range(c.lanes), range(leaves + 1)
        beats = [Signal(combined_beat(c), name=f"beat{at}", reset_less=True) for at in places]
        valid = Signal(leaves + 1)
        moves = Signal(leaves + 1)  # those at later places whenever those before
        free = Signal()
        # Bit n: the end of a batch is at a place up to n. All ends move whenever one may.
        ended = Signal(leaves)
        m.d.comb += [
            free.eq(~self.combined.valid | self.combined.ready),
            self.beats.ready.eq(free),
            self.combined.valid.eq(valid[leaves]),
            self.combined.p.eq(beats[leaves]),
            moves[leaves].eq(free),
            [moves[at].eq(free & (self.beats.valid | ended[at])) for at in range(leaves)],
        ]
        with m.If(free):
            ends = self.beats.valid & self.beats.p.beat.last
            m.d.sync += ended.eq(Mux(ends, ~0, ended << 1))
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
        served, older_lanes = Signal(c.lanes), Signal(c.window_beats * c.lanes)
        served_decided = Signal.like(served)
        row = data.ArrayLayout(c.lanes, len(reach))  # [beats back][lane]: whom a lookup may join
        keys = Signal(data.ArrayLayout(data.ArrayLayout(c.key_width, c.lanes), len(reach)))
        matches = Signal(data.ArrayLayout(row, c.lanes))  # of the beat at DECIDED
        m.d.comb += [
            served.eq(Cat(lane.present & (lane.status == Status.OK) for lane in entered.lanes)),
            [keys[back][lane].eq(beats[COMPARED + back].lanes[lane].key)
             for back in reach for lane in lanes],
            [older_lanes.word_select(back, c.lanes).eq(one.replicate(c.lanes))
             for back, one in enumerate(older)],
        ]
        # Nothing is served in a gap, nor does it join: the registers behind it may be of any beat.
        with m.If(moves[DECIDED]):
            m.d.sync += served_decided.eq(Mux(moves[COMPARED] & valid[COMPARED], served, 0))
        for lane in lanes:
            m.submodules[f"matches{lane}"] = unit = KeyMatches(c.key_width, c.lanes * len(reach))
            m.d.comb += [unit.key.eq(entered.lanes[lane].key), unit.keys.eq(keys)]
            with m.If(moves[COMPARED]):
                m.d.sync += matches[lane].eq(
                    unit.equal & Cat(served & (1 << lane) - 1, older_lanes))

        # Decide who owns. At most one owner of a row is within reach.
        owners = Signal(data.ArrayLayout(c.lanes, c.window_beats))  # before the beat at DECIDED
        joined = Signal.like(matches)  # by those of the beat at JOINED
        own_matches = Signal(data.ArrayLayout(c.lanes, c.lanes))
        older_joined = Signal(data.ArrayLayout(owners.shape(), c.lanes))
        m.d.comb += [owners[at].eq(Cat(lane.owner for lane in beats[JOINED + at].lanes))
                     for at in range(c.window_beats)]
        for lane in lanes:
            own, is_served = matches[lane][0], served_decided[lane]
            older_matches = matches[lane].as_value()[c.lanes:]
            reached = Signal.like(older_matches, name=f"reached{lane}")
            m.d.comb += reached.eq(Mux(is_served, owners.as_value() & older_matches, 0))
            with m.If(moves[JOINED]):  # if into a gap, those of the first beat behind it: none
                m.d.sync += older_joined[lane].eq(reached)
            with m.If(moves[DECIDED]):
                m.d.sync += [
                    own_matches[lane].eq(Mux(is_served, own, 0)),
                    beats[JOINED].lanes[lane].owner.eq(is_served & ~reached.any() & ~own.any()),
                ]
            m.d.comb += [
                joined[lane][0].eq(own_matches[lane] & owners[0]),
                [joined[lane][back].eq(older_joined[lane][back - 1]) for back in reach[1:]],
            ]

        # Say whom each joins, and count for each owner who joins it.
        for lane in lanes:
            m.submodules[f"place{lane}"] = unit = JoinedPlace(c)
            m.d.comb += unit.joins.eq(joined[lane])
            out = beats[SUMMED].lanes[lane]
            with m.If(moves[JOINED]):
                m.d.sync += [out.joins.eq(unit.any), out.back.eq(unit.back), out.lane.eq(unit.lane)]
        for back in reach:
            width = amount_width(c)
            m.submodules[f"amounts{back}"] = unit = BeatAmounts(c.lanes, width)
            m.d.comb += [
                [unit.joined.word_select(lane, c.lanes).eq(joined[lane][back]) for lane in lanes],
                [unit.before.word_select(lane, width).eq(owner.amount if back else owner.owner)
                 for lane, owner in enumerate(beats[JOINED + back].lanes)],
            ]
            with m.If(moves[JOINED + back]):
                m.d.sync += [owner.amount.eq(unit.after.word_select(lane, width))
                             for lane, owner in enumerate(beats[SUMMED + back].lanes)]
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), ended.eq(0), begins.eq(1)]
        return m


def latency(config):
    """Cycles from a beat that enters to the same that leaves, in a stream without gaps."""
    return SUMMED + config.window_beats + 1


def refusal(lookup):
    """Status for which a lookup is refused, or OK."""
    return Mux(lookup.fault != 0, Status.SLVERR - 1 + lookup.fault,
               Mux(lookup.out_of_range, Status.ROW_OUT_OF_RANGE, Status.OK))
