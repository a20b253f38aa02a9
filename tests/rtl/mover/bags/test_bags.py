"""POOL and UPDATE through the row mover, against the golden models."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.float.formats import ElementType
from hotrow_rtl.interfaces.records import FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT
from hotrow_sim.memory import Behaviour

from tests.support.benches.bag_bench import (
    ADAGRAD,
    GRADIENTS,
    LISTED,
    MEAN,
    TINY,
    TYPED,
    WEIGHTED,
    Pool,
    PoolBatch,
    Update,
)
from tests.support.benches.row_bench import DESTINATION, ROUGH, TABLES, Gather, RowBench, compare
from tests.support.benches.stream_bench import RAGGED

SLOW, LONG = pytest.mark.slow, pytest.mark.long
ROOMY = replace(TINY, counter_sets=256, directory_sets=256, miss_entries=1024)
CONFIGS = {
    "8, one lane": replace(TINY, bus_bytes=8, burst_beats=8, arithmetic_lanes=1),
    "16": TINY,
    "16, 2 ports": replace(TINY, row_ports=2, outstanding=16, arithmetic=2),
    "16, 2 units": replace(TINY, row_ports=2, outstanding=16, bag_units=2, arithmetic=2),
    "32, 4 ports": replace(ROOMY, bus_bytes=32, row_ports=4, outstanding=1),
    "64": replace(ROOMY, bus_bytes=64, outstanding=16),
    "64, 4 lanes": replace(ROOMY, bus_bytes=64, arithmetic_lanes=4),
    "64, 4 ports": replace(ROOMY, bus_bytes=64, row_ports=4, arithmetic=2),
}
ANY_CONFIG = pytest.mark.parametrize("config", [
    pytest.param(config, id=name, marks=LONG) for name, config in CONFIGS.items()])
SEEDS = pytest.mark.parametrize("seed", [
    pytest.param(seed, marks=LONG) for seed in range(6)])


@pytest.fixture
def typed(monkeypatch):
    """A function that gives tables an element type."""
    def give(**types):
        for kind, numbers in types.items():
            for number in numbers:
                monkeypatch.setitem(TABLES, number, replace(
                    TABLES[number], type=ElementType[kind.upper()].value))
    return give


@pytest.mark.parametrize("config", [
    pytest.param(CONFIGS[name], marks=mark) for name, mark in (
        ("16", LONG), ("8, one lane", LONG), ("16, 2 ports", SLOW), ("16, 2 units", LONG),
        ("64, 4 lanes", LONG))], ids=[
                "1 port", "one lane", "2 ports", "2 units", "4 of 16 lanes"])
def test_bags_equal_golden(typed, config):
    """Every flag, type and kind of bag once, behind a memory with stalls and reordering."""
    typed(fp16=[1, 10], bf16=[3])
    pool = batch_or_rows(config)
    port = Behaviour(seed=5, **ROUGH)
    got, _ = compare(RowBench(config, port, port, gaps=RAGGED), [
        Pool(1, [0], [1, 0, 5], LISTED | WEIGHTED, stride=64),
        Update(2, [10], [1, 3], LISTED),
        Pool(3, [3], [2, 1, 0], MEAN),
        Gather(4, [0, 1], 4),
        Update(5, [8], [2, 1], ADAGRAD | LISTED, lr=0.5),
        Update(6, [10], [1, 2], TYPED),
        pool(7, [1], [18], WEIGHTED, samples=1),
    ])
    assert all(outcome.status == Status.OK for outcome in got)


@ANY_CONFIG
def test_pools_equal_golden(typed, config):
    """Tables 1 to 3 have rows of 1 to 16 bus words of 16 bytes, not on bus words."""
    typed(fp16=[1, 9], bf16=[3])
    port = Behaviour(seed=5, **ROUGH)
    got, _ = compare(RowBench(config, port, port, gaps=RAGGED), [
        Pool(1, [0], [1, 2, 0, 17, 3], stride=64),
        Pool(2, [1], [0, 0, 5, 1, 0], LISTED | WEIGHTED, stride=48),
        Pool(3, [3], [2, 9, 1], MEAN),
        Gather(4, [0, 1], 8),
        Pool(5, [2], [1, 2], LISTED | MEAN | WEIGHTED, stride=400, slots=20),
        Pool(6, [1], [30], WEIGHTED),
        Pool(7, [0], [1] * 12, LISTED),
    ])
    assert all(outcome.status == Status.OK for outcome in got)


@ANY_CONFIG
def test_updates_equal_golden(typed, config):
    typed(fp16=[10], bf16=[11])
    port = Behaviour(seed=6, **ROUGH)
    got, _ = compare(RowBench(config, port, port, gaps=RAGGED), [
        Update(1, [8], [1, 2, 1, 15, 3], stride=64),
        Update(2, [10], [1, 1, 4], LISTED),
        Update(3, [11], [2, 3, 1], LISTED | TYPED, stride=48),
        Pool(4, [0], [1, 2, 0]),
        Update(5, [9], [2], stride=272),
        Update(6, [8], [1, 2, 1, 5], ADAGRAD | LISTED, lr=0.5),
        Update(7, [11], [1], stride=112),
    ])
    assert all(outcome.status == Status.OK for outcome in got)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_adagrad_of_short_types(typed, monkeypatch, kind):
    monkeypatch.setitem(TABLES, 10, replace(TABLES[10], state_bytes=4, row_bytes=32, stride=32))
    typed(**{kind: [10]})
    got, _ = compare(RowBench(TINY), [
        Update(1, [10], [1, 3, 2], ADAGRAD, stride=64),
        Update(2, [10], [1, 1], ADAGRAD | TYPED | LISTED, stride=32, eps=0)])
    assert all(outcome.status == Status.OK for outcome in got)


@pytest.mark.long
@pytest.mark.parametrize("ports", [1, 2])
def test_a_long_bag(ports):
    config = replace(TINY, row_ports=ports, outstanding=16)
    compare(RowBench(config), [Pool(1, [0], [300, 1, 0, 2], WEIGHTED | MEAN, stride=64)])
    compare(RowBench(config), [Update(1, [8], [300, 1], LISTED)])


@pytest.mark.long
def test_other_commands_take_as_long_as_without_arithmetic():
    commands = [Gather(1, [0, 1], 12, LISTED), Gather(2, [0], 5)]
    cycles = {compare(RowBench(replace(TINY, arithmetic=each)), commands)[1]
              for each in (False, True)}
    assert len(cycles) == 1


@pytest.mark.long
def test_every_refusal_of_a_pool(typed):
    typed(bf16=[8])
    commands = [
        Pool(1, [0], [3, 2, 4], faults={"rows": {4: FAULT_SLVERR}}),
        Pool(2, [0], [3, 2, 4], WEIGHTED, faults={"weights": {4: FAULT_DECERR}}),
        Pool(3, [0], [1] * 9, LISTED, faults={"targets": {5: FAULT_TIMEOUT}}),
        Pool(4, [0], [1] * 20, faults={"lengths": {9: FAULT_DECERR}}),
        Pool(5, [0], [2, 3, 2], count=6),
        Pool(6, [0], [2, 3, 2], count=9),
        Pool(7, [0], [2, 3, 2]),
        Pool(8, [0], [2, 0, 2]),
        Pool(9, [0], [2, 0, 3]),
        Pool(10, [0], [0, 2, 0, 2]),
        Pool(11, [0], [2, 2], stride=48),
        Pool(12, [4], [0, 2], stride=2048, rows=1),
        Pool(13, [0], [1, 2, 0, 1], destination=packed_address(1, 0x5EB0)),
        Pool(14, [0], [2, 2], destination=packed_address(0, 0)),
        Pool(15, [0], [0, 2], destination=packed_address(1, 8)),
        Pool(16, [12], [1, 1, 1]),
        Pool(17, [0], [0, 0, 3], count=2),
    ]
    commands[6].entries["row"][3] = 64
    commands[7].entries["table"][2] = 16
    commands[8].entries["table"][:] = (0, 0, 0, 8, 0)
    commands[9].entries["table"][1] = 15
    commands[9].entries["table"][0] = 15
    commands[15].entries["row"][:] = (23, 24, 0)
    got, _ = compare(RowBench(TINY), commands)
    told = [(outcome.status, outcome.error_index, outcome.entries) for outcome in got]
    assert told[4:9] == [
        (Status.LOOKUPS, 7, 2), (Status.LOOKUPS, 7, 3), (Status.ROW_OUT_OF_RANGE, 3, 2),
        (Status.TABLE_UNKNOWN, 2, 2), (Status.ROW_SHAPE, 3, 2)]
    assert [outcome.status for outcome in got] == [
        Status.SLVERR, Status.DECERR, Status.TIMEOUT, Status.DECERR, Status.LOOKUPS,
        Status.LOOKUPS, Status.ROW_OUT_OF_RANGE, Status.TABLE_UNKNOWN, Status.ROW_SHAPE,
        Status.TABLE_UNKNOWN, Status.STRIDE, Status.STRIDE, Status.REGION, Status.READ_ONLY,
        Status.MISALIGNED, Status.REGION, Status.LOOKUPS]


@pytest.mark.slow
def test_every_refusal_of_an_update(typed):
    typed(bf16=[11])
    commands = [
        Update(1, [8], [3, 2, 4], faults={"rows": {2: FAULT_SLVERR}}),
        Update(2, [8], [3, 2, 4], LISTED, faults={"targets": {5: FAULT_DECERR}}),
        Update(3, [8], [1] * 9, faults={"lengths": {8: FAULT_TIMEOUT}}),
        Update(4, [8], [2, 3, 2], gradient_count=6),
        Update(5, [8], [2, 3, 2], gradient_count=9),
        Update(6, [8], [2, 0, 2]),
        Update(7, [8], [2, 3, 2]),
        Update(8, [8], [2, 3, 2]),
        Update(9, [11], [1, 1], stride=80),
        Update(10, [10], [1, 1], ADAGRAD),
        Update(11, [8], [1, 1, 1], gradients=packed_address(0, 0x4DD0)),
        Update(12, [8], [1, 1], gradients=packed_address(0, 8)),
        Update(13, [0], [1, 1]),
        Update(14, [13], [1, 2], ADAGRAD),
        Update(15, [12], [1, 2]),
        Update(16, [8, 11], [1, 2, 1, 1]),
    ]
    commands[6].entries["row"][1] = 41
    commands[7].entries["table"][1] = 15
    commands[14].entries["row"][:] = (3, 24)
    commands[15].entries["table"][:] = (8, 11, 8, 11)
    commands[15].entries["row"][:] = (1, 1, 2, 2)
    got, _ = compare(RowBench(TINY), commands)
    assert [(outcome.status, outcome.entries) for outcome in got] == [
        (Status.SLVERR, 2), (Status.DECERR, 1), (Status.TIMEOUT, 8), (Status.LOOKUPS, 2),
        (Status.LOOKUPS, 3), (Status.LOOKUPS, 1), (Status.ROW_OUT_OF_RANGE, 2),
        (Status.TABLE_UNKNOWN, 2), (Status.STRIDE, 0), (Status.ROW_SHAPE, 0), (Status.REGION, 2),
        (Status.MISALIGNED, 0), (Status.READ_ONLY, 0), (Status.READ_ONLY, 0), (Status.REGION, 1),
        (Status.ROW_SHAPE, 2)]


def batch_or_rows(config):
    """POOL of a batch, on a card that has it."""
    if config.pools_batches:
        return PoolBatch
    return lambda *args, samples, **more: Pool(*args, **more)


def drawn_batch(monkeypatch, rng, bags, like):
    """Consecutive tables like another, the last one mostly, and the samples of a batch of them."""
    samples = int(rng.choice([each for each in range(1, bags + 1) if bags % each == 0]))
    columns = bags // samples
    if not 14 + columns <= TINY.tables or columns > 2:
        return [like], bags
    other = int(rng.choice([0, 2])) if rng.random() < 0.2 else like
    for number, table in zip((14, 15), (like, other), strict=True):
        monkeypatch.setitem(TABLES, number, TABLES[table])
    return [14, 15][:columns], samples


@SEEDS
def test_random_pools_equal_golden(monkeypatch, seed):
    rng, config = drawn(monkeypatch, seed)
    commands = []
    for number in range(4):
        lengths = rng.choice([0, 1, 1, 2, 3, 5, 17], int(rng.integers(1, 9)))
        count = max(1, int(lengths.sum()))
        if rng.random() < 0.2:
            count = max(1, count + int(rng.integers(-4, 5)))
        tables = [int(rng.choice([0, 1, 2, 3, 10]))]
        if rng.random() < 0.2:
            tables = [0, 0, 0, 8, int(rng.choice([1, 3, 5, 6, 7, 15, 16, 4]))]
        places = [DESTINATION] * 8 + [packed_address(*each) for each in (
            (1, 0x5A00), (0, 0), (1, 8), (7, 0), (1, (1 << 48) - 2048), (1, 0xFE0))]
        pool = Pool
        if rng.random() < 0.5:
            tables, samples = drawn_batch(monkeypatch, rng, len(lengths), tables[0])
            pool = partial(batch_or_rows(config), samples=samples)
        commands.append(pool(
            10 * seed + number, tables, lengths, int(rng.integers(8)),
            int(rng.choice([256, 272, 400, 64])), places[rng.integers(len(places))],
            rows=int(rng.choice([16, 16, 16, 24, 66])), count=count,
            faults=faults(rng, rows=count, lengths=len(lengths), targets=len(lengths),
                          weights=count)))
    port = Behaviour(seed=seed, **(ROUGH if seed % 2 else {}))
    compare(RowBench(config, port, port, seed=seed), commands)


@SEEDS
def test_random_updates_equal_golden(monkeypatch, seed):
    rng, config = drawn(monkeypatch, seed)
    commands = []
    for number in range(4):
        lengths = rng.choice([1, 1, 2, 3, 5, 14], int(rng.integers(1, 9)))
        if rng.random() < 0.1:
            lengths[rng.integers(len(lengths))] = 0
        count = max(1, int(lengths.sum()))
        if rng.random() < 0.2:
            count = max(1, count + int(rng.integers(-4, 5)))
        tables = [int(rng.choice([8, 8, 8, 9, 11, 10]))]
        if rng.random() < 0.25:
            choices = [[8, 12], [13], [12], [8, 1], [8, 15], [16, 8], [10, 8], [5, 8], [4]]
            tables = choices[rng.integers(len(choices))]
        places = [GRADIENTS] * 8 + [packed_address(*each) for each in (
            (0, 0x4F00), (0, 8), (7, 0), (0, (1 << 48) - 2048), (0, 0xFE0))]
        commands.append(Update(
            10 * seed + number, tables, lengths, int(rng.integers(8)),
            int(rng.choice([256, 272, 528, 96, 64])), places[rng.integers(len(places))],
            int(rng.choice([20, 40])), int(rng.choice([16, 21, 41])) if len(tables) == 1 else 16,
            count, faults=faults(rng, rows=len(lengths), lengths=len(lengths), targets=count)))
    port = Behaviour(seed=seed, **(ROUGH if seed % 2 else {}))
    compare(RowBench(config, port, port, seed=seed), commands)


def drawn(monkeypatch, seed):
    """A generator, a configuration, and types of tables."""
    rng = np.random.default_rng([seed, 7])
    kind = int(rng.choice([0, 0, 1, 2]))
    for number, table in list(TABLES.items()):
        other = int(rng.integers(4)) if rng.random() < 0.1 else kind
        monkeypatch.setitem(TABLES, number, replace(table, type=other))
    return rng, list(CONFIGS.values())[seed % len(CONFIGS)]


def faults(rng, **lists):
    """Of some lists, that have so many elements, one."""
    return {name: {int(rng.integers(count)): int(rng.integers(1, 4))}
            for name, count in lists.items() if rng.random() < 0.1}
