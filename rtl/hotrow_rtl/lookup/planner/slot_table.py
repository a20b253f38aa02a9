"""Slot table: the rows in the slots of one bank, their holds, and the choice of victims.

A row hashes into one set per hash choice, as in `DirectoryBank`. Each way stores a tag, the last
batch that needs the slot, the last batch that used it, and a number of the replacement policy.

Sources: hold window and tags that change when a batch is planned, ScratchPipe (ISCA 2022, arXiv
2205.04702), section 4; two-choice hashing, Azar et al., "Balanced Allocations", SIAM J. Computing
29 (1999).
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import NUMBER_WIDTH, DirectoryOp
from ...primitives.bits import delay, onehot_mux, onehot_to_index
from ...primitives.ram import ClearedRam
from .min_tree import MinTree, candidate
from .payloads import (
    plan_answer,
    plan_request,
    plan_setting,
    set_width,
    slot_place,
    slot_state,
    slot_way,
)
from .replacement_policy import filled, swept, used

COMPARED = 3  # cycles from the request to the compared ways: read, hold, compare


class SlotTable(wiring.Component):
    """Find, install, remove, plan or mark one row a cycle.

    A row fills the lowest free way of the set with more free ways (the first choice on a tie). If
    no way is free, a planned row evicts a row of the set with more evictable ways, which no batch
    needs (on a tie, of either set): the policy's victim, on a tie the lowest choice and way. If
    batches need all ways, the row is not placed.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    setting : In(plan_setting(config))
        Stable while any request is inside.
    enter : In(1)
        `request` is valid: at least `distance` cycles after any other request of one of its sets,
        unless both are FIND.
    request : In(plan_request(config))
    count : In(NUMBER_WIDTH)
        Access count of the row of the request of `latency` - 1 cycles before.
    answer : Out(plan_answer(config))
        To the request of `latency` cycles before.
    asked : Out(slot_place(config))
        Set and tag of its row for the first choice.
    sweep : In(1)
        A pulse ages all slots: once before every `sweep_batches`-th batch, with the `setting` of
        that batch; only while no request is inside.
    clear : In(1)
        A pulse frees every slot; only while no request is inside.
    restart : In(1)
        A pulse drops the requests inside; those without an answer have no effect.
    ready : Out(1)
        Low while the sets are cleared or swept; `enter` must be low.

    Timing
    ------
    Latency 4 + log2(`directory_choices` * `directory_ways`) cycles: read, hold, compare, rounds of
    `MinTree`, encode; `distance` is one more, to write. Clearing takes `directory_sets` / `banks`
    cycles, a sweep 3 more.
    """

    def __init__(self, config: Config):
        self.config = config
        self.latency, self.distance = latency(config), distance(config)
        super().__init__({
            "setting": In(plan_setting(config)),
            "enter": In(1),
            "request": In(plan_request(config)),
            "count": In(NUMBER_WIDTH),
            "answer": Out(plan_answer(config)),
            "asked": Out(slot_place(config)),
            "sweep": In(1),
            "clear": In(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        rounds = self.latency - COMPARED - 1
        width = data.ArrayLayout(slot_way(c), c.directory_ways).size
        rams = []
        for choice in range(c.directory_choices):
            m.submodules[f"choice{choice}"] = ram = ClearedRam(
                width, c.directory_sets // c.banks, parts=c.directory_ways)
            m.d.comb += ram.clear.eq(self.clear)
            rams.append(ram)

        # The pipeline of a request: item n is the value of n cycles before.
        valid = Signal(self.latency - 1)
        m.d.sync += valid.eq(Cat(self.enter, valid))
        with m.If(self.restart):
            m.d.sync += valid.eq(0)
        ask = delay(m, self.request.op, self.latency - 1, "ask")
        sweep = self._sweep(m, rams)
        sides = [self._compare(m, choice, ram, sweep) for choice, ram in enumerate(rams)]
        least, index = self._victim(m, sides)

        # The row's own way and the lowest free way, delayed by the latency of the minimum tree.
        match = Cat(side["match"] for side in sides)
        lowest, other = Signal(c.directory_ways), Signal()
        m.d.comb += lowest.eq(sides[0]["lowest"])
        if len(sides) == 2:
            m.d.comb += other.eq(sides[1]["vacancy"] > sides[0]["vacancy"])
            with m.If(other):
                m.d.comb += lowest.eq(sides[1]["lowest"])
        own = Signal(slot_state(c), name="own_state", reset_less=True)
        m.d.sync += own.eq(onehot_mux(match, [state for side in sides for state in side["states"]]))
        decision = {
            "hit": delay(m, match.any(), rounds, "hit")[-1],
            "own": delay(m, onehot_to_index(match), rounds, "own")[-1],
            "room": delay(m, lowest.any(), rounds, "room")[-1],
            "free": delay(m, Cat(onehot_to_index(lowest), other), rounds, "free")[-1],
            "state": slot_state(c)(delay(m, own.as_value(), rounds - 1, "state")[-1]),
            "least": least, "index": index,
            "ask": ask[-1], "valid": valid[-1],
        }
        self._answer(m, rams, sides, **decision)
        with m.If(sweep["writes"]):
            for ram, side in zip(rams, sides):
                self._age(m, ram, side["word"], sweep["write_at"])
        return m

    def _compare(self, m, choice, ram, sweep):
        """Compare the ways of the set of one choice: results at the compare stage; tag and set at
        the decision stage."""
        c, ways, place = self.config, self.config.directory_ways, self.request.places[choice]
        m.d.comb += ram.read_address.eq(Mux(sweep["reads"], sweep["at"], place.set))
        tag = delay(m, place.tag, self.latency - 1, f"tag{choice}")
        sets = delay(m, place.set, self.latency - 1, f"set{choice}")
        held = Signal(ram.read_data.shape(), name=f"held{choice}", reset_less=True)
        m.d.sync += held.eq(ram.read_data)
        word = data.View(data.ArrayLayout(slot_way(c), ways), held)
        match, lowest = (Signal(ways, name=f"{name}{choice}", reset_less=True)
                         for name in ("match", "lowest_free"))
        vacancy = Signal(range(ways + 1), name=f"vacancies{choice}", reset_less=True)
        free = ~Cat(way.valid for way in word)
        m.d.sync += [
            match.eq(Cat(way.valid & (way.tag == tag[2]) for way in word)),
            lowest.eq(free & -free),
            vacancy.eq(sum(free)),
        ]
        states, candidates = [], []
        for index, way in enumerate(word):
            state = Signal(slot_state(c).size, name=f"state{choice}_{index}", reset_less=True)
            entry = Signal(candidate(NUMBER_WIDTH + c.stamp_bits, c.directory_tag_width + 1),
                           name=f"candidate{choice}_{index}", reset_less=True)
            age = (self.setting.batch - way.state.used)[:c.stamp_bits]
            m.d.sync += [
                state.eq(way.state),
                entry.payload.eq(Cat(way.tag, way.state.dirty)),
                entry.number.eq(Cat(~age, way.state.number)),
                entry.present.eq(way.valid & ~self._is_held(way.state.needed)),
            ]
            states.append(state)
            candidates.append(entry)
        evictable = Signal(range(ways + 1), name=f"evictable{choice}", reset_less=True)
        m.d.sync += evictable.eq(sum(entry.present for entry in candidates))
        return {"word": word, "tag": tag[-1], "set": sets[-1], "match": match,
                "lowest": lowest, "vacancy": vacancy, "states": states,
                "candidates": candidates, "evictable": evictable}

    def _victim(self, m, sides):
        """(the victim, its index): the minimum of each choice, then of both."""
        c, found = self.config, []
        for choice, side in enumerate(sides):
            m.submodules[f"least{choice}"] = least = MinTree(
                NUMBER_WIDTH + c.stamp_bits, c.directory_tag_width + 1, c.directory_ways)
            m.d.comb += least.candidates.eq(Cat(entry.as_value() for entry in side["candidates"]))
            evictable = delay(m, side["evictable"], least.latency - 1, f"evictable_of_{choice}")[-1]
            found.append((least.least, least.index, evictable))
        if len(found) == 1:
            return found[0][:2]
        (low, low_index, low_evictable), (high, high_index, high_evictable) = found
        victim = Signal(low.shape(), name="victim", reset_less=True)
        index = Signal(len(low_index) + 1, name="victim_index", reset_less=True)
        high_wins = (high_evictable > low_evictable) | (
            (high_evictable == low_evictable) & high.present & (high.number < low.number))
        m.d.sync += [
            victim.eq(Mux(high_wins, high.as_value(), low.as_value())),
            index.eq(Cat(Mux(high_wins, high_index, low_index), high_wins)),
        ]
        return victim, index

    def _answer(self, m, rams, sides, hit, own, room, free, state, least, index, ask, valid):
        """Decide, answer, and write the chosen way."""
        c, setting, count = self.config, self.setting, self.count
        plans, installs, marks = (ask == op for op in (
            DirectoryOp.PLAN, DirectoryOp.INSTALL, DirectoryOp.MARK))
        number = filled(setting.policy, count)
        refused = Signal()  # by admission
        evicts, fills = Signal(), Signal()
        chosen = Signal.like(own, name="chosen")
        choice = chosen[log2(c.directory_ways):] if len(sides) == 2 else 0
        m.d.comb += [
            refused.eq(setting.admission & (least.number[c.stamp_bits:] > number)),
            evicts.eq(plans & ~hit & ~room & least.present & ~refused),
            fills.eq(~hit & (plans | installs) & room | evicts),
            chosen.eq(Mux(hit, own, Mux(room, free, index))),
        ]
        at, tag = (Mux(choice, sides[-1][name], sides[0][name]) for name in ("set", "tag"))
        tag_of, was_dirty = least.payload[:-1], least.payload[-1]
        answer = self.answer
        m.d.sync += [
            answer.hit.eq(hit),
            answer.placed.eq(hit | fills),
            answer.slot.way.eq(chosen[:log2(c.directory_ways)]),
            answer.slot.set.eq(at),
            answer.slot.choice.eq(choice),
            answer.first.eq(~hit | (state.used != setting.batch)),
            answer.evicts.eq(evicts),
            answer.dirty.eq(was_dirty),
            answer.tag.eq(tag_of),
            self.asked.set.eq(sides[0]["set"]),
            self.asked.tag.eq(sides[0]["tag"]),
        ]

        written, writes = Signal(slot_way(c)), Signal()  # a reset clears the memory, too
        is_new = plans & (~hit | (state.used != setting.batch))
        m.d.sync += [
            writes.eq(valid & (fills | hit & (plans | marks | (ask == DirectoryOp.REMOVE)))),
            written.tag.eq(tag),
            written.valid.eq(ask != DirectoryOp.REMOVE),
            written.state.number.eq(Mux(
                hit, Mux(is_new, used(setting.policy, state.number, count), state.number), number)),
            written.state.used.eq(Mux(marks, state.used, setting.batch)),
            written.state.needed.eq(Mux(installs, setting.retired, Mux(
                hit & self._is_after(state.needed), state.needed, setting.batch))),
            written.state.dirty.eq(hit & state.dirty | plans & setting.writes),
        ]
        with m.If(self.restart):
            m.d.sync += writes.eq(0)
        with m.If(self.clear | ~Cat(ram.ready for ram in rams).all()):
            m.d.sync += written.eq(0)  # `ClearedRam` writes `write_data` while it is cleared
        for number_, ram in enumerate(rams):
            m.d.comb += [
                ram.write_address.eq(answer.slot.set),
                ram.write_data.eq(Cat([written.as_value()] * c.directory_ways)),
                ram.write_enable.eq(Mux(
                    writes & ~self.restart & (answer.slot.choice == number_),
                    (1 << answer.slot.way)[:c.directory_ways], 0)),
            ]

    def _sweep(self, m, rams):
        """Sweep all sets: read, hold, write."""
        c = self.config
        reads, at, held = Signal(), Signal(set_width(c)), Signal(2)
        addresses = delay(m, at, 2, "sweep_at")
        m.d.sync += held.eq(Cat(reads, held))
        with m.If(self.sweep):
            m.d.sync += [reads.eq(1), at.eq(0)]
        with m.Elif(reads):
            m.d.sync += [reads.eq(~at.all()), at.eq(at + 1)]
        m.d.comb += self.ready.eq(
            Cat(ram.ready for ram in rams).all() & ~reads & ~held.any())
        return {"reads": reads, "at": at, "writes": held[-1], "write_at": addresses[-1]}

    def _age(self, m, ram, word, at):
        """Write back an aged set: the stamps of a slot without a hold become the retired batch, and
        uses older than `oldest_stamp` batches become that old."""
        c, setting = self.config, self.setting
        m.d.comb += [ram.write_enable.eq(~0), ram.write_address.eq(at)]
        for way, aged in zip(word, data.View(word.shape(), ram.write_data)):
            age = (setting.batch - way.state.used)[:c.stamp_bits]
            m.d.comb += [
                aged.eq(way),
                aged.state.number.eq(swept(setting.policy, way.state.number)),
                aged.state.needed.eq(Mux(
                    self._is_held(way.state.needed), way.state.needed, setting.retired)),
                aged.state.used.eq(Mux(
                    age > c.oldest_stamp, setting.batch - c.oldest_stamp, way.state.used)),
            ]

    def _is_held(self, needed):
        ahead = (needed - self.setting.retired)[:self.config.stamp_bits]
        return ~ahead[-1] & ahead.any()

    def _is_after(self, needed):
        """Return whether a slot is needed by this batch or a later one."""
        return self._is_held(needed) & ~(needed - self.setting.batch)[self.config.stamp_bits - 1]


def latency(config: Config) -> int:
    """Return the cycles from a request to its answer."""
    return COMPARED + 1 + log2(config.directory_choices * config.directory_ways)


def distance(config: Config) -> int:
    """Return the cycles from a request to the first request that reads its write."""
    return latency(config) + 1
