"""Combiner: merges lookups of one row that are close together into the first of them."""

from functools import reduce
from itertools import pairwise
from operator import or_

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.lookup_payloads import combined_beat, combined_lookup, tagged_beat
from ...primitives.bits import onehot_to_index, popcount
from ...primitives.ram import Ram
from .pipeline_depth import key_pieces, latency

DECISIONS = ("owner", "amount", "joins", "back", "lane")  # the fields that the combiner computes


class KeyComparator(wiring.Component):
    """Compare (a piece of) the keys of each beat with those of the beat and of earlier beats.

    Parameters
    ----------
    width, lanes, beats : int
        Bits to compare, keys of a beat, and earlier beats in the window.

    Attributes
    ----------
    keys : In(lanes * width)
        Keys of the next beat, the first lane lowest.
    enable : In(beats + 1)
        Bit 0: load the next beat into the first stage. Bit n: move the beat from stage n - 1 to
        stage n.
    allowed : In(lanes * (beats + 1) * lanes)
        Pairs that may match, for the beat in the first stage: by lane, then by beats back (its own
        beat lowest), then by the lane there.
    matches : Out(lanes * (beats + 1) * lanes)
        Allowed pairs with equal keys, registered when the beat leaves the first stage.

    Timing
    ------
    Latency 2 cycles from the keys of a beat that does not stall.
    """

    def __init__(self, width: int, lanes: int, beats: int):
        self.width, self.lanes, self.beats = width, lanes, beats
        pairs = lanes * (beats + 1) * lanes
        super().__init__({
            "keys": In(lanes * width),
            "enable": In(beats + 1),
            "allowed": In(pairs),
            "matches": Out(pairs),
        })

    def elaborate(self, platform):
        m = Module()
        stages = [
            Signal(data.ArrayLayout(self.width, self.lanes), name=f"keys{at}", reset_less=True)
            for at in range(self.beats + 1)]
        for at, (before, stage) in enumerate(zip((self.keys, *stages[:-1]), stages, strict=True)):
            with m.If(self.enable[at]):
                m.d.sync += stage.eq(before)
        window = [key for stage in stages for key in stage]
        with m.If(self.enable[1]):
            m.d.sync += self.matches.eq(self.allowed & Cat(
                own == key for own in stages[0] for key in window))
        return m


class OwnerEncoder(wiring.Component):
    """Encode the position of an owner.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    joins : In((config.window_beats + 1) * config.lanes)
        At most one bit is set: lanes of the lookup's own beat lowest, then of the beat before, and
        so on.
    any : Out(1)
        A bit is set.
    back, lane : Out
        Beats back to the owner, and its lane; 0 if no bit is set.

    Timing
    ------
    Combinational.
    """

    def __init__(self, config: Config):
        self.config = config
        beats = config.window_beats + 1
        super().__init__({
            "joins": In(beats * config.lanes),
            "any": Out(1),
            "back": Out(range(beats)),
            "lane": Out(range(config.lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.config.lanes
        by_beat = [self.joins.word_select(back, lanes)
                   for back in range(self.config.window_beats + 1)]
        by_lane = Signal(lanes)
        m.d.comb += [self.any.eq(self.joins.any()), by_lane.eq(reduce(or_, by_beat))]
        m.d.comb += [self.back.eq(onehot_to_index([each.any() for each in by_beat])),
                     self.lane.eq(onehot_to_index(by_lane))]
        return m


class Combiner(wiring.Component):
    """Let lookups of a row join the first of them in their own beat or the `window_beats` before.

    A lookup without another of its row in this window is an owner. An absent, out-of-range or
    faulty lookup neither owns nor joins. Lookups of different batches are never combined.

    A beat moves one stage when another beat enters, so that the distance of two beats of a batch in
    the pipeline is their distance in the batch. A gap is only allowed after the end of a batch:
    beats up to the last one of a batch then move without a push. The first stages compare keys, one
    piece each; the next stages find the owners, then the owner of every other lookup, and count the
    amounts, for which the last lookups may come `window_beats` later. The other fields of a beat
    wait in a memory.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(tagged_beat(config)))
    combined : Out(stream(combined_beat(config)))
        `amount` is complete; `back` and `lane` of a lookup that does not join are 0.
    restart : In(1)
        A pulse drops every beat inside; the next beat is the first of its batch.

    Timing
    ------
    One beat a cycle, also from batch to batch, while `combined` is ready. Without `ready` the whole
    pipeline stalls, also its gaps. A beat leaves `latency` cycles after it entered if the rest of
    its batch follows without a gap; otherwise it waits until later beats push it.
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
        pieces, final = len(key_pieces(self.config)), self.latency - 1  # stages
        valid, enable, fire = self._control(m, final)
        self._store(m, fire, enable[final - 1], valid[final - 1])
        served = self._served(m, enable, pieces)
        matches = self._compare(m, fire, enable, served[0])
        decisions = self._decide(m, enable, served[pieces], matches, pieces, final)
        m.d.comb += [self.combined.p.lanes[lane][name].eq(decisions[lane][name])
                     for lane in range(self.config.lanes) for name in DECISIONS]
        return m

    def _control(self, m, final):
        """(valid of each stage, enable from each stage to the next, fire of the input)."""
        valid, enable = Signal(final + 1), Signal(final + 1)
        ready, fire = Signal(), Signal()
        ended = Signal(final)  # bit n: the last beat of a batch is in one of the stages 0 to n
        m.d.comb += [
            ready.eq(self.combined.ready),
            fire.eq(self.beats.valid & ready),
            self.beats.ready.eq(ready),
            self.combined.valid.eq(valid[final]),
            enable[final].eq(ready),
            [enable[at].eq(ready & (self.beats.valid | ended[at])) for at in range(final)],
        ]
        with m.If(ready):
            m.d.sync += ended.eq(Mux(self.beats.valid & self.beats.p.beat.last, ~0, ended << 1))
        with m.If(enable[0]):
            m.d.sync += valid[0].eq(self.beats.valid)
        for at in range(final):
            with m.If(enable[at + 1]):
                m.d.sync += valid[at + 1].eq(valid[at] & enable[at])
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), ended.eq(0)]
        return valid, enable, fire

    def _store(self, m, fire, read, read_valid):
        """Store the fields that the combiner does not compute: write them when a beat enters, read
        them when it reaches the last stage."""
        beat, combined = self.beats.p, self.combined.p
        depth = 1 << (self.latency - 1).bit_length()
        write_at, read_at = Signal(range(depth)), Signal(range(depth))

        def store(name, pairs):
            """A memory for each lane: lanes need not be placed near each other."""
            rows = Ram(sum(len(out) for _, out in pairs), depth)
            m.submodules[f"stored{name}"] = rows
            m.d.comb += [
                rows.write_enable.eq(fire),
                rows.write_address.eq(write_at),
                rows.read_enable.eq(read),
                rows.read_address.eq(read_at),
                rows.write_data.eq(Cat(value for value, _ in pairs)),
                Cat(out for _, out in pairs).eq(rows.read_data),
            ]

        for number, (lookup, lane) in enumerate(
                zip(beat.beat.lanes, combined.lanes, strict=True)):
            store(number, [
                (refusal(lookup) if name == "status" else lookup[name], Value.cast(lane[name]))
                for name, _ in lane.shape() if name not in DECISIONS])
        store("_beat", [
            (beat.beat.last if name == "last" else beat[name], Value.cast(combined[name]))
            for name, _ in combined.shape() if name != "lanes"])
        with m.If(fire):
            m.d.sync += write_at.eq(write_at + 1)
        with m.If(read & read_valid):
            m.d.sync += read_at.eq(read_at + 1)
        with m.If(self.restart):
            m.d.sync += [write_at.eq(0), read_at.eq(0)]

    def _served(self, m, enable, pieces):
        """The lanes of each comparing stage, and of the next, with a lookup that is neither absent
        nor refused: none in a gap, where the other registers are undefined."""
        served = [Signal(self.config.lanes, name=f"served{at}") for at in range(pieces + 1)]
        with m.If(enable[0]):
            m.d.sync += served[0].eq(Mux(self.beats.valid, Cat(
                lookup.present & (refusal(lookup) == Status.OK)
                for lookup in self.beats.p.beat.lanes), 0))
        for at, (before, after) in enumerate(pairwise(served)):
            with m.If(enable[at + 1]):
                m.d.sync += after.eq(Mux(enable[at], before, 0))
        return served

    def _compare(self, m, fire, enable, served):
        """Compare each beat with itself and the beats before it, a piece of the keys per stage.

        Returns [lane][beats back][lane]: the served lookups of the same batch with an equal key,
        for the beat after the comparing stages.
        """
        c = self.config
        window = range(c.window_beats + 1)
        older = Signal(c.window_beats)  # bit n: beat n + 1 before stage 0 is of its batch
        first = Signal(init=1)  # the next beat is the first of its batch
        with m.If(fire):
            m.d.sync += [
                first.eq(self.beats.p.beat.last), older.eq(Mux(first, 0, Cat(1, older)))]
        with m.If(self.restart):
            m.d.sync += first.eq(1)
        allowed = Signal(c.lanes * len(window) * c.lanes)
        m.d.comb += allowed.eq(Cat(
            Cat(served & (1 << lane) - 1, *(beat.replicate(c.lanes) for beat in older))
            for lane in range(c.lanes)))
        enables = [fire, *enable]  # into each stage
        for stage, piece in enumerate(key_pieces(c)):
            unit = KeyComparator(piece.stop - piece.start, c.lanes, c.window_beats)
            m.submodules[f"compare{stage}"] = unit
            keys = Cat(lookup.key.as_value()[piece] for lookup in self.beats.p.beat.lanes)
            for at, step in enumerate(enables[:stage]):
                keys_q = Signal(len(keys), name=f"keys{stage}_{at}", reset_less=True)
                with m.If(step):
                    m.d.sync += keys_q.eq(keys)
                keys = keys_q
            m.d.comb += [
                unit.keys.eq(keys),
                unit.enable.eq(Cat(enables[stage:stage + len(window)])),
                unit.allowed.eq(allowed),
            ]
            allowed = unit.matches
        matches = Signal(data.ArrayLayout(data.ArrayLayout(c.lanes, len(window)), c.lanes))
        m.d.comb += matches.eq(allowed)
        return matches

    def _decide(self, m, enable, served, matches, decide, final):
        """Find owners in stage `decide`, joins in the next stage, and amounts in the window.

        At most one owner of a row is within the window. Returns the decisions of the last stage.
        """
        c = self.config
        lanes, window, join = range(c.lanes), range(c.window_beats + 1), decide + 1
        decision = data.StructLayout({name: combined_lookup(c)[name].shape for name in DECISIONS})
        beats = {at: Signal(data.ArrayLayout(decision, c.lanes), name=f"decisions{at}",
                            reset_less=True) for at in range(join, final + 1)}
        for before, after in pairwise(beats):
            with m.If(enable[before]):
                m.d.sync += beats[after].eq(beats[before])
        owners = Signal(data.ArrayLayout(c.lanes, c.window_beats))  # of the beats before `decide`
        joins = Signal.like(matches)  # of the beat in stage `join`
        own_matches = Signal(data.ArrayLayout(c.lanes, c.lanes))
        older_joins = Signal(data.ArrayLayout(owners.shape(), c.lanes))
        m.d.comb += [owners[at].eq(Cat(lane.owner for lane in beats[join + at]))
                     for at in range(c.window_beats)]
        for lane in lanes:
            own, older = matches[lane][0], matches[lane].as_value()[c.lanes:]
            joined = Signal.like(older, name=f"joined{lane}")
            m.d.comb += joined.eq(Mux(served[lane], owners.as_value() & older, 0))
            with m.If(enable[join]):  # `served` is 0 in a gap
                m.d.sync += older_joins[lane].eq(joined)
            with m.If(enable[decide]):
                m.d.sync += [
                    own_matches[lane].eq(Mux(served[lane], own, 0)),
                    beats[join][lane].owner.eq(served[lane] & ~joined.any() & ~own.any()),
                ]
            m.d.comb += [
                joins[lane][0].eq(own_matches[lane] & owners[0]),
                [joins[lane][back].eq(older_joins[lane][back - 1]) for back in window[1:]],
            ]

        for lane in lanes:
            m.submodules[f"owner{lane}"] = unit = OwnerEncoder(c)
            out = beats[join + 1][lane]
            m.d.comb += unit.joins.eq(joins[lane])
            with m.If(enable[join]):
                m.d.sync += [out.joins.eq(unit.any), out.back.eq(unit.back), out.lane.eq(unit.lane)]
        for back in window:
            at = join + back
            counts = [popcount(m, [joins[other][back][lane] for other in lanes]) for lane in lanes]
            with m.If(enable[at]):
                for count, before, after in zip(counts, beats[at], beats[at + 1], strict=True):
                    m.d.sync += after.amount.eq(
                        (before.amount if back else before.owner) + count)
        return beats[final]


def refusal(lookup):
    """Status for which a lookup is refused, or OK."""
    return Mux(lookup.fault != 0, Status.SLVERR - 1 + lookup.fault,
               Mux(lookup.out_of_range, Status.ROW_OUT_OF_RANGE, Status.OK))
