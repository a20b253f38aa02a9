"""Cycles of the model against the RTL, on commands that are large enough."""

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import (
    AllFlag,
    BatchFlag,
    GatherFlag,
    Opcode,
    PoolFlag,
    Status,
    UpdateFlag,
)
from hotrow_rtl.lookup.banks.lookup_bank import LookupBank
from hotrow_rtl.lookup.directory.slot_table import distance
from hotrow_sim.golden.lookup.combiner import owners
from hotrow_sim.golden.lookup.counters import pack_key
from hotrow_sim.golden.lookup.planner import Planner
from hotrow_sim.model import open_transport as open_model
from hotrow_sim.model.command_cycles import CHECKED, ENGAGED, LATENCY, OPERAND, batch_command_cycles

from tests.rtl.lookup.banks.crossbar_cycles import crossbar_cycles
from tests.sim.device.conftest import TINY

TOLERANCE = 0.05
ANSWERED = LookupBank(TINY).latency


def commands(card):
    """(queue, operands) of each kind of command, in an order in which each has work."""
    rng = np.random.default_rng(3)
    ids = np.minimum(rng.zipf(1.3, 2000) - 1, 99).astype(np.uint32)
    batch = {"source": card.put(ids), "count": 2000, "samples": 1000, "table_count": 2}
    rows = card.put_rows([(0, n) for n in range(100)] + [(1, n) for n in range(150)], 16384)
    lengths = rng.integers(0, 4, 600).astype(np.uint16)
    lengths[-1] += 4
    jagged = batch | {"lengths": card.put(lengths, 24576), "count": int(lengths.sum()),
                      "samples": 300, "flags": BatchFlag.JAGGED}
    listed = {"source": rows, "count": 250, "slots": card.address("results")}
    split = {name: card.address("results", 8192 * place) for place, name in enumerate(
        ("slots", "misses", "popular", "nonpopular"))}
    moved = {"source": rows, "count": 200, "stride": 128, "destination": card.address("results"),
             "state_destination": card.address("results", 28672),
             "rows": card.address("results"), "state_rows": card.address("results", 28672),
             "targets": card.put(rng.permutation(200).astype(np.uint32), 28672)}
    yield "lookup", {"opcode": Opcode.OBSERVE, **batch}
    yield "lookup", {"opcode": Opcode.OBSERVE, **jagged}
    yield "lookup", {"opcode": Opcode.HARVEST, "destination": card.address("results"),
                     "count": 20, "threshold": 1}
    yield "lookup", {"opcode": Opcode.HARVEST, "destination": card.address("results"),
                     "count": 256, "threshold": 2}
    yield "lookup", {"opcode": Opcode.DECAY, "shift": 1}
    yield "lookup", {"opcode": Opcode.DECAY, "flags": AllFlag.ALL}
    yield "lookup", {"opcode": Opcode.SPLIT, **batch, **split}
    yield "lookup", {"opcode": Opcode.INSTALL, **listed}
    yield "lookup", {"opcode": Opcode.SPLIT, **batch, **split}
    yield "lookup", {"opcode": Opcode.SPLIT, **jagged, **split}
    yield "lookup", {"opcode": Opcode.REMOVE, **listed}
    planned = {name: card.address("results", place) for name, place in (
        ("slots", 0), ("fill_slots", 4096), ("victim_slots", 8192), ("fills", 12288),
        ("victims", 20480))}
    spread = batch | {"source": card.put(rng.permutation(1000).astype(np.uint32)), "count": 1000,
                      "samples": 1000, "first_table": 1, "table_count": 1}
    for number in range(2):  # rows to fetch, then also rows with slots
        yield "lookup", {"opcode": Opcode.PLAN, **spread, **planned, "value": number}
    yield "move", {"opcode": Opcode.GATHER, **moved}
    yield "move", {"opcode": Opcode.GATHER, **moved, "flags": GatherFlag.LISTED}
    with_state = card.put_rows([(0, n % 100) for n in range(200)], 16384)
    yield "move", {"opcode": Opcode.GATHER, **moved, "flags": GatherFlag.STATE,
                   "source": with_state}
    yield "move", {"opcode": Opcode.SCATTER, **moved}
    yield "move", {"opcode": Opcode.SCATTER, **moved, "flags": GatherFlag.STATE,
                   "source": with_state}
    bags = {"source": rows, "count": 250, "stride": 128, "bags": 25,
            "lengths": card.put(np.full(250, 10, np.uint16), 20480),
            "destination": card.address("results")}
    of_one_shape = bags | {"source": card.put_rows(
        [(1, n) for n in rng.permutation(1000)[:250]], 18432)}
    yield "move", {"opcode": Opcode.POOL, **of_one_shape}
    yield "move", {"opcode": Opcode.POOL, **of_one_shape, "flags": PoolFlag.MEAN}
    gradients = {"gradients": card.address("lists"), "count": 30, "gradient_count": 300,
                 "lr": 0x3F000000, "flags": UpdateFlag.LISTED,
                 "targets": card.put(rng.integers(0, 200, 300).astype(np.uint32), 22528)}
    yield "move", {"opcode": Opcode.UPDATE, **of_one_shape, **gradients}
    yield "move", {"opcode": Opcode.UPDATE, **of_one_shape, **gradients, "gradient_count": 30,
                   "lengths": card.put(np.ones(30, np.uint16), 21504)}
    span = {"destination": card.address("results"), "count": 16384, "value": 1}
    yield "move", {"opcode": Opcode.COPY, **span, "source": card.address("lists")}
    yield "move", {"opcode": Opcode.FILL, **span}


@pytest.mark.slow
def test_cycles_are_close_to_the_hardware(make_card):
    from hotrow_sim.verilated.transport import open_transport as open_sim

    cards = [make_card(open_model("tiny")), make_card(open_sim("tiny", latency=LATENCY))]
    far_off = []
    for (queue, operands), _ in zip(commands(cards[0]), commands(cards[1]), strict=True):
        model, rtl = (card.run(queue, **operands) for card in cards)
        cycles = [done["end"] - done["start"] for done in (model, rtl)]
        if abs(cycles[0] - cycles[1]) > TOLERANCE * cycles[1]:
            far_off.append(f"{Opcode(operands['opcode']).name} {operands.get('flags', 0)}: "
                           f"model {cycles[0]}, RTL {cycles[1]}")
    assert not far_off, "\n".join(far_off)


@pytest.mark.slow
@pytest.mark.parametrize("many", [1, 40, 1000])
def test_rows_of_one_set_wait_for_each_other(make_card, many):
    """MARK of up to `rows` rows: the model of the crossbar includes conflicts of sets, that of the
    card does not."""
    from hotrow_sim.verilated.transport import open_transport as open_sim

    card, rng = make_card(open_sim("tiny", latency=LATENCY)), np.random.default_rng(many)
    ids = rng.integers(0, many, 1000).astype(np.uint32)
    done = card.run("lookup", opcode=Opcode.MARK, source=card.put(ids), count=len(ids),
                    samples=len(ids), first_table=1, table_count=1)
    assert done["status"] == Status.OK, done
    table, beat = np.ones(len(ids), np.uint64), np.arange(len(ids)) // TINY.lanes
    asking = owners(pack_key(TINY, table, ids), beat, TINY.window_beats) == np.arange(len(ids))
    none = np.zeros(len(ids), np.int64)
    beats = [{} for _ in range(beat[-1] + 1)]
    for at, starts in zip(beat[asking], np.array(Planner(TINY).starts(
            table, ids.astype(np.uint64), none, none))[asking] // TINY.directory_ways, strict=True):
        beats[at].setdefault(int(starts[0]) % TINY.banks, []).append(tuple(starts.tolist()))
    waiting = crossbar_cycles(beats, ANSWERED, distance(TINY)) - len(beats)
    steady = crossbar_cycles([{}] * len(beats), ANSWERED) - len(beats)
    model = CHECKED + ENGAGED + 1 + 2 * OPERAND + batch_command_cycles(
        TINY, len(beats) + waiting - steady, 0, 0, False, LATENCY)
    cycles = done["end"] - done["start"]
    assert abs(model - cycles) <= 0.02 * cycles, f"model {model}, RTL {cycles}"


def test_cycles_grow_with_the_work(make_card):
    card = make_card(open_model("tiny"))
    cycles = []
    for count in (10, 100, 1000):
        ids = card.put(np.zeros(count, np.uint32))
        done = card.run("lookup", opcode=Opcode.OBSERVE, source=ids, count=count, samples=count,
                        table_count=1)
        cycles.append(done["end"] - done["start"])
    assert cycles[1] - cycles[0] == 22 and cycles[2] - cycles[1] == 225  # beats of 4 lookups
