"""Slot table: the directory of one bank, which maps rows to slots and chooses victims.

A row hashes into one set per hash choice; the ways of a set share one memory word. A slot is the
place of its entry, so the directory grows with slots and never with rows. With a planner each way
also stores the last batch that needs the slot, the last batch that used it, and the priority of its
row.

Sources: two-choice hashing, Azar et al., "Balanced Allocations", SIAM J. Computing 29 (1999); hold
window, and tags that change when a batch is planned, ScratchPipe (ISCA 2022, arXiv 2205.04702),
section 4. The set of slots that a partition of tables owns is a range of set numbers.
"""

from types import SimpleNamespace

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import NUMBER_WIDTH, DirectoryOp
from ...primitives.bits import delay, onehot_mux, onehot_to_index
from ...primitives.ram import ClearedRam
from .min_tree import MinTree, candidate
from .payloads import (
    plan_setting,
    set_width,
    slot_answer,
    slot_request,
    slot_state,
    slot_way,
    with_parity,
)
from .replacement_policy import filled, swept, used

COMPARE_CYCLES = 3  # read, hold, compare


class SlotTable(wiring.Component):
    """Find, install or remove one row a cycle; with a planner also plan or mark one.

    A row enters the set with more free ways (the first choice on a tie) at the lowest free way. A
    planned row that finds no free way replaces a victim. The victim is in the set with more
    ways that no batch needs (in either on a tie): the row with the lowest priority, on a tie the
    least recently used one, then the lowest choice and way. If batches need all ways, the row is
    not placed.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    valid : In(1)
        `request` is valid in this cycle. Two requests with a set in common are at least `distance`
        cycles apart, unless the first is FIND.
    request : In(slot_request(config))
    answer : Out(slot_answer(config))
        For the request `latency` cycles before.
    setting : In(plan_setting(config))
        With a planner. Stable while a request other than FIND is in the pipeline.
    count : In(NUMBER_WIDTH)
        With a planner: the access count of the row requested `latency` - 1 cycles before.
    sweep : In(1)
        With a planner: a pulse ages all slots. Required once before every `sweep_batches`-th batch
        is planned, with the batch in `setting` and the pipeline empty.
    clear : In(1)
        A pulse frees every slot. Only with the pipeline empty.
    restart : In(1)
        A pulse drops the requests in the pipeline; an operation without an answer is not
        performed.
    corrupt : Out(1)
        Since the last clear a request or a sweep has read a way whose parity is wrong.
    ready : Out(1)
        Low while the sets are cleared or swept; no request may be valid then.

    Timing
    ------
    Latency 4 cycles (read, hold, compare, decide), with a planner log2(`directory_choices` *
    `directory_ways`) more for the minimum tree; `distance` is one cycle more, for the write. A
    clear takes `directory_sets` / `banks` cycles, a sweep 2 more.
    """

    def __init__(self, config: Config):
        self.config = config
        self.latency, self.distance = latency(config), distance(config)
        planner = {"setting": In(plan_setting(config)), "count": In(NUMBER_WIDTH), "sweep": In(1)}
        super().__init__({
            "valid": In(1),
            "request": In(slot_request(config)),
            "answer": Out(slot_answer(config)),
            **(planner if config.planner else {}),
            "clear": In(1),
            "restart": In(1),
            "corrupt": Out(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        width = data.ArrayLayout(slot_way(c), c.directory_ways).size
        rams = []
        for choice in range(c.directory_choices):
            # Both choices in UltraRAM would take most of it, in every die of a large FPGA.
            m.submodules[f"choice{choice}"] = ram = ClearedRam(
                width, c.directory_sets // c.banks, parts=c.directory_ways, block=choice > 0)
            m.d.comb += ram.clear.eq(self.clear)
            rams.append(ram)
        idle = Cat(ram.ready for ram in rams).all()

        valid = Signal(self.latency - 1)
        m.d.sync += valid.eq(Cat(self.valid, valid))
        with m.If(self.restart):
            m.d.sync += valid.eq(0)
        op = delay(m, self.request.op, self.latency - 1, "op")[-1]
        sweep = self._sweep(m) if c.planner else None
        m.d.comb += self.ready.eq(idle & ~sweep.busy if c.planner else idle)
        sets = [self._compare(m, choice, ram, sweep) for choice, ram in enumerate(rams)]
        checked = Signal()
        m.d.sync += checked.eq(valid[1] | (sweep.write if c.planner else 0))
        with m.If(self.clear):
            m.d.sync += self.corrupt.eq(0)
        with m.Elif(checked & Cat(each.is_odd for each in sets).any()):
            m.d.sync += self.corrupt.eq(1)
        found = self._select(m, sets)
        self._answer(m, rams, sets, found, op, valid[-1], ~idle)
        if c.planner:
            with m.If(sweep.write):
                for ram, each in zip(rams, sets, strict=True):
                    self._age(m, ram, each.word, sweep.write_address)
        return m

    def _compare(self, m, choice, ram, sweep):
        """Compare the ways of one choice's set with the tag of the request.

        Returns the results `COMPARE_CYCLES` after the request, and `tag` and `set` one cycle
        before the answer.
        """
        c, ways, place = self.config, self.config.directory_ways, self.request.choices[choice]
        m.d.comb += ram.read_address.eq(
            Mux(sweep.read, sweep.read_address, place.set) if c.planner else place.set)
        tags = delay(m, place.tag, self.latency - 1, f"tag{choice}")
        sets = delay(m, place.set, self.latency - 1, f"set{choice}")
        held = Signal(ram.read_data.shape(), name=f"held{choice}", reset_less=True)
        m.d.sync += held.eq(ram.read_data)
        word = data.View(data.ArrayLayout(slot_way(c), ways), held)
        match, lowest_free, is_odd = (Signal(ways, name=f"{name}{choice}", reset_less=True)
                                      for name in ("match", "lowest_free", "is_odd"))
        free_count = Signal(range(ways + 1), name=f"free_count{choice}", reset_less=True)
        free = ~Cat(way.valid for way in word)
        m.d.sync += [
            match.eq(Cat(way.valid & (way.tag == tags[2]) for way in word)),
            lowest_free.eq(free & -free),
            free_count.eq(sum(free)),
            is_odd.eq(Cat(way.as_value().xor() for way in word)),
        ]
        compared = SimpleNamespace(
            word=word, tag=tags[-1], set=sets[-1], match=match, is_odd=is_odd,
            lowest_free=lowest_free, free_count=free_count)
        if c.planner:
            self._candidates(m, choice, compared)
        return compared

    def _candidates(self, m, choice, compared):
        """Add the state of each way, and the ways as candidates for eviction."""
        c = self.config
        compared.states, compared.candidates = [], []
        for index, way in enumerate(compared.word):
            state = Signal(slot_state(c).size, name=f"state{choice}_{index}", reset_less=True)
            entry = Signal(candidate(NUMBER_WIDTH + c.stamp_bits, c.directory_tag_width + 1),
                           name=f"candidate{choice}_{index}", reset_less=True)
            age = (self.setting.batch - way.state.last_used)[:c.stamp_bits]
            m.d.sync += [
                state.eq(way.state),
                entry.payload.eq(Cat(way.tag, way.state.dirty)),
                entry.number.eq(Cat(~age, way.state.priority)),
                entry.present.eq(way.valid & ~self._is_held(way.state.last_needed)),
            ]
            compared.states.append(state)
            compared.candidates.append(entry)
        compared.evictable = Signal(
            range(c.directory_ways + 1), name=f"evictable{choice}", reset_less=True)
        m.d.sync += compared.evictable.eq(sum(entry.present for entry in compared.candidates))

    def _select(self, m, sets):
        """The way of the row, the free way and the victim, one cycle before the answer."""
        c, rounds = self.config, self.latency - COMPARE_CYCLES - 1
        match = Cat(each.match for each in sets)
        free, free_choice = Signal(c.directory_ways), Signal()
        m.d.comb += free.eq(sets[0].lowest_free)
        if len(sets) == 2:
            m.d.comb += free_choice.eq(sets[1].free_count > sets[0].free_count)
            with m.If(free_choice):
                m.d.comb += free.eq(sets[1].lowest_free)
        found = SimpleNamespace(
            hit=delay(m, match.any(), rounds, "hit")[-1],
            match_idx=delay(m, onehot_to_index(match), rounds, "match_idx")[-1],
            has_free=delay(m, free.any(), rounds, "has_free")[-1],
            free_idx=delay(m, Cat(onehot_to_index(free), free_choice), rounds, "free_idx")[-1])
        if c.planner:
            found.victim, found.victim_idx = self._victim(m, sets)
            state = Signal(slot_state(c), name="match_state", reset_less=True)
            m.d.sync += state.eq(onehot_mux(match, [each for set_ in sets for each in set_.states]))
            found.state = slot_state(c)(delay(m, state.as_value(), rounds - 1, "state")[-1])
        return found

    def _victim(self, m, sets):
        """(candidate to evict, its index): the least of each choice, then the least of both."""
        c, least = self.config, []
        for choice, each in enumerate(sets):
            m.submodules[f"least{choice}"] = tree = MinTree(
                NUMBER_WIDTH + c.stamp_bits, c.directory_tag_width + 1, c.directory_ways)
            m.d.comb += tree.candidates.eq(Cat(entry.as_value() for entry in each.candidates))
            evictable = delay(m, each.evictable, tree.latency - 1, f"evictable{choice}")[-1]
            least.append((tree.least, tree.index, evictable))
        if len(least) == 1:
            return least[0][:2]
        (low, low_idx, low_evictable), (high, high_idx, high_evictable) = least
        victim = Signal(low.shape(), name="victim", reset_less=True)
        index = Signal(len(low_idx) + 1, name="victim_idx", reset_less=True)
        high_wins = (high_evictable > low_evictable) | (
            (high_evictable == low_evictable) & high.present & (high.number < low.number))
        m.d.sync += [
            victim.eq(Mux(high_wins, high.as_value(), low.as_value())),
            index.eq(Cat(Mux(high_wins, high_idx, low_idx), high_wins)),
        ]
        return victim, index

    def _answer(self, m, rams, sets, found, op, valid, clearing):
        """Decide, respond, and write the way that was chosen."""
        c, answer, hit = self.config, self.answer, found.hit
        installs, removes = op == DirectoryOp.INSTALL, op == DirectoryOp.REMOVE
        enters, writes = Signal(), Signal()
        chosen = Signal.like(found.match_idx, name="chosen")
        choice = chosen[log2(c.directory_ways):] if len(sets) == 2 else 0
        set_, tag = (Mux(choice, getattr(sets[-1], name), getattr(sets[0], name))
                     for name in ("set", "tag"))
        written = Signal(slot_way(c))  # with a reset: the clear of the memory writes it too
        m.d.sync += [
            answer.hit.eq(hit),
            answer.placed.eq(hit | enters),
            answer.slot.way.eq(chosen[:log2(c.directory_ways)]),
            answer.slot.set.eq(set_),
            answer.slot.choice.eq(choice),
            written.tag.eq(tag),
            written.valid.eq(~removes),
        ]
        if c.planner:
            self._plan(m, found, op, enters, chosen, written, writes, valid)
        else:
            m.d.comb += [
                enters.eq(~hit & installs & found.has_free),
                chosen.eq(Mux(hit, found.match_idx, found.free_idx)),
            ]
            m.d.sync += writes.eq(valid & (enters | hit & removes))
        with m.If(self.restart):
            m.d.sync += writes.eq(0)
        with m.If(self.clear | clearing):
            m.d.sync += written.eq(0)
        for number, ram in enumerate(rams):
            m.d.comb += [
                ram.write_address.eq(answer.slot.set),
                ram.write_data.eq(Cat([with_parity(written)] * c.directory_ways)),
                ram.write_enable.eq(Mux(
                    writes & ~self.restart & (answer.slot.choice == number),
                    (1 << answer.slot.way)[:c.directory_ways], 0)),
            ]

    def _plan(self, m, found, op, enters, chosen, written, writes, valid):
        """The decision of a planner: whether the row enters, where, and the state of its slot."""
        c, setting, hit, state, victim = (
            self.config, self.setting, found.hit, found.state, found.victim)
        plans, installs, marks, removes = (op == each for each in (
            DirectoryOp.PLAN, DirectoryOp.INSTALL, DirectoryOp.MARK, DirectoryOp.REMOVE))
        priority = filled(setting.policy, self.count)
        admitted, evicts = Signal(), Signal()
        m.d.comb += [
            admitted.eq(~setting.admission | (victim.number[c.stamp_bits:] <= priority)),
            evicts.eq(plans & ~hit & ~found.has_free & victim.present & admitted),
            enters.eq(~hit & (plans | installs) & found.has_free | evicts),
            chosen.eq(Mux(
                hit, found.match_idx, Mux(found.has_free, found.free_idx, found.victim_idx))),
        ]
        is_first = ~hit | (state.last_used != setting.batch)
        m.d.sync += [
            self.answer.first.eq(is_first),
            self.answer.evicts.eq(evicts),
            self.answer.dirty.eq(victim.payload[-1]),
            self.answer.tag.eq(victim.payload[:-1]),
            writes.eq(valid & (enters | hit & (plans | marks | removes))),
            written.state.priority.eq(Mux(
                hit, Mux(plans & is_first, used(setting.policy, state.priority, self.count),
                         state.priority), priority)),
            written.state.last_used.eq(Mux(marks, state.last_used, setting.batch)),
            written.state.last_needed.eq(Mux(installs, setting.retired, Mux(
                hit & self._is_after(state.last_needed), state.last_needed, setting.batch))),
            written.state.dirty.eq(hit & state.dirty | plans & setting.writes),
        ]

    def _sweep(self, m):
        """Walk through all sets: read in one cycle, hold in the next, write in the third."""
        read, address, hold = Signal(), Signal(set_width(self.config)), Signal(2)
        addresses = delay(m, address, 2, "sweep_address")
        m.d.sync += hold.eq(Cat(read, hold))
        with m.If(self.sweep):
            m.d.sync += [read.eq(1), address.eq(0)]
        with m.Elif(read):
            m.d.sync += [read.eq(~address.all()), address.eq(address + 1)]
        return SimpleNamespace(read=read, read_address=address, write=hold[-1],
                               write_address=addresses[-1], busy=read | hold.any())

    def _age(self, m, ram, word, address):
        """Write back a set during a sweep.

        A slot that no batch needs gets the stamp of the newest retired batch, a slot that was used
        more than `oldest_stamp` batches before gets the oldest stamp: stamps do not wrap.
        """
        c, setting = self.config, self.setting
        ways = [Signal(slot_way(c), name="aged") for _ in word]
        m.d.comb += [
            ram.write_enable.eq(~0),
            ram.write_address.eq(address),
            ram.write_data.eq(Cat(with_parity(aged) for aged in ways)),
        ]
        for way, aged in zip(word, ways, strict=True):
            age = (setting.batch - way.state.last_used)[:c.stamp_bits]
            m.d.comb += [
                aged.eq(way),
                aged.state.priority.eq(swept(setting.policy, way.state.priority)),
                aged.state.last_needed.eq(Mux(
                    self._is_held(way.state.last_needed), way.state.last_needed, setting.retired)),
                aged.state.last_used.eq(Mux(
                    age > c.oldest_stamp, setting.batch - c.oldest_stamp, way.state.last_used)),
            ]

    def _is_held(self, last_needed):
        """A batch that is not retired needs the slot."""
        ahead = (last_needed - self.setting.retired)[:self.config.stamp_bits]
        return ~ahead[-1] & ahead.any()

    def _is_after(self, last_needed):
        """The batch of `setting` or a later one needs the slot."""
        return self._is_held(last_needed) & ~(
            last_needed - self.setting.batch)[self.config.stamp_bits - 1]


def latency(config: Config) -> int:
    """Cycles from a request to its answer."""
    rounds = log2(config.directory_choices * config.directory_ways) if config.planner else 0
    return COMPARE_CYCLES + 1 + rounds


def distance(config: Config) -> int:
    """Cycles from a request to the first one that reads its write."""
    return latency(config) + 1
