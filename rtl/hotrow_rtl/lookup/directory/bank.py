"""Directory bank: which row of this bank has which slot of the trainer's cache, and where a row
may enter.

Rows are hashed into one set per hash choice; a set's ways lie side by side in one memory word. A
slot is the place of the entry itself, so that the directory grows with slots and never with rows.

Source: two-choice hashing as in Azar et al., "Balanced Allocations", SIAM J. Computing 29 (1999);
the set of slots that a partition of tables owns is a range of set numbers.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import DirectoryOp, bank_request, directory_answer
from ...interfaces.table_bounds import partitioned_set
from ...primitives.ram import ClearedRam
from ..hashing.xorshift_hardware import hash_key_hw


def directory_set(config: Config) -> data.StructLayout:
    """One memory word: the ways of a set, of which one is written at a time."""
    way = data.StructLayout({"tag": config.directory_tag_width, "valid": 1})
    return data.ArrayLayout(way, config.directory_ways)


class DirectoryBank(wiring.Component):
    """Find one row a cycle; install or remove one at a time.

    A row enters the set with more free ways, the first among equals, at the lowest free way.

    Parameters
    ----------
    config : Config

    Members
    -------
    enter : In(1)
        `request` enters in this cycle.
    request : In(bank_request(config))
        Asks for the row unless it edits, whatever it says of `ask`.
    answer : Out(directory_answer(config))
        To the request that entered `latency` cycles before.
    busy : Out(1)
        An edit is inside that reads do not see yet: nothing may enter.
    clear : In(1)
        A pulse frees every slot; only while nothing is inside.
    restart : In(1)
        A pulse drops the requests inside and keeps the entries; an edit that is not answered yet
        is not done.
    ready : Out(1)
        Low while the sets are being cleared: nothing may enter.

    Timing
    ------
    Latency `latency` cycles (hash, read, hold, compare, encode), one request a cycle; behind an
    edit the next enters `edit_cycles` cycles later. Clearing takes `directory_sets` / `banks`.
    """

    latency = 5
    edit_cycles = latency  # written in the cycle of the answer, read from the one behind it

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "enter": In(1),
            "request": In(bank_request(config)),
            "answer": Out(directory_answer(config)),
            "busy": Out(1),
            "clear": In(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, request = self.config, self.request
        layout = directory_set(c)
        rams = []
        for choice in range(c.directory_choices):
            m.submodules[f"choice{choice}"] = ram = ClearedRam(
                layout.size, c.directory_sets // c.banks, parts=c.directory_ways)
            rams.append(ram)
        m.d.comb += self.ready.eq(Cat(ram.ready for ram in rams).all())

        edits = Signal()
        editing = Signal(self.latency)  # bit n: an edit is behind n + 1 registers
        m.d.comb += edits.eq(self.enter & (request.op != DirectoryOp.FIND))
        m.d.sync += [
            editing.eq(Cat(edits, editing)),
            self.busy.eq(edits | editing[:-2].any()),
        ]

        # What enters stays here until the next one does. So an edit, which none may follow, finds
        # its own tag and set at the end of the pipeline.
        parts_log2, part, installs = Signal(3), Signal(6), Signal()
        clears = self.clear | ~self.ready  # what is written then must be zero
        with m.If(self.enter):
            m.d.sync += [
                parts_log2.eq(request.parts_log2),
                part.eq(request.part),
                installs.eq(request.op == DirectoryOp.INSTALL),
            ]
        tags, matches, lowest, vacancies, sets = [], [], [], [], []
        for choice, ram in enumerate(rams):
            hashed = Signal(c.bank_key_width, name=f"hashed{choice}")
            with m.If(self.enter):
                m.d.sync += hashed.eq(request.bank_key if choice == 0 else hash_key_hw(
                    m, "hashed_key", request.bank_key, choice, c.bank_key_width))
            set_ = partitioned_set(m, c, f"set{choice}", hashed, parts_log2, part)
            tag = hashed[c.bank_key_width - c.directory_tag_width:]
            held = Signal(layout.size, name=f"held{choice}", reset_less=True)
            read_tag, held_tag = (Signal.like(tag, name=f"{stage}_tag{choice}", reset_less=True)
                                  for stage in ("read", "held"))
            read_set, held_set, compared_set = (
                Signal.like(set_, name=f"{stage}_set{choice}", reset_less=True)
                for stage in ("read", "held", "compared"))
            match, first = (Signal(c.directory_ways, name=f"{name}{choice}", reset_less=True)
                            for name in ("match", "first_free"))
            vacancy = Signal(range(c.directory_ways + 1), name=f"vacancies{choice}",
                             reset_less=True)
            word = data.View(layout, held)
            free = Signal(c.directory_ways, name=f"free{choice}")
            m.d.comb += [
                ram.clear.eq(self.clear),
                ram.read_address.eq(set_),
                ram.write_address.eq(set_),
                free.eq(~Cat(way.valid for way in word)),
            ]
            m.d.sync += [
                Cat(read_tag, read_set).eq(Cat(tag, set_)),
                Cat(held_tag, held_set).eq(Cat(read_tag, read_set)),
                held.eq(ram.read_data),
                compared_set.eq(held_set),
                match.eq(Cat(way.valid & (way.tag == held_tag) for way in word)),
                first.eq(free & -free),
                vacancy.eq(sum(free)),
            ]
            with m.If(clears):
                m.d.sync += hashed.eq(0)
            tags.append(tag)
            matches.append(match)
            lowest.append(first)
            vacancies.append(vacancy)
            sets.append(compared_set)

        # Encode: the first choice that holds the row, else the one with more room.
        hit, here, room = Signal(), Signal(), Signal()
        touched, at = Signal(c.directory_ways), Signal.like(sets[0])
        m.d.comb += [
            hit.eq(Cat(matches).any()),
            room.eq(Cat(lowest).any()),
        ]
        if c.directory_choices == 2:
            m.d.comb += here.eq(Mux(hit, ~matches[0].any(), vacancies[1] > vacancies[0]))
        with m.Switch(here):
            for choice in range(c.directory_choices):
                with m.Case(choice):
                    m.d.comb += [
                        touched.eq(Mux(hit, matches[choice], lowest[choice])),
                        at.eq(sets[choice]),
                    ]
        ways = Signal(c.directory_ways, reset_less=True)
        m.d.sync += [
            self.answer.hit.eq(hit),
            self.answer.placed.eq(hit | editing[-2] & installs & room),
            self.answer.slot.way.eq(Cat(
                Cat(touched[way] for way in range(c.directory_ways) if way >> bit & 1).any()
                for bit in range(log2(c.directory_ways)))),
            self.answer.slot.set.eq(at),
            self.answer.slot.choice.eq(here),
            ways.eq(touched),
        ]

        # Every edit writes the way touched, if any: one that has removed a row keeps no tag of it
        # that counts, and one that finds its row again writes what is there.
        for choice, (ram, tag) in enumerate(zip(rams, tags)):
            m.d.comb += [
                ram.write_enable.eq(
                    Mux(editing[-1] & (self.answer.slot.choice == choice), ways, 0)),
                [(way.tag.eq(tag), way.valid.eq(installs))
                 for way in data.View(layout, ram.write_data)],
            ]
        with m.If(clears):
            m.d.sync += installs.eq(0)
        with m.If(self.restart):
            m.d.sync += [editing.eq(0), self.busy.eq(0)]
        return m
