"""Count bank: one bank of the access counters.

Source: the banked access logger of Hotline (ISCA 2024), here with exact counts. As in
frequency-aware caches the least counted row leaves, but not at once: like a count that decays
(HeavyKeeper, ATC 2018) its credit does, and the count stays exact. Otherwise one way of each set
takes every row that comes by, which costs a set of 4 ways more than one of 8.
"""

from itertools import pairwise

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import CREDIT_LOG2, CREDIT_WIDTH, CREDITED_WIDTH, Config, log2
from ...interfaces.lookup_payloads import NUMBER_WIDTH, amount_width, count_answer, count_request
from ...primitives.bits import onehot_mux, saturate
from ...primitives.ram import ClearedRam
from ..hashing.row_location import counter_place
from .set_layout import ScanPort, counter_credits, counter_set, counter_way


class CounterBank(wiring.Component):
    """Tagged, saturating counts of rows, in sets of ways.

    A row that is counted gains `amount`, and its credit becomes `2 ** CREDIT_LOG2` times what its
    count was, a count of as many as `CREDITED_WIDTH` bits tell at most. Another meets the way with
    the least count, the first of equals: as long as that has credit it loses `amount` of it, and
    the row is not counted; then the row takes its place, with a count of `amount` and no credit. An
    empty way has none. A scan that halves counts takes all credit, so that the rows which became
    hot since the one before get in. With an `amount` of 0, as from a planner, nothing happens to
    any.

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
        m.submodules.credits = credits = ClearedRam(  # cleared when the sets are
            counter_credits(c).size, c.counter_sets // c.banks, parts=c.counter_ways)
        place = data.StructLayout({
            "set": log2(c.counter_sets // c.banks), "tag": c.counter_tag_width,
            "amount": amount_width(c)})
        at = {name: Signal(place, name=f"{name}_place", reset_less=True)
              for name in ("read", "held", "compared", "decided")}
        valid, halves = ({name: Signal(name=f"{name}_{flag}") for name in at}
                         for flag in ("valid", "halves"))
        given, taken = Signal(place), Signal()
        given_set, given_tag = counter_place(c, self.requests.p.bank_key)
        m.d.comb += [
            given.set.eq(Mux(scan.active, scan.set, given_set)),
            given.tag.eq(given_tag),
            given.amount.eq(self.requests.p.amount),
            self.ready.eq(sets.ready),
            self.requests.ready.eq(sets.ready),
            taken.eq(self.requests.valid & self.requests.ready),
            sets.clear.eq(self.clear),
            credits.clear.eq(self.clear),
            sets.read_address.eq(given.set),
            credits.read_address.eq(at["held"].set),  # there with `compared`
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
        match = Signal(c.counter_ways)
        m.d.sync += [
            [each.eq(way) for each, way in zip(held, read)],
            match.eq(forced["held"] | Cat(
                valid["held"] & way.live & (way.tag == at["held"].tag) for way in held)),
        ]
        counts = [Signal(c.counter_bits, name=f"compared{number}", reset_less=True)
                  for number in range(c.counter_ways)]
        live, scanned = Signal(c.counter_ways, reset_less=True), Signal(c.counter_tag_width)
        m.d.sync += [
            [count.eq(way.count) for count, way in zip(counts, held)],
            live.eq(Cat(way.live for way in held)),
            scanned.eq(onehot_mux(forced["held"], (way.tag for way in held))),
        ]
        victim = self._victim(m, held)

        # Decide: which way is written, and with what.
        hit, before, asked = Signal(), Signal(c.counter_bits), at["compared"]
        grown = Signal(max(c.counter_bits, amount_width(c)) + 1)
        written = Signal(c.counter_ways)
        count, tag = Signal(c.counter_bits), Signal(c.counter_tag_width)
        found, earned = Signal(), Signal(CREDITED_WIDTH, reset_less=True)
        credit = Signal(counter_credits(c), reset_less=True)
        stays = Signal(c.counter_ways)  # unless it is found: its credit outlives this row
        told, reaches = Signal(c.counter_bits, reset_less=True), Signal(reset_less=True)
        new = Signal(shape)
        m.d.comb += [
            hit.eq(match.any()),
            before.eq(onehot_mux(match, counts)),
            grown.eq(before + (asked.amount | scan.complement)),
        ]
        m.d.sync += [
            written.eq(Mux(hit, match, victim)),
            count.eq(Mux(halves["compared"], before >> 1, saturate(grown, c.counter_bits))),
            tag.eq(asked.tag | scanned),
            found.eq(hit),
            earned.eq(Mux(halves["compared"], 0, saturate(before, CREDITED_WIDTH))),
            Cat(credit).eq(credits.read_data),
            stays.eq(live & Cat(
                each.any() for each in data.View(counter_credits(c), credits.read_data))),
            told.eq(before),
            reaches.eq(grown[c.counter_bits]),
            self.answers.valid.eq(valid["compared"] & ~self.restart),
            self.answers.p.counted.eq(hit),
        ]
        adds = valid["decided"] & at["decided"].amount.any()
        if c.planner:
            m.d.comb += self.answers.p.count.eq(saturate(told, NUMBER_WIDTH))
        writes = adds | halves["decided"]
        m.d.comb += [
            new.count.eq(count),
            new.tag.eq(tag),
            new.live.eq(count != 0),
            scan.entry.count.eq(told),
            scan.entry.tag.eq(tag),
            scan.entry.reaches.eq(reaches),
            sets.write_enable.eq(Mux(writes, written & (~stays | found.replicate(len(stays))), 0)),
            sets.write_address.eq(at["decided"].set),
            credits.write_enable.eq(Mux(writes, written, 0)),
            credits.write_address.eq(at["decided"].set),
        ]
        # Lookups that came as one take as much as apart: otherwise what comes in bursts, which is
        # what the combiner joins, hardly gets in.
        next_credit, left = Signal(CREDIT_WIDTH), onehot_mux(written, credit) - at["decided"].amount
        with m.If(found):
            m.d.comb += next_credit.eq(Cat(Const(0, CREDIT_LOG2), earned))
        with m.Elif((left >= 0) & (written & stays).any()):
            m.d.comb += next_credit.eq(left)
        # Way by way: what is given one `Cat` would be named otherwise in every bank.
        m.d.comb += [ram.write_data.word_select(number, len(each)).eq(each)
                     for ram, each in ((sets, new.as_value()), (credits, next_credit))
                     for number in range(c.counter_ways)]
        with m.If(self.clear | ~sets.ready):
            m.d.sync += [register.eq(0) for register in (count, tag, found, stays)]
        return m

    def _victim(self, m, held):
        """The way with the least count, the first of equals, as a flag; known with `compared`."""
        ways = self.config.counter_ways
        nodes = self._halve(m, [(way.count, number) for number, way in enumerate(held)], "first")
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
        victim = Signal(ways)
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
            victim.eq(onehot_mux(wins, (1 << way for _, way in kept))),
        ]
        return victim

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
