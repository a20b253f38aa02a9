"""Counter bank: one bank of the access counters.

Source: the banked access logger of Hotline (ISCA 2024), here with exact counts. As in
frequency-aware caches the row with the lowest count is evicted, but not at once: a credit decays
first, like the counts of HeavyKeeper (ATC 2018), and the count stays exact. Without credit one way
of each set is overwritten by every cold row, and a set of 4 ways loses more by that than one of 8.
"""

from itertools import pairwise

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import CREDIT_LOG2, CREDIT_WIDTH, CREDITED_WIDTH, Config, log2
from ...interfaces.lookup_payloads import NUMBER_WIDTH, amount_width, count_answer, count_request
from ...primitives.bits import onehot_mux, saturate
from ...primitives.ram import ClearedRam
from ..hashing.row_location import split_counter_key
from .set_layout import ScanPort, counter_credits, counter_set, counter_way


class CounterBank(wiring.Component):
    """Tagged, saturating counts of rows, in sets of ways.

    A hit adds `amount` to the count of the row; its eviction credit becomes 2**CREDIT_LOG2 times
    its previous count, which counts with at most `CREDITED_WIDTH` bits. On a miss the victim is the
    way with the lowest count (lowest index on a tie). While it has credit, `amount` is subtracted
    and the new row is dropped; otherwise the new row replaces it, with a count of `amount` and no
    credit. An empty way has no credit. A scan that halves counts takes all credit, so that rows
    which became hot since the last scan can enter. An `amount` of 0 changes nothing.

    Parameters
    ----------
    config : Config
    spaced : bool, optional
        The requester keeps requests of the same set `distance` cycles apart; otherwise the bank
        stalls them.

    Attributes
    ----------
    requests : In(stream(count_request(config)))
    answers : Out(stream(count_answer(config), always_ready=True))
        One per request, in order.
    scan : In(ScanPort(config))
        Only while no request is in the bank.
    clear : In(1)
        A pulse clears every count.
    restart : In(1)
        A pulse drops the requests in the bank; a count that is not written yet is lost.
    ready : Out(1)
        Low while the memory is cleared; the bank then accepts no request.

    Timing
    ------
    One request a cycle; two of the same set at least `distance` cycles apart. Latency `latency`
    cycles.
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
        m.submodules.credits = credits = ClearedRam(
            counter_credits(c).size, c.counter_sets // c.banks, parts=c.counter_ways)
        row = data.StructLayout({
            "set": log2(c.counter_sets // c.banks), "tag": c.counter_tag_width,
            "amount": amount_width(c)})
        rows = {name: Signal(row, name=f"{name}_row", reset_less=True)
                for name in ("read", "held", "compared", "decided")}
        valid, halve = ({name: Signal(name=f"{name}_{flag}") for name in rows}
                        for flag in ("valid", "halve"))
        request, fire = Signal(row), Signal()
        request_set, request_tag = split_counter_key(c, self.requests.p.bank_key)
        m.d.comb += [
            request.set.eq(Mux(scan.active, scan.set, request_set)),
            request.tag.eq(request_tag),
            request.amount.eq(self.requests.p.amount),
            self.ready.eq(sets.ready),
            self.requests.ready.eq(sets.ready),
            fire.eq(self.requests.valid & self.requests.ready),
            sets.clear.eq(self.clear),
            credits.clear.eq(self.clear),
            sets.read_address.eq(request.set),
            credits.read_address.eq(rows["held"].set),  # data arrive in the compare stage
        ]
        if not self._spaced:
            with m.If(Cat(valid[name] & (rows[name].set == request.set) for name in rows).any()):
                m.d.comb += self.requests.ready.eq(0)
        m.d.sync += [
            rows["read"].eq(request), valid["read"].eq(fire), halve["read"].eq(scan.halve)]
        for before, after in pairwise(rows):
            m.d.sync += [rows[after].eq(rows[before]), valid[after].eq(valid[before]),
                         halve[after].eq(halve[before])]
        # A scan selects the way itself; no tag is compared.
        scan_ways = {name: Signal(c.counter_ways, name=f"{name}_scan_ways")
                     for name in ("read", "held")}
        m.d.sync += [
            scan_ways["read"].eq(Mux(scan.enable, scan.ways, 0)),
            scan_ways["held"].eq(scan_ways["read"]),
        ]
        with m.If(scan.active):
            m.d.sync += [rows["read"].tag.eq(0), rows["read"].amount.eq(0)]
        with m.If(self.restart):
            m.d.sync += [each.eq(0) for each in (*valid.values(), *halve.values())]

        read, shape = data.View(counter_set(c), sets.read_data).ways, counter_way(c)
        held = [Signal(shape, name=f"held{number}", reset_less=True)
                for number in range(c.counter_ways)]
        match = Signal(c.counter_ways)
        m.d.sync += [
            [each.eq(way) for each, way in zip(held, read, strict=True)],
            match.eq(scan_ways["held"] | Cat(
                valid["held"] & way.live & (way.tag == rows["held"].tag) for way in held)),
        ]
        counts = [Signal(c.counter_bits, name=f"compared{number}", reset_less=True)
                  for number in range(c.counter_ways)]
        live, scan_tag = Signal(c.counter_ways, reset_less=True), Signal(c.counter_tag_width)
        m.d.sync += [
            [count.eq(way.count) for count, way in zip(counts, held, strict=True)],
            live.eq(Cat(way.live for way in held)),
            scan_tag.eq(onehot_mux(scan_ways["held"], (way.tag for way in held))),
        ]
        victim = self._victim(m, held)

        # Decide which way is written, and its new contents.
        hit, before, compared = Signal(), Signal(c.counter_bits), rows["compared"]
        sum_ = Signal(max(c.counter_bits, amount_width(c)) + 1)
        write_ways = Signal(c.counter_ways)
        count, tag = Signal(c.counter_bits), Signal(c.counter_tag_width)
        hit_q, earned = Signal(), Signal(CREDITED_WIDTH, reset_less=True)
        credit = Signal(counter_credits(c), reset_less=True)
        protected = Signal(c.counter_ways)  # ways with credit: a miss does not replace their row
        before_q, reaches = Signal(c.counter_bits, reset_less=True), Signal(reset_less=True)
        new = Signal(shape)
        m.d.comb += [
            hit.eq(match.any()),
            before.eq(onehot_mux(match, counts)),
            sum_.eq(before + (compared.amount | scan.complement)),
        ]
        m.d.sync += [
            write_ways.eq(Mux(hit, match, victim)),
            count.eq(Mux(halve["compared"], before >> 1, saturate(sum_, c.counter_bits))),
            tag.eq(compared.tag | scan_tag),
            hit_q.eq(hit),
            earned.eq(Mux(halve["compared"], 0, saturate(before, CREDITED_WIDTH))),
            Cat(credit).eq(credits.read_data),
            protected.eq(live & Cat(
                each.any() for each in data.View(counter_credits(c), credits.read_data))),
            before_q.eq(before),
            reaches.eq(sum_[c.counter_bits]),
            self.answers.valid.eq(valid["compared"] & ~self.restart),
            self.answers.p.counted.eq(hit),
        ]
        if c.planner:
            m.d.comb += self.answers.p.count.eq(saturate(before_q, NUMBER_WIDTH))
        write = valid["decided"] & rows["decided"].amount.any() | halve["decided"]
        m.d.comb += [
            new.count.eq(count),
            new.tag.eq(tag),
            new.live.eq(count != 0),
            scan.entry.count.eq(before_q),
            scan.entry.tag.eq(tag),
            scan.entry.reaches.eq(reaches),
            sets.write_enable.eq(Mux(
                write, write_ways & (~protected | hit_q.replicate(len(protected))), 0)),
            sets.write_address.eq(rows["decided"].set),
            credits.write_enable.eq(Mux(write, write_ways, 0)),
            credits.write_address.eq(rows["decided"].set),
        ]
        # Combined lookups take as much credit as single ones; otherwise rows that come in bursts,
        # which the combiner merges, would hardly enter.
        next_credit = Signal(CREDIT_WIDTH)
        left = onehot_mux(write_ways, credit) - rows["decided"].amount
        with m.If(hit_q):
            m.d.comb += next_credit.eq(Cat(Const(0, CREDIT_LOG2), earned))
        with m.Elif((left >= 0) & (write_ways & protected).any()):
            m.d.comb += next_credit.eq(left)
        m.d.comb += [ram.write_data.eq(Cat([each] * c.counter_ways))
                     for ram, each in ((sets, new.as_value()), (credits, next_credit))]
        with m.If(self.clear | ~sets.ready):  # a clear writes `write_data`
            m.d.sync += [register.eq(0) for register in (count, tag, hit_q, protected)]
        return m

    def _victim(self, m, held):
        """One-hot way with the lowest count (lowest index on a tie), in the compare stage."""
        ways = self.config.counter_ways
        nodes = self._halve(m, [(way.count, number) for number, way in enumerate(held)], "first")
        candidates = []
        for number, (count, way) in enumerate(nodes):
            registers = (Signal(len(count), name=f"least{number}", reset_less=True),
                         Signal(range(ways), name=f"least{number}_way", reset_less=True,
                                init=2 * number))  # only the lowest bit of it varies
            m.d.sync += [registers[0].eq(count), registers[1].eq(way)]
            candidates.append(registers)
        step = 0
        while len(candidates) > 4:
            candidates = self._halve(m, candidates, f"step{step}")
            step += 1
        # The last candidates are all compared with each other at once.
        victim = Signal(ways)
        low_wins = {(low, high): Signal(name=f"wins{low}_{high}")
                    for high in range(len(candidates)) for low in range(high)}
        for (low, high), wins in low_wins.items():
            m.d.comb += wins.eq(candidates[low][0] <= candidates[high][0])
        winner = Signal(len(candidates))
        m.d.comb += [
            winner.eq(Cat(
                Cat(1, *(~low_wins[other, at] if other < at else low_wins[at, other]
                         for other in range(len(candidates)) if other != at)).all()
                for at in range(len(candidates)))),
            victim.eq(onehot_mux(winner, (1 << way for _, way in candidates))),
        ]
        return victim

    def _halve(self, m, nodes, name):
        """One level of a minimum tree; an odd node passes."""
        halved = []
        for number, ((low, low_way), (high, high_way)) in enumerate(
                zip(nodes[::2], nodes[1::2], strict=False)):
            count = Signal(len(low), name=f"{name}_{number}")
            way = Signal(range(self.config.counter_ways), name=f"{name}_{number}_way")
            with m.If(low <= high):
                m.d.comb += [count.eq(low), way.eq(low_way)]
            with m.Else():
                m.d.comb += [count.eq(high), way.eq(high_way)]
            halved.append((count, way))
        return halved + nodes[len(nodes) & ~1:]
