"""Planner bank: a lookup bank that allocates slots to the rows of coming batches."""

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
    """Count a row, find or plan its slot, and look up a row without a slot in the miss table.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    requests, answers, scan, clear_counts, clear_misses, restart
        See `LookupBank`.
    setting : In(plan_setting(config))
        Stable while a request other than FIND is inside.
    batch : In(32)
        Full number of the batch that is planned; stable like `setting`.
    begin : In(1)
        A pulse before the first request of the batch.
    newest : Out(newest_age(config))
        See `BypassTable`; valid `BypassTable.latency` cycles after the answers.
    sweep : In(1)
        See `SlotTable`.
    clear_slots : In(1)
        A pulse frees every slot and clears the bypass table.
    ready : Out(1)
        Low while a memory is cleared or swept; requests wait.

    Timing
    ------
    One request a cycle. The bank spaces two requests of one set of the counters or of the miss
    table by `CounterBank.distance` cycles, and of one set of slots, unless the first is FIND, by
    `SlotTable.distance`. The answer is valid `latency` cycles after the request, plus the cycles
    that the request waited.
    """

    def __init__(self, config: Config):
        self.config = config
        self.latency = 2 + latency(config) + MissTableBank.latency  # hash, wait, slots, misses
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
        request, places, fire = self._issue(m, sets)

        # Counters and slots look up in parallel; the miss table follows the slots.
        asked, wait = self.latency - 2, slots.latency  # cycles to the answer of all, of the slots
        valid = Signal(asked)
        m.d.sync += valid.eq(Cat(fire, valid))
        plans = delay(m, request.op == DirectoryOp.PLAN, asked, "plans")[-1]
        answer, response = slots.answer, self.answers.p.as_value()
        bank_key = Cat(slots.asked.set[:c.bank_key_width - c.directory_tag_width], slots.asked.tag)
        count = delay(m, counts.answers.p.count, wait - 1 - CounterBank.latency, "count")[-1]
        m.d.comb += [
            counts.requests.valid.eq(fire),
            counts.requests.p.bank_key.eq(request.bank_key),
            counts.requests.p.amount.eq(request.amount),
            slots.enter.eq(fire & (request.search | (request.op != DirectoryOp.FIND))),
            slots.request.op.eq(request.op),
            slots.count.eq(count),
            slots.request.places.eq(places),
            misses.enter.eq(delay(m, request.miss & fire, wait, "asks_misses")[-1]
                            & ~answer.placed),
            misses.bank_key.eq(bank_key),
            misses.epoch.eq(delay(m, request.epoch, wait, "epoch")[-1]),
        ]

        # In `bank_answer` slot and miss-table answer share bits.
        found = Cat(answer.hit, answer.placed)
        more = Cat(answer.first, answer.evicts & answer.dirty, answer.tag)
        found, slot, more, entry = (
            delay(m, value, MissTableBank.latency, name)[-1] for name, value in (
                ("found", found), ("slot", answer.slot.as_value()), ("more", more),
                ("entry", bank_key[:len(stamps.entry)])))
        counted = delay(m, counts.answers.p.counted, asked - CounterBank.latency, "counted")[-1]
        hit, placed = found
        at = bank_answer(c)["first"].offset
        m.d.comb += [
            self.answers.valid.eq(valid[-1] & ~self.restart),
            response[0].eq(counted),
            response[1:3].eq(found),
            response[3:at].eq(Mux(placed, slot, misses.answer.as_value())),
            response[at:].eq(more),
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

    def _issue(self, m, sets):
        """Hash a request and space it: (the request, its places, whether it fires)."""
        c, given = self.config, self.requests
        hashed, request = (Signal(bank_request(c), name=name, reset_less=True)
                           for name in ("hashed", "waiting"))
        places = Signal(sets.places.shape(), reset_less=True)
        hash_valid, wait_valid, wait_ready, fire = (Signal(name=name) for name in (
            "hash_valid", "wait_valid", "wait_ready", "fire"))
        m.d.comb += [
            wait_ready.eq(~wait_valid | fire),
            given.ready.eq(~hash_valid | wait_ready),
            sets.enable.eq(given.ready),
            *(getattr(sets, name).eq(given.p[name]) for name in ("bank_key", "parts_log2", "part")),
        ]
        with m.If(given.ready):
            m.d.sync += [hash_valid.eq(given.valid), hashed.eq(given.p)]

        # A request computes once how long it waits for earlier requests of its sets: bit n is set
        # if one fired n cycles before; the bits shift out with time. A FIND delays no request.
        counted, missed = CounterBank.distance, MissTableBank.distance
        recent = [
            (counted, near(m, "count", counted, counter_place(c, hashed.bank_key)[0], 1,
                           counter_place(c, request.bank_key)[0], fire & (request.amount != 0))),
            (missed, near(m, "miss", missed, hashed.bank_key[:log2(c.miss_sets)], hashed.miss,
                          request.bank_key[:log2(c.miss_sets)], fire & request.miss)),
            *((distance(c), near(
                m, f"choice{choice}", distance(c), sets.places[choice].set, 1,
                places[choice].set, fire & (request.op != DirectoryOp.FIND)))
              for choice in range(c.directory_choices)),
        ]
        clears = self.clear_counts | self.clear_slots | self.clear_misses | self.sweep
        hold, conflicts = Signal(self.distance - 1), Signal(self.distance - 1)
        awake, spaced = Signal(), Signal(init=1)  # Timing: decided one cycle ahead
        m.d.comb += [
            conflicts.eq(reduce(or_, (
                cycles << self.distance - least for least, cycles in recent))),
            fire.eq(wait_valid & spaced & awake),
        ]
        m.d.sync += [
            awake.eq(self.ready & ~clears),
            hold.eq(hold << 1),
            spaced.eq(~hold[:-1].any()),
        ]
        with m.If(wait_ready):
            m.d.sync += [
                wait_valid.eq(hash_valid),
                request.eq(hashed),
                places.eq(sets.places),
                hold.eq(conflicts),
                spaced.eq(~conflicts.any()),
            ]
        with m.If(self.restart):
            m.d.sync += [hash_valid.eq(0), wait_valid.eq(0)]
        return request, places, fire
