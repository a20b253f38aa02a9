"""A host that plans batches on a `Card`, and the properties of every plan."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import (
    NO_BATCH,
    NO_SLOT,
    BatchFlag,
    Opcode,
    PlanFlag,
    PlanPolicy,
    Status,
)
from hotrow_sim.golden.lookup.directory import Directory
from hotrow_sim.golden.records import ROW_RECORD

from tests.sim.device.conftest import ROWS
from tests.support.fuzz.planning import STARVED

AREA = 4096  # bytes of a list of results
LENGTHS = 16384  # where they lie in the buffer of lists


@dataclass
class Planned:
    """`done`, the completion; `slots` per lookup; `fills` and `victims`, lists of ((table, row),
    number or slot)."""

    done: dict
    slots: list
    fills: list
    victims: list


def operands(card, opcode, number, ids, samples, tables=1, flags=0, lengths=None):
    """Operands of a PLAN or MARK."""
    ids = np.asarray(ids, np.uint64 if flags & BatchFlag.ID64 else np.uint32)
    given = {"opcode": opcode, "value": number & 0xFFFF_FFFF, "source": card.put(ids),
             "count": len(ids), "samples": samples, "table_count": tables, "flags": int(flags)}
    if lengths is not None:
        given["lengths"] = card.put(np.asarray(lengths, np.uint16), LENGTHS)
    return given | {name: card.address("results", AREA * place) for place, name in enumerate(
        ("slots", "fill_slots", "victim_slots", "fills", "victims"))}


def policy(which):
    return PlanFlag.POLICY_LOW * PlanPolicy[which.upper()]


def plan(card, number, ids, samples=None, tables=1, flags=0, lengths=None):
    """Run a PLAN; return its results."""
    done = card.run("lookup", **operands(
        card, Opcode.PLAN, number, ids, len(ids) // tables if samples is None else samples, tables,
        flags, lengths))
    fetched, left = done["entries"], done["evictions"]

    def entries(place, count):
        return [(int(each["table"]), int(each["row"]))
                for each in card.result(count, AREA * place, ROW_RECORD)]

    return Planned(
        done, card.result(len(ids)).tolist(),
        list(zip(entries(3, fetched), card.result(fetched, AREA).tolist(), strict=True)),
        list(zip(entries(4, left), card.result(left, 2 * AREA).tolist(), strict=True)))


def mark(card, number, ids, samples=None, tables=1, flags=0, lengths=None):
    """Run a MARK; return the completion."""
    return card.run("lookup", **operands(
        card, Opcode.MARK, number, ids, len(ids) // tables if samples is None else samples, tables,
        flags, lengths))


def same_sets(count):
    """Rows of table 1 that share both of their sets and compete for four slots."""
    rows = np.arange(ROWS[1])
    starts = np.array(Directory(STARVED).set_starts(
        np.ones(len(rows), int), rows, np.zeros(len(rows), int), np.zeros(len(rows), int)))
    return np.flatnonzero((starts == starts[:, :1]).all(axis=0))[:count].tolist()


def one(card, number, rows, flags):
    """PLAN of rows of table 1; returns the completion and the first victim."""
    given = operands(card, Opcode.PLAN, number, rows, len(rows), 1, flags) | {"first_table": 1}
    done = card.run("lookup", **given)
    victim = int(card.result(2, 4 * 4096)[0]) if done["evictions"] else None
    return done, victim


class Watch:
    """Tracks the plans of a card and asserts the properties that the contract guarantees.

    Attributes
    ----------
    slot_of : dict
        Of each resident row (table, row).
    """

    def __init__(self, config):
        self.config = config
        self.slot_of, self.dirty, self.needed, self.bypassed_by = {}, set(), {}, {}
        self.retired = -1

    def mark(self, number, rows, done):
        """`rows` are the rows of the lookups, None for a refused one."""
        hits = [row for row in rows if row in self.slot_of]
        for row in hits:
            self.needed[row] = max(self.needed.get(row, -1), number)
        assert (done["hits"], done["misses"]) == (
            len(hits), len(rows) - rows.count(None) - len(hits))

    def plan(self, number, rows, found, writes=True):
        done, slots = found.done, self.config.slots
        places = dict.fromkeys(row for row in rows if row is not None)  # in order
        resident = {row for row in places if row in self.slot_of}
        fetched = [row for row, _ in found.fills]
        filled = {row: place for row, place in found.fills if place < slots}
        bypassed = [(row, place) for row, place in found.fills if place >= slots]
        assert list(dict.fromkeys(fetched)) == [row for row in places if row not in resident]
        assert [place for _, place in bypassed] == list(range(slots, slots + len(bypassed)))
        assert not filled.keys() & {row for row, _ in bypassed}
        again = len(fetched) - len(set(fetched))
        assert again <= done["refused"] <= len(bypassed)
        assert (done["entries"], done["bypasses"], done["evictions"], done["unique"]) == (
            len(fetched), len(bypassed), len(found.victims), len(resident) + len(fetched))

        # Who left, dirty or not: whoever's slot is another's now.
        taken = set(filled.values())
        assert len(taken) == len(filled)
        left = {row: slot for row, slot in self.slot_of.items() if slot in taken}
        assert dict(found.victims) == {row: left[row] for row in left if row in self.dirty}
        order = [slot for _, slot in found.victims]
        assert order == [slot for slot in filled.values() if slot in set(order)]
        for row in left:
            assert row not in places and self.needed.get(row, -1) <= self.retired, row
            del self.slot_of[row]
            self.dirty.discard(row)
        self.slot_of |= filled
        self._wait(number, fetched, bypassed, done)

        numbers = {}
        for row, place in bypassed:
            numbers.setdefault(row, set()).add(place)
        for row, slot in zip(rows, found.slots, strict=True):
            want = {NO_SLOT} if row is None else numbers.get(row) or {self.slot_of[row]}
            assert slot in want, (row, slot)
        lookups = len(rows) - rows.count(None)
        assert (done["lookups"], done["hits"] + done["misses"]) == (lookups, lookups)
        sure = sum(row in resident for row in rows)
        assert sure <= done["hits"] <= lookups - len(fetched)
        for row in places.keys() - numbers.keys():
            self.needed[row] = max(self.needed.get(row, -1), number)
            self.dirty |= {row} if writes else set()

    def _wait(self, number, fetched, bypassed, done):
        """`wait_for` covers the batches that bypassed a fetched row; it is NO_BATCH without any."""
        since = max((self.bypassed_by.get(row, -1) for row in fetched), default=-1)
        self.bypassed_by |= {row: number for row, _ in bypassed}
        waits = -1 if done["wait_for"] == NO_BATCH else done["wait_for"]
        assert waits < number
        if since > self.retired:
            assert waits >= since
        if waits >= 0:
            assert waits > self.retired
            assert waits in self.bypassed_by.values() or waits == number - 1

    def retire(self, card, number):
        card.write("PLAN_RETIRED", number)
        assert card.read("PLAN_RETIRED") == number and card.read("FAULT") == 0
        self.retired = number


def served(status):
    """Check the completion of a batch whose valid lookups were served."""
    return status in (Status.OK, Status.ROW_OUT_OF_RANGE)
