"""Lookup bank: counters, slot table and miss table of the rows of one bank, requested together."""

from functools import reduce
from operator import or_

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import DirectoryOp, bank_answer, bank_request
from ...interfaces.table_bounds import partition, partitioned_set
from ...primitives.bits import delay
from ..counters.bank import CounterBank
from ..counters.set_layout import ScanPort, scanned_entry
from ..directory.payloads import plan_setting, set_tag
from ..directory.slot_table import SlotTable, distance, latency
from ..hashing.row_location import split_counter_key
from ..hashing.xorshift_hardware import hash_key_hw
from ..splitter.miss_table import MissTableBank
from .bypass_table import BypassTable, newest_age


class SetIndex(wiring.Component):
    """Hash a row once for each hash choice, and take set and tag from each hash.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    enable : In(1)
        Load the row of this cycle.
    bank_key : In(config.bank_key_width)
    parts_log2, part : In
        Directory partition of the row's table; see `partition`.
    choices : Out(ArrayLayout(set_tag(config), config.directory_choices))
        Of the row loaded last.

    Timing
    ------
    Latency 1 cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "enable": In(1),
            "bank_key": In(config.bank_key_width),
            **{name: In(shape) for name, shape in partition(config).items()},
            "choices": Out(data.ArrayLayout(set_tag(config), config.directory_choices)),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        for number, choice in enumerate(self.choices):
            hashed = self.bank_key
            if number:
                hashed = hash_key_hw(m, "hash_step", hashed, number, c.bank_key_width)
            set_ = partitioned_set(m, c, f"set{number}", hashed, self.parts_log2, self.part)
            with m.If(self.enable):
                m.d.sync += [
                    choice.set.eq(set_),
                    choice.tag.eq(hashed[c.bank_key_width - c.directory_tag_width:]),
                ]
        return m


def recent_hazards(m, name, distance, set_, valid, fire_set, fire):
    """Flag the recent cycles in which a request used the set of a new request.

    Parameters
    ----------
    m : Module
    name : str
        Prefix of the signals.
    distance : int
        Cycles between two requests of one set.
    set_, valid : Value
        Set of the new request, and whether it uses one.
    fire_set, fire : Value
        Set of the request that enters the bank in this cycle, and whether it is a hazard to later
        ones.

    Returns
    -------
    Value
        `distance` - 1 bits: bit n for the cycle n cycles before.
    """
    sets = [Signal.like(fire_set, name=f"{name}_set{age}", reset_less=True)
            for age in range(1, distance - 1)]
    fired = Signal(len(sets), name=f"{name}_fired", reset_less=True)
    m.d.sync += [
        Cat(sets).eq(Cat(fire_set, *sets)),
        fired.eq(Cat(fire, fired)),
    ]
    return Cat(valid & used & (each == set_)
               for used, each in zip((fire, *fired), (fire_set, *sets), strict=True))


class LookupBank(wiring.Component):
    """Count a row, find or plan its slot, and if it has none enter it in the miss table.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    requests : In(stream(bank_request(config)))
    answers : Out(stream(bank_answer(config), always_ready=True))
        One per request, in order.
    scan : In(ScanPort(config))
        Of the counters. Only while no request is in the bank.
    clear_counts, clear_slots, clear_misses : In(1)
        A pulse clears the counters, the slot table (and the bypass table) or the miss table. Only
        while no request is in the bank.
    setting, sweep
        With a planner; see `SlotTable`.
    batch : In(32)
        With a planner: the full number of the planned batch, as stable as `setting`.
    begin : In(1)
        With a planner: a pulse before the first request of a planned batch.
    newest : Out(newest_age(config))
        With a planner; see `BypassTable`. Valid `BypassTable.latency` cycles after the last
        answer.
    restart : In(1)
        A pulse drops the requests in the bank; they write nothing any more.
    corrupt : Out(1)
        See `SlotTable`.
    ready : Out(1)
        Low while a memory is cleared or swept; the bank then holds requests.

    Timing
    ------
    One request a cycle. Requests of the same set of the counters are `CounterBank.distance` cycles
    apart, unless the `amount` of the first is 0; so are two that use the same set of the miss
    table. Requests of the same set of slots, or without a planner of any sets, are
    `SlotTable.distance` cycles apart, unless the first is FIND. The answer follows `latency` cycles
    after the request, plus the cycles that the request was held.
    """

    def __init__(self, config: Config):
        self.config = config
        self.latency = 2 + latency(config)  # hash, hold, look up
        self.distance = max(distance(config), CounterBank.distance)
        planner = {"setting": In(plan_setting(config)), "batch": In(32), "begin": In(1),
                   "newest": Out(newest_age(config)), "sweep": In(1)}
        super().__init__({
            "requests": In(stream.Signature(bank_request(config))),
            "answers": Out(stream.Signature(bank_answer(config), always_ready=True)),
            "scan": In(ScanPort(config)),
            **(planner if config.planner else {}),
            "clear_counts": In(1),
            "clear_slots": In(1),
            "clear_misses": In(1),
            "restart": In(1),
            "corrupt": Out(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.counters = counters = CounterBank(c, spaced=True)
        m.submodules.set_index = set_index = SetIndex(c)
        m.submodules.slots = slots = SlotTable(c)
        m.submodules.misses = misses = MissTableBank(c)
        ready = counters.ready & slots.ready & misses.ready
        for unit, clear in ((counters, self.clear_counts), (slots, self.clear_slots),
                            (misses, self.clear_misses)):
            m.d.comb += [unit.restart.eq(self.restart), unit.clear.eq(clear)]
        request, choices, fire = self._issue(m, set_index)

        # The slot table decides last; counters and miss table are timed to its answer.
        depth = slots.latency
        valid = Signal(depth)  # bit n: of the request n + 1 cycles after it fired
        m.d.sync += valid.eq(Cat(fire, valid))
        with m.If(self.restart):
            m.d.sync += valid.eq(0)
        bank_key = delay(m, request.bank_key, depth, "bank_key")
        wait = depth - MissTableBank.latency
        counted = delay(
            m, counters.answers.p.counted, depth - CounterBank.latency, "counted")[-1]
        m.d.comb += [
            counters.requests.valid.eq(fire),
            counters.requests.p.bank_key.eq(request.bank_key),
            counters.requests.p.amount.eq(request.amount),
            slots.valid.eq(fire),
            slots.request.op.eq(request.op),
            slots.request.choices.eq(choices),
            misses.valid.eq(Cat(fire, valid)[wait] & delay(m, request.miss, wait, "miss")[-1]),
            misses.drop.eq(slots.answer.placed),
            misses.bank_key.eq(bank_key[wait]),
            misses.epoch.eq(delay(m, request.epoch, wait, "epoch")[-1]),
        ]

        # Field by field: the slot and the answer of the miss table share bits.
        found, answer = slots.answer, self.answers.p.as_value()
        layout = bank_answer(c)
        shared, end = layout["missed"].offset, layout["counted"].width + layout["found"].width
        end = max(end, shared + layout["missed"].width)
        m.d.comb += [
            self.answers.valid.eq(valid[-1] & ~self.restart),
            answer[0].eq(counted),
            answer[1:shared].eq(Cat(found.hit, found.placed)),
            answer[shared:end].eq(
                Mux(found.placed, found.slot.as_value(), misses.answer.as_value())),
        ]
        if c.planner:
            m.submodules.bypasses = bypasses = BypassTable(c)
            ready = ready & bypasses.ready
            m.d.comb += answer[end:].eq(Cat(found.first, found.evicts & found.dirty, found.tag))
            self._plan(m, counters, slots, misses, bypasses, request, bank_key[-1])
        m.d.comb += [self.ready.eq(ready), self.corrupt.eq(slots.corrupt)]

        for field in ("active", "enable", "halve", "set", "ways", "complement"):
            m.d.comb += getattr(counters.scan, field).eq(getattr(self.scan, field))
        for field, _ in scanned_entry(c):
            m.d.comb += self.scan.entry[field].eq(counters.scan.entry[field])
        return m

    def _plan(self, m, counters, slots, misses, bypasses, request, bank_key):
        """Wire the units of a planner: access counts for the policy, and the bypass table."""
        c, found = self.config, slots.answer
        plans = delay(m, request.op == DirectoryOp.PLAN, slots.latency, "plans")[-1]
        count = delay(m, counters.answers.p.count,
                      slots.latency - 1 - CounterBank.latency, "count")[-1]
        m.d.comb += [
            slots.setting.eq(self.setting),
            slots.sweep.eq(self.sweep),
            slots.count.eq(count),
            bypasses.clear.eq(self.clear_slots),
            bypasses.begin.eq(self.begin),
            bypasses.batch.eq(self.batch),
            bypasses.unretired.eq((self.batch - self.setting.retired)[:c.stamp_bits]),
            bypasses.valid.eq(self.answers.valid & plans & ~found.hit & (
                found.placed | ~misses.answer.repeated)),
            bypasses.bypassed.eq(~found.placed),
            bypasses.entry.eq(bank_key),
            self.newest.eq(bypasses.newest),
        ]

    def _issue(self, m, set_index):
        """Hash a request and hold it until its sets are free.

        Returns the request, its set and tag in each choice, and whether it fires.
        """
        c, requests = self.config, self.requests
        hashed, request = (Signal(bank_request(c), name=name, reset_less=True)
                           for name in ("hashed", "held"))
        choices = Signal(set_index.choices.shape(), reset_less=True)
        hashed_valid, held_valid, load, fire = (Signal(name=name) for name in (
            "hashed_valid", "held_valid", "load", "fire"))
        m.d.comb += [
            load.eq(~held_valid | fire),
            requests.ready.eq(~hashed_valid | load),
            set_index.enable.eq(requests.ready),
            *(getattr(set_index, name).eq(requests.p[name])
              for name in ("bank_key", "parts_log2", "part")),
        ]
        with m.If(requests.ready):
            m.d.sync += [hashed_valid.eq(requests.valid), hashed.eq(requests.p)]

        # A request is held for a number of cycles that is known when it is loaded: bit n of
        # `hazards` is set if a request of one of its sets fired n cycles before.
        miss_set, held_miss_set = (each.bank_key[:log2(c.miss_sets)] for each in (hashed, request))
        if c.planner:
            slot_sets = [(new.set, held.set)
                         for new, held in zip(set_index.choices, choices, strict=True)]
        else:  # writes to slots are rare: each delays all requests, whatever their sets
            slot_sets = [(Const(0, 1), Const(0, 1))]
        recent = [
            (CounterBank.distance, recent_hazards(
                m, "count", CounterBank.distance, split_counter_key(c, hashed.bank_key)[0], 1,
                split_counter_key(c, request.bank_key)[0], fire & (request.amount != 0))),
            (MissTableBank.distance, recent_hazards(
                m, "miss", MissTableBank.distance, miss_set, hashed.miss, held_miss_set,
                fire & request.miss)),
            *((distance(c), recent_hazards(
                m, f"choice{number}", distance(c), set_, 1, held_set,
                fire & (request.op != DirectoryOp.FIND)))
              for number, (set_, held_set) in enumerate(slot_sets)),
        ]
        clears = self.clear_counts | self.clear_slots | self.clear_misses
        if c.planner:
            clears = clears | self.sweep
        hold, hazards = Signal(self.distance - 1), Signal(self.distance - 1)
        memories_ready, free = Signal(), Signal(init=1)  # registered: known one cycle ahead
        m.d.comb += [
            hazards.eq(reduce(or_, (
                cycles << self.distance - least for least, cycles in recent))),
            fire.eq(held_valid & free & memories_ready),
        ]
        m.d.sync += [
            memories_ready.eq(self.ready & ~clears),
            hold.eq(hold << 1),
            free.eq(~hold[:-1].any()),
        ]
        with m.If(load):
            m.d.sync += [
                held_valid.eq(hashed_valid),
                request.eq(hashed),
                choices.eq(set_index.choices),
                hold.eq(hazards),
                free.eq(~hazards.any()),
            ]
        with m.If(self.restart):
            m.d.sync += [hashed_valid.eq(0), held_valid.eq(0)]
        return request, choices, fire
