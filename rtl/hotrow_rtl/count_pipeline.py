"""Count pipeline: one lookup a cycle into the access counters, whatever rows come."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .contract import Status
from .counter_set import (
    SetUpdate,
    at_most,
    counter_place,
    counter_set,
    evict,
    least_low,
    merge_pairs,
    resident,
)
from .layouts import ordered_lookup
from .mixing import mix


def lag_of(config: Config) -> int:
    """Cycles from a set's word to its victim: one level of the tree of minima, then two a cycle."""
    levels = (config.counter_ways - 1).bit_length()
    return 1 + levels // 2


class CountPipeline(wiring.Component):
    """Read, update and write back the set of each lookup.

    Stages: place (the mixed key is the memory's address), read, compare, `lag_of(config)` - 1
    stages of the tree of minima, execute, write, written.

    Lookups of one set follow each other at any distance. When the older one executes, the whole
    updated word replaces the copies of the younger ones; their `match` bits move with the ways.
    The victim of a miss cannot wait for that word, as the tree of minima takes `lag` cycles:

    * While the last `lag` lookups of the set were hits, the tree compares the counts as those
      hits are about to leave them: which way each hits is known when the tree begins.
    * If one of them was a miss, its row counts at most `lag` by then. Counts that low are kept
      decoded beside the word, so that the victim among them is found within the cycle.

    Parameters
    ----------
    config : Config

    Members
    -------
    begin : In(1)
        A pulse clears the results.
    enable : In(1)
        `lookup` is valid. Those that are absent, out of range or faulty are not counted.
    lookup : In(ordered_lookup(config))
    hits, misses : Out(32)
    status, refused_at : Out
        Why the first refused lookup was refused, and its position; status OK when none was.
    done : Out(1)
        A pulse when the lookup that is `last` has been written.
    read_address, read_data, write_enable, write_address, write_data
        Of the memory of counter sets, read latency 1.

    Timing
    ------
    One lookup a cycle, always; `done` after `latency` cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        self.lag = lag_of(config)
        self.latency = self.lag + 5
        set_width = log2(config.counter_sets)
        super().__init__({
            "begin": In(1),
            "enable": In(1),
            "lookup": In(ordered_lookup(config)),
            "hits": Out(32),
            "misses": Out(32),
            "status": Out(8),
            "refused_at": Out(32),
            "done": Out(1),
            "read_address": Out(set_width),
            "read_data": In(counter_set(config)),
            "write_enable": Out(1),
            "write_address": Out(set_width),
            "write_data": Out(counter_set(config)),
        })

    def elaborate(self, platform):
        m = Module()
        c, lag = self.config, self.lag
        place, read, compare = range(3)
        execute = compare + lag
        write, written = execute + 1, execute + 2

        def each(shape, name, stages):
            """A register per stage; data registers need no reset."""
            return {at: Signal(shape, name=f"{name}{at}", reset_less=True) for at in stages}

        lookup = self.lookup.lookup
        refused = lookup.out_of_range | (lookup.fault != 0)
        counted = self.enable & lookup.present & ~refused
        valid, final = Signal(written + 1), Signal(written + 1)
        m.d.sync += [
            valid.eq(Cat(counted, valid)),
            final.eq(Cat(self.enable & self.lookup.last, final)),
        ]
        m.d.comb += self.done.eq(final[write])

        places = each(counter_place(c), "place", range(place, written + 1))
        m.d.sync += places[place].as_value().eq(mix(lookup.key.as_value(), 0, c.key_width))
        for at in range(place, written):
            m.d.sync += places[at + 1].eq(places[at])

        # Lookups move in step: which of those ahead have the same set, or row, is found once.
        same_set = each(written - 1, "same_set", range(read, execute))
        same_row = each(lag, "same_row", range(read, execute))
        here = places[place]
        m.d.sync += [
            same_set[read].eq(Cat(
                valid[place] & valid[ahead] & (places[ahead].set == here.set)
                for ahead in range(read, written))),
            same_row[read].eq(Cat(places[ahead].tag == here.tag for ahead in range(1, lag + 1))),
        ]
        for at in range(read, execute - 1):
            m.d.sync += [same_set[at + 1].eq(same_set[at]), same_row[at + 1].eq(same_row[at])]

        def same(younger, older):
            return same_set[younger][older - younger - 1]

        words = each(counter_set(c), "word", range(compare, written + 1))
        limits = range(lag + 1)
        behind_compare = range(compare + 1, execute + 1)
        lows = each(data.ArrayLayout(c.counter_ways, lag + 1), "low", behind_compare)
        matches = each(c.counter_ways, "match", behind_compare)
        victim = Signal(c.counter_ways, reset_less=True)
        hit = Signal()
        update = SetUpdate(m, c, words[execute], list(lows[execute]), places[execute].tag,
                           hit, matches[execute], victim)

        with m.If(same(read, execute)):
            m.d.sync += words[compare].eq(update.word)
        with m.Elif(same(read, write)):
            m.d.sync += words[compare].eq(words[write])
        with m.Elif(same(read, written)):
            m.d.sync += words[compare].eq(words[written])
        with m.Else():
            m.d.sync += words[compare].eq(self.read_data)
        m.d.sync += [words[write].eq(update.word), words[written].eq(words[write])]

        for at in range(compare, execute):
            low, match = (lows[at], matches[at]) if at > compare else (
                at_most(words[at], limits), resident(words[at], places[at].tag))
            forwarded = Signal(name=f"forwarded{at}")
            next_match = Signal(c.counter_ways, name=f"next_match{at}")
            next_low = [Signal(c.counter_ways, name=f"next_low{at}_{limit}") for limit in limits]
            arrived = same_row[at][execute - at - 1]
            m.d.comb += [
                forwarded.eq(same(at, execute)),
                next_match.eq(Mux(forwarded & ~hit, Cat(evict(match, victim, arrived)), match)),
                [after.eq(Mux(forwarded, updated, before))
                 for after, updated, before in zip(next_low, update.low, low)],
            ]
            m.d.sync += [
                words[at + 1].eq(Mux(forwarded, update.word, words[at])),
                matches[at + 1].eq(next_match),
                [register.eq(after) for register, after in zip(lows[at + 1], next_low)],
            ]

        nodes = []
        for number, way in enumerate(words[compare]):
            hits = [same(compare, ahead) & matches[ahead][number]
                    for ahead in behind_compare]
            grown = Signal(range(self._limit + lag + 1), name=f"grown{number}")
            foreseen = Signal(c.counter_bits, name=f"foreseen{number}")
            m.d.comb += [
                grown.eq(way.count + sum(hits)),
                foreseen.eq(Mux(grown > self._limit, self._limit, grown)),
            ]
            nodes.append((foreseen, Const(1, 1)))
        for at in range(compare, execute):
            for level in range(1 if at == compare else 2):
                nodes = merge_pairs(m, nodes, f"minimum{at}_{level}")
            if at + 1 < execute:
                held = [(Signal.like(count, reset_less=True, name=f"held{at}_{number}"),
                         Signal.like(chosen, reset_less=True, name=f"held{at}_{number}_victim"))
                        for number, (count, chosen) in enumerate(nodes)]
                for (count, chosen), node in zip(held, nodes):
                    m.d.sync += [count.eq(node[0]), chosen.eq(node[1])]
                nodes = held
        # The decisions of the lookup that executes next: its match and low counts are the loop's
        # last, those that leave the stage before.
        (_, least), = nodes
        m.d.sync += [victim.eq(least_low(next_low, least)), hit.eq(next_match.any())]

        m.d.comb += [
            self.read_address.eq(here.set),
            self.write_enable.eq(valid[write]),
            self.write_address.eq(places[write].set),
            self.write_data.eq(words[write]),
        ]
        m.d.sync += [
            self.hits.eq(self.hits + (valid[execute] & hit)),
            self.misses.eq(self.misses + (valid[execute] & ~hit)),
        ]
        with m.If(self.enable & lookup.present & refused & (self.status == Status.OK)):
            m.d.sync += [
                self.status.eq(Mux(lookup.fault != 0, Status.SLVERR - 1 + lookup.fault,
                                   Status.ROW_OUT_OF_RANGE)),
                self.refused_at.eq(self.lookup.position),
            ]
        with m.If(self.begin):
            m.d.sync += [self.hits.eq(0), self.misses.eq(0), self.status.eq(Status.OK),
                         self.refused_at.eq(0)]
        return m

    @property
    def _limit(self):
        return (1 << self.config.counter_bits) - 1
