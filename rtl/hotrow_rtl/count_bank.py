"""Count bank: one bank of the access counters.

Source: the banked access logger of Hotline (ISCA 2024), here with exact counts; the replacement is
that of frequency-aware caches, the least counted row leaves, with the hand of a clock among equals
instead of an order of arrival, which would move every way of a set at each miss.
"""

from functools import reduce
from itertools import pairwise
from operator import or_

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bank_layouts import amount_width, count_answer, count_request
from .config import Config, log2
from .counter_set import ScanPort, counter_set
from .placement import counter_place
from .ram import ClearedRam


class CountBank(wiring.Component):
    """Tagged, saturating counts of rows, in sets of ways.

    A row that is counted gains `amount`. Another takes the place of the way with the least count,
    the first at or after the set's hand among equals, with a count of `amount`; the hand then
    points behind it.

    Parameters
    ----------
    config : Config
    spaced : bool, optional
        Requests of the same set come `distance` cycles apart; otherwise they wait here.

    Members
    -------
    requests : In(stream(count_request(config)))
    answers : Out(stream(count_answer(), always_ready=True))
        One per request, in order.
    scan : In(ScanPort(config))
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
            "answers": Out(stream.Signature(count_answer(), always_ready=True)),
            "scan": In(ScanPort(config)),
            "clear": In(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, scan = self.config, self.scan
        shape = counter_set(c)
        m.submodules.sets = sets = ClearedRam(shape, c.counter_sets // c.banks)
        place = data.StructLayout({
            "set": log2(c.counter_sets // c.banks), "tag": c.counter_tag_width,
            "amount": amount_width(c)})
        at = {name: Signal(place, name=f"{name}_place", reset_less=True)
              for name in ("read", "held", "compared", "decided")}
        valid = {name: Signal(name=f"{name}_valid") for name in at}
        given, taken = Signal(place), Signal()
        given_set, given_tag = counter_place(c, self.requests.p.rest)
        m.d.comb += [
            given.set.eq(given_set),
            given.tag.eq(given_tag),
            given.amount.eq(self.requests.p.amount),
            self.ready.eq(sets.ready),
            self.requests.ready.eq(sets.ready & ~scan.enable),
            taken.eq(self.requests.valid & self.requests.ready),
            sets.clear.eq(self.clear),
        ]
        if not self._spaced:
            with m.If(Cat(valid[name] & (at[name].set == given.set) for name in at).any()):
                m.d.comb += self.requests.ready.eq(0)
        stages = list(at)
        m.d.sync += [at["read"].eq(given), valid["read"].eq(taken)]
        for before, after in pairwise(stages):
            m.d.sync += [at[after].eq(at[before]), valid[after].eq(valid[before])]
        with m.If(self.restart):
            m.d.sync += [each.eq(0) for each in valid.values()]

        held, compared = (Signal(shape, name=name, reset_less=True)
                          for name in ("held_word", "compared_word"))
        match = Signal(c.counter_ways, reset_less=True)
        m.d.sync += [
            held.eq(sets.read_data),
            compared.eq(held),
            match.eq(Cat((way.count != 0) & (way.tag == at["held"].tag) for way in held.ways)),
        ]
        nodes = self._halve(m, [(Cat(behind(held.hand, number, c.counter_ways), way.count), number)
                                for number, way in enumerate(held.ways)], "first")
        kept = []
        for number, (key, way) in enumerate(nodes):
            registers = (Signal(len(key), name=f"least{number}", reset_less=True),
                         Signal(range(c.counter_ways), name=f"least{number}_way", reset_less=True))
            m.d.sync += [registers[0].eq(key), registers[1].eq(way)]
            kept.append(registers)
        step = 0
        while len(kept) > 4:
            kept = self._halve(m, kept, f"step{step}")
            step += 1
        # Each of the last few is compared with all others at once; the first of the least wins.
        victim = Signal(range(c.counter_ways))
        less = {(low, high): Signal(name=f"less{low}_{high}")
                for high in range(len(kept)) for low in range(high)}
        for (low, high), before_high in less.items():
            m.d.comb += before_high.eq(kept[low][0] <= kept[high][0])
        m.d.comb += victim.eq(reduce(or_, (
            Mux(Cat(1, *(~less[other, at] if other < at else less[at, other]
                         for other in range(len(kept)) if other != at)).all(), way, 0)
            for at, (_, way) in enumerate(kept))))

        # Decide: which way is written, and with which count.
        limit = (1 << c.counter_bits) - 1
        hit, before = Signal(), Signal(c.counter_bits)
        grown = Signal(max(c.counter_bits, amount_width(c)) + 1)
        word = Signal(shape, name="decided_word", reset_less=True)
        written = Signal(c.counter_ways, reset_less=True)
        count, hand = Signal(c.counter_bits, reset_less=True), Signal(
            range(c.counter_ways), reset_less=True)
        m.d.comb += [
            hit.eq(match.any()),
            before.eq(reduce(or_, (Mux(here, way.count, 0)
                                   for way, here in zip(compared.ways, match)))),
            grown.eq(before + at["compared"].amount),
        ]
        m.d.sync += [
            word.eq(compared),
            written.eq(Mux(hit, match, 1 << victim)),
            count.eq(Mux(grown > limit, limit, grown)),
            hand.eq(Mux(hit, compared.hand, Mux(victim == c.counter_ways - 1, 0, victim + 1))),
            self.answers.valid.eq(valid["compared"] & ~self.restart),
            self.answers.p.counted.eq(hit),
        ]

        m.d.comb += [
            sets.read_enable.eq(Mux(scan.enable, scan.read_enable, 1)),
            sets.read_address.eq(Mux(scan.enable, scan.read_address, given.set)),
            scan.read_data.eq(Cat(sets.read_data)),
            sets.write_enable.eq(valid["decided"]),
            sets.write_address.eq(at["decided"].set),
            sets.write_data.hand.eq(hand),
        ]
        for old, after, here in zip(word.ways, sets.write_data.ways, written):
            m.d.comb += [
                after.count.eq(Mux(here, count, old.count)),
                after.tag.eq(Mux(here, at["decided"].tag, old.tag)),
            ]
        with m.If(scan.enable):
            m.d.comb += [
                sets.write_enable.eq(scan.write_enable),
                sets.write_address.eq(scan.write_address),
                Cat(sets.write_data).eq(scan.write_data),
            ]
        return m

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


def behind(hand, way, ways):
    """How far a way lies behind the hand, which goes round."""
    places = Array(Const((way - at) % ways, (ways - 1).bit_length()) for at in range(ways))
    return places[hand]
