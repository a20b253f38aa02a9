"""Planner bank: a lookup bank whose rows are given slots for coming batches."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import DirectoryOp, bank_answer, bank_request
from ...primitives.bits import delay
from ..banks.hazard_distance import near
from ..counters.bank import CounterBank
from ..counters.set_layout import ScanPort, scanned_entry
from ..hashing.row_location import counter_place
from ..splitter.miss_table import MissTableBank
from .bypass_table import BypassTable, newest_age
from .payloads import plan_setting
from .set_index import SlotSets
from .slot_table import SlotTable, distance, latency


class PlannerBank(wiring.Component):
    """Count a row, find or plan its slot, and if it has none its place among the misses.

    Parameters
    ----------
    config : Config

    Members
    -------
    requests, answers, scan, clear_counts, clear_misses, restart
        As of `LookupBank`.
    setting : In(plan_setting(config))
        Stable while any request is inside that is not FIND.
    batch : In(32)
        The whole number of the batch that is planned, as stable.
    begin : In(1)
        A pulse before its first request.
    newest : Out(newest_age(config))
        As of `BypassTable`, `BypassTable.latency` cycles behind the answers.
    sweep : In(1)
        As of `SlotTable`.
    clear_slots : In(1)
        A pulse frees every slot and forgets which batches bypassed what.
    ready : Out(1)
        Low while a memory is being cleared or swept; requests then wait.

    Timing
    ------
    One request a cycle. Two of the same set of the counters or of the miss table are at least
    `CounterBank.distance` cycles apart, two of the same set of slots, unless the first is FIND,
    `SlotTable.distance`. The answer comes `latency` cycles after the request, or as much later as
    that had to wait.
    """

    def __init__(self, config: Config):
        self.config = config
        self.latency = 2 + latency(config) + MissTableBank.latency  # hash, wait, and the two
        self.distance = max(distance(config), CounterBank.distance)
        super().__init__({
            "requests": In(stream.Signature(bank_request(config))),
            "answers": Out(stream.Signature(bank_answer(config), always_ready=True)),
            "scan": In(ScanPort(config)),
            "setting": In(plan_setting(config)),
            "batch": In(32),
            "begin": In(1),
            "newest": Out(newest_age(config)),
            "sweep": In(1),
            "clear_counts": In(1),
            "clear_slots": In(1),
            "clear_misses": In(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.counts = counts = CounterBank(c, spaced=True)
        m.submodules.sets = sets = SlotSets(c)
        m.submodules.slots = slots = SlotTable(c)
        m.submodules.misses = misses = MissTableBank(c)
        m.submodules.stamps = stamps = BypassTable(c)
        m.d.comb += [
            counts.clear.eq(self.clear_counts),
            slots.clear.eq(self.clear_slots),
            slots.sweep.eq(self.sweep),
            slots.setting.eq(self.setting),
            misses.clear.eq(self.clear_misses),
            stamps.clear.eq(self.clear_slots),
            stamps.begin.eq(self.begin),
            stamps.batch.eq(self.batch),
            stamps.unretired.eq((self.batch - self.setting.retired)[:self.config.stamp_bits]),
            self.newest.eq(stamps.newest),
            self.ready.eq(Cat(unit.ready for unit in (counts, slots, misses, stamps)).all()),
            *(unit.restart.eq(self.restart) for unit in (counts, slots, misses)),
        ]
        request, places, taken = self._take(m, sets)

        # Every unit knows when it answers: counters and slots at once, the miss table behind them.
        asked, wait = self.latency - 2, slots.latency  # cycles from there to the answer
        valid = Signal(asked)
        m.d.sync += valid.eq(Cat(taken, valid))
        plans = delay(m, request.op == DirectoryOp.PLAN, asked, "plans")[-1]
        answer, told = slots.answer, self.answers.p.as_value()
        rest = Cat(slots.asked.set[:c.bank_key_width - c.directory_tag_width], slots.asked.tag)
        count = delay(m, counts.answers.p.count, wait - 1 - CounterBank.latency, "count")[-1]
        m.d.comb += [
            counts.requests.valid.eq(taken),
            counts.requests.p.bank_key.eq(request.bank_key),
            counts.requests.p.amount.eq(request.amount),
            slots.enter.eq(taken & (request.search | (request.op != DirectoryOp.FIND))),
            slots.request.op.eq(request.op),
            slots.count.eq(count),
            slots.request.places.eq(places),
            misses.enter.eq(delay(m, request.miss & taken, wait, "asks_misses")[-1]
                            & ~answer.placed),
            misses.bank_key.eq(rest),
            misses.epoch.eq(delay(m, request.epoch, wait, "epoch")[-1]),
        ]

        # As in `bank_answer`: a slot, or what the miss table says.
        found = Cat(answer.hit, answer.placed)
        more = Cat(answer.first, answer.evicts & answer.dirty, answer.tag)
        found, slot, more, entry = (
            delay(m, value, MissTableBank.latency, name)[-1] for name, value in (
                ("found", found), ("slot", answer.slot.as_value()), ("more", more),
                ("entry", rest[:len(stamps.entry)])))
        counted = delay(m, counts.answers.p.counted, asked - CounterBank.latency, "counted")[-1]
        hit, placed = found
        at = bank_answer(c)["first"].offset
        m.d.comb += [
            self.answers.valid.eq(valid[-1] & ~self.restart),
            told[0].eq(counted),
            told[1:3].eq(found),
            told[3:at].eq(Mux(placed, slot, misses.answer.as_value())),
            told[at:].eq(more),
            stamps.enter.eq(self.answers.valid & plans & ~hit & (
                placed | ~misses.answer.repeated)),
            stamps.bypassed.eq(~placed),
            stamps.entry.eq(entry),
        ]
        with m.If(self.restart):
            m.d.sync += valid.eq(0)
        for field in ("active", "enable", "halve", "set", "ways", "complement"):
            m.d.comb += getattr(counts.scan, field).eq(getattr(self.scan, field))
        for field, _ in scanned_entry(c):
            m.d.comb += self.scan.entry[field].eq(counts.scan.entry[field])
        return m

    def _take(self, m, sets):
        """Hash a request, then let it wait: (the request, its places, whether it enters now)."""
        c, given = self.config, self.requests
        hashed, request = (Signal(bank_request(c), name=name, reset_less=True)
                           for name in ("hashed", "waiting"))
        places = Signal(sets.places.shape(), reset_less=True)
        hashes, waits, moves, taken = (Signal(name=name) for name in (
            "hashes", "waits", "moves", "taken"))
        m.d.comb += [
            moves.eq(~waits | taken),
            given.ready.eq(~hashes | moves),
            sets.enable.eq(given.ready),
            *(getattr(sets, name).eq(given.p[name]) for name in ("bank_key", "parts_log2", "part")),
        ]
        with m.If(given.ready):
            m.d.sync += [hashes.eq(given.valid), hashed.eq(given.p)]

        # When a request begins to wait it is known how many cycles it must, for those of its sets
        # that entered before: bit n is set if one did n cycles before, and those shift out with
        # time. One that only looks keeps none behind it.
        counted, missed = CounterBank.distance, MissTableBank.distance
        recent = [
            (counted, near(m, "count", counted, counter_place(c, hashed.bank_key)[0], 1,
                           counter_place(c, request.bank_key)[0], taken & (request.amount != 0))),
            (missed, near(m, "miss", missed, hashed.bank_key[:log2(c.miss_sets)], hashed.miss,
                          request.bank_key[:log2(c.miss_sets)], taken & request.miss)),
            *((distance(c), near(
                m, f"choice{choice}", distance(c), sets.places[choice].set, 1,
                places[choice].set, taken & (request.op != DirectoryOp.FIND)))
              for choice in range(c.directory_choices)),
        ]
        clears = self.clear_counts | self.clear_slots | self.clear_misses | self.sweep
        hold, met = Signal(self.distance - 1), Signal(self.distance - 1)
        awake, free = Signal(), Signal(init=1)  # decided a cycle ahead
        m.d.comb += [
            met.eq(reduce(or_, (cycles << self.distance - least for least, cycles in recent))),
            taken.eq(waits & free & awake),
        ]
        m.d.sync += [
            awake.eq(self.ready & ~clears),
            hold.eq(hold << 1),
            free.eq(~hold[:-1].any()),
        ]
        with m.If(moves):
            m.d.sync += [
                waits.eq(hashes),
                request.eq(hashed),
                places.eq(sets.places),
                hold.eq(met),
                free.eq(~met.any()),
            ]
        with m.If(self.restart):
            m.d.sync += [hashes.eq(0), waits.eq(0)]
        return request, places, taken
