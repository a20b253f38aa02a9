"""Count bank: one bank of the access counters.

Source: the banked access logger of Hotline (ISCA 2024), here with exact counts; the replacement is
that of frequency-aware caches, the least counted row leaves, with the hand of a clock among equals
instead of an order of arrival, which would move every way of a set at each miss.
"""

from itertools import pairwise

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bank_layouts import NUMBER_WIDTH, amount_width, count_answer, count_request
from .config import Config, log2
from .counter_set import (
    ScanPort,
    counter_set,
    counter_way,
    picked,
    set_hand,
    way_bits,
)
from .placement import counter_place
from .ram import ClearedRam


class CountBank(wiring.Component):
    """Tagged, saturating counts of rows, in sets of ways.

    A row that is counted gains `amount`. Another takes the place of the way with the least count,
    the first at or after the set's hand among equals, with a count of `amount`; the hand then
    points behind it. With an `amount` of 0, as from a planner, nothing happens to any.

    Parameters
    ----------
    config : Config
    spaced : bool, optional
        Requests of the same set come `distance` cycles apart; otherwise they wait here.

    Members
    -------
    requests : In(stream(count_request(config)))
    answers : Out(stream(count_answer(config), always_ready=True))
        One per request, in order.
    scan : In(ScanPort(config))
        Only while no request is inside.
    clear : In(1)
        A pulse forgets every count.
    restart : In(1)
        A pulse forgets the requests in flight; those not yet written are not counted.
    ready : Out(1)
        Low while the memory is being cleared; requests then wait.

    Timing
    ------
    One request a cycle; two of the same set at least `distance` cycles apart. The answer comes
    `latency` cycles after the request.
    """

    latency = 4  # read, hold, compare, decide
    distance = 5  # and write

    def __init__(self, config: Config, *, spaced=False):
        self.config, self._spaced = config, spaced
        super().__init__({
            "requests": In(stream.Signature(count_request(config))),
            "answers": Out(stream.Signature(count_answer(config), always_ready=True)),
            "scan": In(ScanPort(config)),
            "clear": In(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, scan = self.config, self.scan
        m.submodules.sets = sets = ClearedRam(
            counter_set(c).size, c.counter_sets // c.banks, parts=c.counter_ways)
        place = data.StructLayout({
            "set": log2(c.counter_sets // c.banks), "tag": c.counter_tag_width,
            "amount": amount_width(c)})
        at = {name: Signal(place, name=f"{name}_place", reset_less=True)
              for name in ("read", "held", "compared", "decided")}
        valid, halves = ({name: Signal(name=f"{name}_{flag}") for name in at}
                         for flag in ("valid", "halves"))
        given, taken = Signal(place), Signal()
        given_set, given_tag = counter_place(c, self.requests.p.rest)
        m.d.comb += [
            given.set.eq(Mux(scan.active, scan.set, given_set)),
            given.tag.eq(given_tag),
            given.amount.eq(self.requests.p.amount),
            self.ready.eq(sets.ready),
            self.requests.ready.eq(sets.ready),
            taken.eq(self.requests.valid & self.requests.ready),
            sets.clear.eq(self.clear),
            sets.read_address.eq(given.set),
        ]
        if not self._spaced:
            with m.If(Cat(valid[name] & (at[name].set == given.set) for name in at).any()):
                m.d.comb += self.requests.ready.eq(0)
        m.d.sync += [
            at["read"].eq(given), valid["read"].eq(taken), halves["read"].eq(scan.halve)]
        for before, after in pairwise(at):
            m.d.sync += [at[after].eq(at[before]), valid[after].eq(valid[before]),
                         halves[after].eq(halves[before])]
        # A scan names the way itself, and no row.
        forced = {name: Signal(c.counter_ways, name=f"{name}_forced") for name in ("read", "held")}
        m.d.sync += [
            forced["read"].eq(Mux(scan.enable, scan.ways, 0)),
            forced["held"].eq(forced["read"]),
        ]
        with m.If(scan.active):
            m.d.sync += [at["read"].tag.eq(0), at["read"].amount.eq(0)]
        with m.If(self.restart):
            m.d.sync += [each.eq(0) for each in (*valid.values(), *halves.values())]

        read, shape = data.View(counter_set(c), sets.read_data).ways, counter_way(c)
        held = [Signal(shape, name=f"held{number}", reset_less=True)
                for number in range(c.counter_ways)]
        hands = {name: Signal(way_bits(c), name=f"{name}_hand", reset_less=True)
                 for name in ("held", "compared")}
        match = Signal(c.counter_ways)
        m.d.sync += [
            [each.eq(way) for each, way in zip(held, read)],
            hands["held"].eq(set_hand(read)),
            hands["compared"].eq(hands["held"]),
            match.eq(forced["held"] | Cat(
                valid["held"] & way.live & (way.tag == at["held"].tag) for way in held)),
        ]
        counts, tags, marks = [], [], []
        for number, way in enumerate(held):
            kept = Signal(len(way.count) + len(way.tag), name=f"compared{number}",
                          reset_less=True)
            mark, decided_mark = (Signal(way_bits(c), name=f"{name}_mark{number}")
                                  for name in ("compared", "decided"))
            m.d.sync += [
                kept.eq(Cat(way.count, way.tag)),
                mark.eq(way.mark),
                decided_mark.eq(mark),
            ]
            counts.append(kept[:c.counter_bits])
            tags.append(kept[c.counter_bits:])
            marks.append(decided_mark)
        victim, behind_victim = self._victim(m, held, hands["held"])

        # Decide: which way is written, and with what.
        limit = (1 << c.counter_bits) - 1
        hit, before, asked = Signal(), Signal(c.counter_bits), at["compared"]
        grown = Signal(max(c.counter_bits, amount_width(c)) + 1)
        written = Signal(c.counter_ways)
        count, tag, turn = Signal(c.counter_bits), Signal(c.counter_tag_width), Signal(way_bits(c))
        told, reaches = Signal(c.counter_bits, reset_less=True), Signal(reset_less=True)
        new = Signal(shape)
        m.d.comb += [
            hit.eq(match.any()),
            before.eq(picked(counts, match)),
            grown.eq(before + (asked.amount | scan.complement)),
        ]
        m.d.sync += [
            written.eq(Mux(hit, match, victim)),
            count.eq(Mux(halves["compared"], before >> 1, Mux(grown > limit, limit, grown))),
            tag.eq(asked.tag | picked(tags, match)),  # of a scan, the way's; else the same
            turn.eq(Mux(hit, 0, behind_victim ^ hands["compared"])),
            told.eq(before),
            reaches.eq(grown[c.counter_bits]),
            self.answers.valid.eq(valid["compared"] & ~self.restart),
            self.answers.p.counted.eq(hit),
        ]
        adds = valid["decided"]
        if c.planner:  # which only looks, too
            adds = adds & at["decided"].amount.any()
            m.d.comb += self.answers.p.count.eq(saturated(told, NUMBER_WIDTH))
        m.d.comb += [
            new.count.eq(count),
            new.tag.eq(tag),
            new.mark.eq(turn ^ picked(marks, written)),
            new.live.eq(count != 0),
            scan.entry.count.eq(told),
            scan.entry.tag.eq(tag),
            scan.entry.reaches.eq(reaches),
            sets.write_enable.eq(Mux(adds | halves["decided"], written, 0)),
            sets.write_address.eq(at["decided"].set),
        ]
        # Way by way: what is given one `Cat` would be named otherwise in every bank.
        m.d.comb += [sets.write_data.word_select(number, len(new.as_value())).eq(new)
                     for number in range(c.counter_ways)]
        with m.If(self.clear | ~sets.ready):
            m.d.sync += [count.eq(0), tag.eq(0), turn.eq(0), [mark.eq(0) for mark in marks]]
        return m

    def _victim(self, m, held, hand):
        """The way with the least count, the first from the hand on, as a flag; and the number of
        the way behind it. Known with `compared`."""
        ways = self.config.counter_ways
        nodes = self._halve(m, [(Cat(behind(hand, number, ways), way.count), number)
                                for number, way in enumerate(held)], "first")
        kept = []
        for number, (key, way) in enumerate(nodes):
            registers = (Signal(len(key), name=f"least{number}", reset_less=True),
                         Signal(range(ways), name=f"least{number}_way", reset_less=True,
                                init=2 * number))  # so that only one bit of it is a register
            m.d.sync += [registers[0].eq(key), registers[1].eq(way)]
            kept.append(registers)
        step = 0
        while len(kept) > 4:
            kept = self._halve(m, kept, f"step{step}")
            step += 1
        # Each of the last few is compared with all others at once; the first of the least wins.
        victim, behind_it = Signal(ways), Signal(way_bits(self.config))
        less = {(low, high): Signal(name=f"less{low}_{high}")
                for high in range(len(kept)) for low in range(high)}
        for (low, high), before_high in less.items():
            m.d.comb += before_high.eq(kept[low][0] <= kept[high][0])
        wins = Signal(len(kept))
        m.d.comb += [
            wins.eq(Cat(
                Cat(1, *(~less[other, at] if other < at else less[at, other]
                         for other in range(len(kept)) if other != at)).all()
                for at in range(len(kept)))),
            victim.eq(picked((1 << way for _, way in kept), wins)),
            behind_it.eq(picked((Mux(way == ways - 1, 0, way + 1) for _, way in kept), wins)),
        ]
        return victim, behind_it

    def _halve(self, m, nodes, name):
        """One level of the tree that finds the least key; an odd one out passes."""
        halved = []
        for number, ((low, low_way), (high, high_way)) in enumerate(zip(nodes[::2], nodes[1::2])):
            key = Signal(len(low), name=f"{name}_{number}")
            way = Signal(range(self.config.counter_ways), name=f"{name}_{number}_way")
            with m.If(low <= high):
                m.d.comb += [key.eq(low), way.eq(low_way)]
            with m.Else():
                m.d.comb += [key.eq(high), way.eq(high_way)]
            halved.append((key, way))
        return halved + nodes[len(nodes) & ~1:]


def saturated(value, width):
    """The value, or if it has more bits than `width` the largest number of that width."""
    return Mux(value[width:].any(), (1 << width) - 1, value)[:width]


def behind(hand, way, ways):
    """How far a way lies behind the hand, which goes round."""
    places = Array(Const((way - at) % ways, (ways - 1).bit_length()) for at in range(ways))
    return places[hand]
