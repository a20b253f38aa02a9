"""Combiner: of the lookups of one row close together, the first stands for all."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.lookup_payloads import amount_width, combined_beat, combined_lookup, tagged_beat
from ...primitives.ram import Ram
from .key_comparator import KeyComparator
from .multiplicity import Multiplicity
from .owner_encoder import OwnerEncoder
from .pipeline_depth import key_pieces, latency

DECISIONS = ("owner", "amount", "joins", "back", "lane")  # the rest of a lookup stays as it came


class Combiner(wiring.Component):
    """Let lookups of a row join the first of them in their own beat or `window_beats` before it.

    A lookup that finds none of its row there is an owner. Those that are absent, out of range or
    faulty own nothing and join nothing. Lookups of different batches are never combined.

    Beats move on in step from place to place, pushed by the one that enters: the distance of two
    beats of a batch is their distance here. Only behind the end of a batch may there be a gap, so
    from there on the beats move by themselves. At the first places keys are compared, a piece at
    each; then it is decided who owns, known who joins whom, and counted, for which the last lookups
    may come `window_beats` behind. What stays as it came waits in a memory meanwhile.

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
    One beat a cycle, also from batch to batch, while `combined` is ready: else nothing moves, not
    even into a gap, as that would be told late. A beat leaves `latency` cycles after it came if
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
        pieces, leaves = key_pieces(c), self.latency - 1
        decided, joined = len(pieces), len(pieces) + 1  # places; counted from the next on
        lanes, reach = range(c.lanes), range(c.window_beats + 1)
        valid = Signal(leaves + 1)
        moves = Signal(leaves + 1)  # those at later places whenever those before
        free, enters = Signal(), Signal()
        # Bit n: the end of a batch is at a place up to n. All ends move whenever one may.
        ended = Signal(leaves)
        m.d.comb += [
            free.eq(self.combined.ready),
            enters.eq(self.beats.valid & free),
            self.beats.ready.eq(free),
            self.combined.valid.eq(valid[leaves]),
            moves[leaves].eq(free),
            [moves[at].eq(free & (self.beats.valid | ended[at])) for at in range(leaves)],
        ]
        with m.If(free):
            ends = self.beats.valid & self.beats.p.beat.last
            m.d.sync += ended.eq(Mux(ends, ~0, ended << 1))
        with m.If(moves[0]):
            m.d.sync += valid[0].eq(self.beats.valid)
        for at in range(leaves):
            with m.If(moves[at + 1]):
                m.d.sync += valid[at + 1].eq(valid[at] & moves[at])
        self._keep(m, enters, moves[leaves - 1], valid[leaves - 1])

        # Of the beats at the places of comparisons: lookups that are neither absent nor refused. In
        # a gap there are none: other registers there may be of any beat.
        served = [Signal(c.lanes, name=f"served{at}") for at in range(decided + 1)]
        with m.If(moves[0]):
            m.d.sync += served[0].eq(Mux(self.beats.valid, Cat(
                lookup.present & (refusal(lookup) == Status.OK)
                for lookup in self.beats.p.beat.lanes), 0))
        for at in range(decided):
            with m.If(moves[at + 1]):
                m.d.sync += served[at + 1].eq(Mux(moves[at], served[at], 0))
        matches = self._compare(m, enters, moves, served[0])  # of the beat at `decided`

        # Decide who owns. At most one owner of a row is within reach.
        decision = data.StructLayout({name: combined_lookup(c)[name].shape for name in DECISIONS})
        beats = {at: Signal(data.ArrayLayout(decision, c.lanes), name=f"decisions{at}",
                            reset_less=True) for at in range(joined, leaves + 1)}
        for at in range(joined, leaves):
            with m.If(moves[at]):
                m.d.sync += beats[at + 1].eq(beats[at])
        owners = Signal(data.ArrayLayout(c.lanes, c.window_beats))  # before the beat at `decided`
        joins = Signal.like(matches)  # of those of the beat at `joined`
        own_matches = Signal(data.ArrayLayout(c.lanes, c.lanes))
        older_joins = Signal(data.ArrayLayout(owners.shape(), c.lanes))
        m.d.comb += [owners[at].eq(Cat(lane.owner for lane in beats[joined + at]))
                     for at in range(c.window_beats)]
        for lane in lanes:
            own, is_served = matches[lane][0], served[decided][lane]
            older_matches = matches[lane].as_value()[c.lanes:]
            reached = Signal.like(older_matches, name=f"reached{lane}")
            m.d.comb += reached.eq(Mux(is_served, owners.as_value() & older_matches, 0))
            with m.If(moves[joined]):  # if into a gap, those of the first beat behind it: none
                m.d.sync += older_joins[lane].eq(reached)
            with m.If(moves[decided]):
                m.d.sync += [
                    own_matches[lane].eq(Mux(is_served, own, 0)),
                    beats[joined][lane].owner.eq(is_served & ~reached.any() & ~own.any()),
                ]
            m.d.comb += [
                joins[lane][0].eq(own_matches[lane] & owners[0]),
                [joins[lane][back].eq(older_joins[lane][back - 1]) for back in reach[1:]],
            ]

        # Say whom each joins, and count for each owner who joins it.
        for lane in lanes:
            m.submodules[f"place{lane}"] = unit = OwnerEncoder(c)
            m.d.comb += unit.joins.eq(joins[lane])
            out = beats[joined + 1][lane]
            with m.If(moves[joined]):
                m.d.sync += [out.joins.eq(unit.any), out.back.eq(unit.back), out.lane.eq(unit.lane)]
        for back in reach:
            width, at = amount_width(c), joined + back
            m.submodules[f"amounts{back}"] = unit = Multiplicity(c.lanes, width)
            m.d.comb += [
                [unit.joined.word_select(lane, c.lanes).eq(joins[lane][back]) for lane in lanes],
                [unit.before.word_select(lane, width).eq(owner.amount if back else owner.owner)
                 for lane, owner in enumerate(beats[at])],
            ]
            with m.If(moves[at]):
                m.d.sync += [owner.amount.eq(unit.after.word_select(lane, width))
                             for lane, owner in enumerate(beats[at + 1])]
        m.d.comb += [self.combined.p.lanes[lane][name].eq(beats[leaves][lane][name])
                     for lane in lanes for name in DECISIONS]
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), ended.eq(0)]
        return m

    def _keep(self, m, enters, reads, leaves):
        """What of a beat stays as it came: written as it enters, read as it goes to the last place
        if it `leaves` the one before."""
        came, combined = self.beats.p, self.combined.p
        depth = 1 << (self.latency - 1).bit_length()
        write_at, read_at = Signal(range(depth)), Signal(range(depth))

        def keep(name, pairs):
            """In a memory by itself: lanes need not be near each other."""
            rows = Ram(sum(len(out) for _, out in pairs), depth)
            m.submodules[f"kept{name}"] = rows
            m.d.comb += [
                rows.write_enable.eq(enters),
                rows.write_address.eq(write_at),
                rows.read_enable.eq(reads),
                rows.read_address.eq(read_at),
                rows.write_data.eq(Cat(value for value, _ in pairs)),
                Cat(out for _, out in pairs).eq(rows.read_data),
            ]

        for number, (lookup, lane) in enumerate(zip(came.beat.lanes, combined.lanes)):
            keep(number, [
                (refusal(lookup) if name == "status" else lookup[name], Value.cast(lane[name]))
                for name, _ in lane.shape() if name not in DECISIONS])
        keep("_beat", [
            (came.beat.last if name == "last" else came[name], Value.cast(combined[name]))
            for name, _ in combined.shape() if name != "lanes"])
        with m.If(enters):
            m.d.sync += write_at.eq(write_at + 1)
        with m.If(reads & leaves):
            m.d.sync += read_at.eq(read_at + 1)
        with m.If(self.restart):
            m.d.sync += [write_at.eq(0), read_at.eq(0)]

    def _compare(self, m, enters, moves, served):
        """Compare each beat with itself and with those before it, a piece of the keys at each
        place; of lookups of its batch that are `served`. [lane][beats back][lane], for the beat
        behind these places: whom a lookup may join."""
        c = self.config
        reach = range(c.window_beats + 1)
        # Bit k - 1: the beat k before the first place is of its batch.
        older = Signal(c.window_beats)
        begins = Signal(init=1)
        with m.If(enters):
            m.d.sync += [
                begins.eq(self.beats.p.beat.last), older.eq(Mux(begins, 0, Cat(1, older)))]
        with m.If(self.restart):
            m.d.sync += begins.eq(1)
        may = Signal(c.lanes * len(reach) * c.lanes)
        m.d.comb += may.eq(Cat(
            Cat(served & (1 << lane) - 1, *(beat.replicate(c.lanes) for beat in older))
            for lane in range(c.lanes)))
        steps = [enters, *moves]  # to each place
        for place, piece in enumerate(key_pieces(c)):
            window = KeyComparator(piece.stop - piece.start, c.lanes, c.window_beats)
            m.submodules[f"window{place}"] = window
            keys = Cat(lookup.key.as_value()[piece] for lookup in self.beats.p.beat.lanes)
            for at, step in enumerate(steps[:place]):
                waits = Signal(len(keys), name=f"keys{place}_{at}", reset_less=True)
                with m.If(step):
                    m.d.sync += waits.eq(keys)
                keys = waits
            m.d.comb += [
                window.keys.eq(keys),
                window.moves.eq(Cat(steps[place:place + len(reach)])),
                window.may.eq(may),
            ]
            may = window.matches
        matches = Signal(data.ArrayLayout(data.ArrayLayout(c.lanes, len(reach)), c.lanes))
        m.d.comb += matches.eq(may)
        return matches


def refusal(lookup):
    """Status for which a lookup is refused, or OK."""
    return Mux(lookup.fault != 0, Status.SLVERR - 1 + lookup.fault,
               Mux(lookup.out_of_range, Status.ROW_OUT_OF_RANGE, Status.OK))
