"""A long soak of the planner: random batches, windows, policies and retirements, the RTL against
the golden model, until so many lookups have been planned.

Every completion and every byte of every result is compared. Beside both a host follows which batch
needs which slot, from the results alone: no row leaves that a batch not yet retired needs. A
session draws its tables, skew and window from its seed:

    python -m hotrow_sim.testing.fuzz.plan_soak --lookups 10000000
    python -m hotrow_sim.testing.fuzz.plan_soak --seed 17 --lookups 1

The second command repeats one session; a failure prints its seed.
"""

import argparse
import sys
from dataclasses import dataclass

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

from ...golden.records import ROW_RECORD
from ...golden.region_check import Table
from ...model import open_transport as open_model
from ..bare_host import BareHost, aligned
from .planning import STARVED

BATCHES = 400  # of a session
SAMPLES = 600  # of a batch, at most
CARDS = (preset("tiny"), STARVED)
WEIGHTS, LISTS, RESULTS = 8, 9, 10  # handles
STRIDE = 16
LISTED = {"slots": 4, "fill_slots": 4, "victim_slots": 4, "fills": 8,
          "victims": 8}  # bytes per lookup


class Mismatch(AssertionError):
    """RTL and model differ, or a row left that was needed; the message names the session's seed."""


@dataclass
class Tally:
    """What a soak met: `sessions`, `batches`, `lookups` planned, `marked`; `evictions` of rows,
    written back or not, `held_evictions` among them, `bypasses`, `waits`, `cycles`."""

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
    """A card with tables of so many rows, and room for a batch and its results."""

    def __init__(self, transport, rows):
        super().__init__(transport)
        most = SAMPLES * len(rows)
        first = np.r_[0, np.cumsum(rows)]
        self.lists, self.results = aligned(4 * most), {
            name: aligned(size * most + 64) for name, size in LISTED.items()}
        self.register(WEIGHTS, aligned(STRIDE * int(first[-1])))
        self.register(LISTS, self.lists)
        self.places = {}
        for handle, (name, octets) in enumerate(self.results.items(), RESULTS):
            self.register(handle, octets)
            self.places[name] = packed_address(handle, 0)
        for number, count in enumerate(rows):
            self.table(number, Table(
                count - 1, packed_address(WEIGHTS, STRIDE * int(first[number])), STRIDE, STRIDE,
                0, 0))

    def batch(self, opcode, number, ids, flags=0):
        """PLAN or MARK of ids [samples, tables]; the completion without cycles, and its end."""
        words = ids.astype("<u4").ravel().view(np.uint8)
        self.lists[:len(words)] = words
        done = self.run("lookup", opcode=opcode, value=number, flags=int(flags),
                        source=packed_address(LISTS, 0), count=ids.size, samples=len(ids),
                        first_table=0, table_count=ids.shape[1], **self.places)
        return done, done.pop("end") - done.pop("start")

    def listed(self, name, count, dtype="<u4"):
        return self.results[name].view(np.uint8)[:np.dtype(dtype).itemsize * count].view(dtype)


class Holds:
    """Which row has which slot and which batch needs it last, from the results alone."""

    def __init__(self, slots, rows):
        self.slots, self.first = slots, np.r_[0, np.cumsum(rows)]
        self.row_at = np.full(slots, -1)
        self.needed = np.full(slots, -1)
        self.slot_of = np.full(self.first[-1], -1)
        self.retired = -1

    def numbered(self, ids):
        return (ids + self.first[:-1]).ravel()

    def mark(self, number, ids):
        slots = self.slot_of[np.unique(self.numbered(ids))]
        self.needed[slots[slots >= 0]] = np.maximum(self.needed[slots[slots >= 0]], number)

    def plan(self, number, ids, host, done, tally):
        fills = host.listed("fills", done["entries"], ROW_RECORD)
        places = host.listed("fill_slots", done["entries"]).astype(np.int64)
        rows = self.first[fills["table"]] + fills["row"]
        kept = places < self.slots
        taken = places[kept]
        left = taken[self.row_at[taken] >= 0]
        tally.evictions += len(left)
        tally.held_evictions += int(np.count_nonzero(self.needed[left] > self.retired))
        self.slot_of[self.row_at[left]] = -1
        self.row_at[taken], self.slot_of[rows[kept]] = rows[kept], taken
        slots = host.listed("slots", ids.size).astype(np.int64)
        served = slots < self.slots
        sound = (self.slot_of[self.numbered(ids)[served]] == slots[served]).all() and \
            (self.slot_of[self.numbered(ids)[~served]] < 0).all()
        self.needed[taken] = -1
        used = np.unique(slots[served])
        self.needed[used] = np.maximum(self.needed[used], number)
        return bool(sound)


def soak(lookups, seed=0, batches=BATCHES, open_device=None, say=lambda text: None):
    """Run sessions until so many lookups have been planned.

    Parameters
    ----------
    lookups : int
    seed : int
        Of the first session; the next has the next one.
    batches : int
        Of a session.
    open_device : callable, optional
        Given `config`; by default the Verilated device.
    say : callable
        Given a line after every session.

    Returns
    -------
    Tally

    Raises
    ------
    Mismatch
    """
    if open_device is None:
        from ...verilated.transport import open_transport as open_device

    tally = Tally()
    while tally.lookups < lookups:
        session(seed, batches, open_device, tally)
        say(f"seed {seed}: {tally}")
        seed += 1
    return tally


def session(seed, batches, open_device, tally):
    """Plan the batches of one seed on device and model; add them to the tally."""
    rng = np.random.default_rng([seed, 7])
    config = CARDS[seed % len(CARDS)]
    scale, skew = config.slots * float(rng.choice([1, 4, 16])), float(rng.choice([1, 2, 4]))
    rows = [max(2, int(scale * share)) for share in (0.6, 0.3, 0.1)]
    past, future = (int(rng.integers(min(3, config.sweep_batches // 2))) for _ in range(2))
    policy = PlanFlag.POLICY_LOW * PlanPolicy(int(rng.integers(len(PlanPolicy))))
    most = int(rng.choice([config.slots // 8, config.slots // 2, SAMPLES]))
    ids = [(np.array(rows) * rng.random((int(rng.integers(1, most + 1)), 3)) ** skew).astype(
        np.int64) for _ in range(batches)]
    device = open_device(config=config)
    hosts = [PlanHost(transport, rows) for transport in (open_model(config=config), device)]
    holds = Holds(config.slots, rows)

    def both(opcode, number, flags=0):
        (told, _), (found, cycles) = (
            host.batch(opcode, number, ids[number], flags) for host in hosts)
        same = told == found and all(
            (octets == hosts[1].results[name]).all()
            for name, octets in hosts[0].results.items())
        require(same, f"{opcode.name} of batch {number}", told, found)
        require(found["status"] == Status.OK, f"{opcode.name} of batch {number}", found)
        tally.cycles += cycles
        return found

    def require(holds_, what, *seen):
        if not holds_:
            raise Mismatch(f"seed {seed}, card {config.name}: {what}: {seen}\nrun it again: "
                           f"python -m hotrow_sim.testing.fuzz.plan_soak --seed {seed} --lookups 1")

    for number in range(batches):
        first = number if number == 0 else number + future
        for coming in range(first, min(number + future + 1, batches)):
            both(Opcode.MARK, coming)
            holds.mark(coming, ids[coming])
            tally.marked += ids[coming].size
        if number > past:
            holds.retired = number - past - 1
            for host in hosts:
                host.write("PLAN_RETIRED", holds.retired)
        flags = policy | PlanFlag.READ_ONLY * int(rng.random() < 0.2)
        flags |= PlanFlag.COUNT if rng.random() < 0.5 else PlanFlag.ADMIT * int(rng.random() < 0.2)
        done = both(Opcode.PLAN, number, flags)
        require(holds.plan(number, ids[number], hosts[1], done, tally),
                f"slots of batch {number} are not those of its rows")
        require(not tally.held_evictions, f"batch {number} evicted a held row", done)
        tally.lookups += ids[number].size
        tally.bypasses += done["bypasses"]
        tally.waits += done["wait_for"] != NO_BATCH
    require(not (broken := getattr(device, "violations", list)()), "an AXI rule was broken", broken)
    tally.batches += batches
    tally.sessions += 1
    device.close()


def main(arguments=None):
    """Run from the command line; 1 where model and RTL differ or a held row left."""
    parser = argparse.ArgumentParser(prog="python -m hotrow_sim.testing.fuzz.plan_soak",
                                     description=__doc__.split(":")[0] + ".")
    parser.add_argument("--lookups", type=int, default=10_000_000, help="to be planned, at least")
    parser.add_argument("--seed", type=int, default=0, help="of the first session")
    options = parser.parse_args(arguments)
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    try:
        print(soak(options.lookups, options.seed, say=say))
    except Mismatch as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
