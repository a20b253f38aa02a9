"""Soak of the planner: random batches, windows, policies and retirements, RTL against model.

Every completion and every byte of every result must be equal. Independent of the model, a host
tracks from the results alone which batch needs which slot: no row that a batch before its
retirement needs may be evicted. A session draws its tables, skew and window from its seed:

    python -m tests.support.fuzz.plan_soak --lookups 10000000
    python -m tests.support.fuzz.plan_soak --card tiny --seed 17 --lookups 1

The second command repeats one session; a failure prints its card and seed.
"""

import sys
from dataclasses import dataclass
from functools import partial

import numpy as np
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import (
    NO_BATCH,
    Opcode,
    PlanFlag,
    PlanPolicy,
    Status,
    packed_address,
)
from hotrow_sim.golden.records import ROW_RECORD
from hotrow_sim.golden.region_check import Table
from hotrow_sim.model import open_transport as open_model

from ..bare_host import BareHost, aligned
from .planning import RESULTS, STARVED
from .sessions import Mismatch, command_line, run_sessions

BATCHES = 400  # of a session
SAMPLES = 600  # of a batch, at most
CARDS = {card.name: card for card in (preset("tiny"), STARVED, preset("ecp5"))}
USUAL = "tiny", "starved"
WEIGHTS, LISTS, FIRST_RESULT = 8, 9, 10  # handles
STRIDE = 16


@dataclass
class Tally:
    """Totals: `sessions`, `batches`, `lookups` planned, lookups `marked`, `evictions`,
    `held_evictions` among them, `bypasses`, `waits`, `cycles`."""

    sessions: int = 0
    batches: int = 0
    lookups: int = 0
    marked: int = 0
    evictions: int = 0
    held_evictions: int = 0
    bypasses: int = 0
    waits: int = 0
    cycles: int = 0


class PlanHost(BareHost):
    """A card with tables of `rows` rows, and buffers for a batch and its results."""

    def __init__(self, transport, rows):
        super().__init__(transport)
        most = SAMPLES * len(rows)
        first = np.r_[0, np.cumsum(rows)]
        self.lists, self.results = aligned(4 * most), {
            name: aligned(size * most + 64) for name, size in RESULTS.items()}
        self.register(WEIGHTS, aligned(STRIDE * int(first[-1])))
        self.register(LISTS, self.lists)
        self.places = {}
        for handle, (name, octets) in enumerate(self.results.items(), FIRST_RESULT):
            self.register(handle, octets)
            self.places[name] = packed_address(handle, 0)
        for number, count in enumerate(rows):
            self.table(number, Table(
                count - 1, packed_address(WEIGHTS, STRIDE * int(first[number])), STRIDE, STRIDE))

    def batch(self, opcode, number, ids, flags=0):
        """PLAN or MARK of ids [samples, tables]; returns the completion without cycle numbers, and
        the cycles."""
        words = ids.astype("<u4").ravel().view(np.uint8)
        self.lists[:len(words)] = words
        done = self.run("lookup", opcode=opcode, value=number, flags=int(flags),
                        source=packed_address(LISTS, 0), count=ids.size, samples=len(ids),
                        first_table=0, table_count=ids.shape[1], **self.places)
        return done, done.pop("end") - done.pop("start")

    def listed(self, name, count, dtype="<u4"):
        """The first `count` elements of a result."""
        return self.results[name].view(np.uint8)[:np.dtype(dtype).itemsize * count].view(dtype)


class Holds:
    """Row and last needing batch of each slot, from the results alone."""

    def __init__(self, slots, rows):
        self.slots, self.first = slots, np.r_[0, np.cumsum(rows)]
        self.row_at = np.full(slots, -1)
        self.needed = np.full(slots, -1)
        self.slot_of = np.full(self.first[-1], -1)
        self.retired = -1

    def numbered(self, ids):
        """Row numbers over all tables."""
        return (ids + self.first[:-1]).ravel()

    def mark(self, number, ids):
        slots = self.slot_of[np.unique(self.numbered(ids))]
        slots = slots[slots >= 0]
        self.needed[slots] = np.maximum(self.needed[slots], number)

    def plan(self, number, ids, host, done, tally):
        """Apply a plan; return whether the slots of its lookups hold their rows."""
        fills = host.listed("fills", done["entries"], ROW_RECORD)
        places = host.listed("fill_slots", done["entries"]).astype(np.int64)
        rows = self.first[fills["table"]] + fills["row"]
        kept = places < self.slots
        filled = places[kept]
        evicted = filled[self.row_at[filled] >= 0]
        tally.evictions += len(evicted)
        tally.held_evictions += int(np.count_nonzero(self.needed[evicted] > self.retired))
        self.slot_of[self.row_at[evicted]] = -1
        self.row_at[filled], self.slot_of[rows[kept]] = rows[kept], filled
        slots = host.listed("slots", ids.size).astype(np.int64)
        served = slots < self.slots
        sound = (self.slot_of[self.numbered(ids)[served]] == slots[served]).all() and \
            (self.slot_of[self.numbered(ids)[~served]] < 0).all()
        self.needed[filled] = -1
        used = np.unique(slots[served])
        self.needed[used] = np.maximum(self.needed[used], number)
        return bool(sound)


def soak(lookups, seed=0, batches=BATCHES, card=None, open_device=None,
         say=lambda text: None) -> Tally:
    """Run sessions until `lookups` lookups have been planned.

    Parameters
    ----------
    lookups : int
    seed : int
        Of the first session.
    batches : int
        Of a session.
    card : str, optional
        One of `CARDS`; by default the seed of a session selects one of `USUAL`.
    open_device : callable, optional
        Called with `config`; default the Verilated device.
    say : callable
        Receives a line after every session.

    Raises
    ------
    Mismatch
    """
    if open_device is None:
        from hotrow_sim.verilated.transport import open_transport as open_device

    return run_sessions(
        lambda seed, tally: _Session(card, seed, open_device, tally, batches).run(),
        Tally(), "lookups", lookups, seed, say)


class _Session:
    """The batches of one seed on device and model."""

    def __init__(self, card, seed, open_device, tally, batches):
        self.seed, self.tally, self.batches = seed, tally, batches
        self.rng = rng = np.random.default_rng([seed, 7])
        self.config = config = CARDS[card or USUAL[seed % len(USUAL)]]
        scale, skew = config.slots * float(rng.choice([1, 4, 16])), float(rng.choice([1, 2, 4]))
        rows = [max(2, int(scale * share)) for share in (0.6, 0.3, 0.1)]
        self.past, self.future = (
            int(rng.integers(min(3, config.sweep_batches // 2))) for _ in range(2))
        self.policy = PlanFlag.POLICY_LOW * PlanPolicy(int(rng.integers(len(PlanPolicy))))
        most = min(SAMPLES, int(rng.choice([config.slots // 8, config.slots // 2, SAMPLES])))
        self.ids = [(np.array(rows) * rng.random((int(rng.integers(1, most + 1)), 3)) ** skew
                     ).astype(np.int64) for _ in range(batches)]
        self.device = open_device(config=config)
        self.hosts = [PlanHost(transport, rows)
                      for transport in (open_model(config=config), self.device)]
        self.holds = Holds(config.slots, rows)

    def run(self):
        tally, holds = self.tally, self.holds
        for number in range(self.batches):
            getattr(self.device, "restart_trace", bool)()
            first = number if number == 0 else number + self.future
            for coming in range(first, min(number + self.future + 1, self.batches)):
                self._both(Opcode.MARK, coming)
                holds.mark(coming, self.ids[coming])
                tally.marked += self.ids[coming].size
            if number > self.past:
                holds.retired = number - self.past - 1
                for host in self.hosts:
                    host.write("PLAN_RETIRED", holds.retired)
            done = self._both(Opcode.PLAN, number, self._flags())
            self._require(holds.plan(number, self.ids[number], self.hosts[1], done, tally),
                          f"slots of batch {number} do not hold its rows")
            self._require(not tally.held_evictions, f"batch {number} evicted a held row", done)
            tally.lookups += self.ids[number].size
            tally.bypasses += done["bypasses"]
            tally.waits += done["wait_for"] != NO_BATCH
        broken = getattr(self.device, "violations", list)()
        self._require(not broken, "an AXI rule was broken", broken)
        tally.batches += self.batches
        tally.sessions += 1
        self.device.close()

    def _flags(self):
        rng = self.rng
        flags = self.policy | PlanFlag.READ_ONLY * int(rng.random() < 0.2)
        return flags | (PlanFlag.COUNT if rng.random() < 0.5
                        else PlanFlag.ADMIT * int(rng.random() < 0.2))

    def _both(self, opcode, number, flags=0):
        """Run a command on both; return the completion."""
        model, device = self.hosts
        (expected, _), (found, cycles) = (
            host.batch(opcode, number, self.ids[number], flags) for host in self.hosts)
        same = expected == found and all(
            (octets == device.results[name]).all() for name, octets in model.results.items())
        self._require(same, f"{opcode.name} of batch {number}", expected, found)
        self._require(found["status"] == Status.OK, f"{opcode.name} of batch {number}", found)
        self.tally.cycles += cycles
        return found

    def _require(self, condition, what, *seen):
        if not condition:
            self.device.close()
            raise Mismatch("plan_soak", {"card": self.config.name, "seed": self.seed, "lookups": 1},
                           f"{what}: {seen}")


main = partial(command_line, soak, "plan_soak", "lookups", 10_000_000, __doc__,
               card=list(CARDS))

if __name__ == "__main__":
    sys.exit(main())
