"""Commands against expectations by hand, on the model and on the RTL."""

from collections import defaultdict

import numpy as np
import pytest
from hotrow_rtl.config import MISS_WAYS, ROW_NUMBER_WIDTH
from hotrow_rtl.contract.encoding import (
    AllFlag,
    BatchFlag,
    GatherFlag,
    Opcode,
    Status,
    packed_address,
)
from hotrow_rtl.lookup.hashing import row_location as placement
from hotrow_sim.golden.records import HARVEST_RECORD, ROW_RECORD

from tests.sim.device.conftest import TINY
from tests.support.bare_host import aligned

MISS, NO_SLOT = 0x8000_0000, 0xFFFF_FFFF


def observe(card, ids, table=0):
    ids = np.asarray(ids, np.uint32)
    return card.run("lookup", opcode=Opcode.OBSERVE, source=card.put(ids), count=len(ids),
                    samples=len(ids), first_table=table, table_count=1)


def harvest(card, count, threshold=1):
    done = card.run("lookup", opcode=Opcode.HARVEST, destination=card.address("results"),
                    count=count, threshold=threshold)
    assert done["status"] == Status.OK
    found = card.result(done["entries"], dtype=HARVEST_RECORD)
    return {(int(e["table"]), int(e["row"])): int(e["count"]) for e in found}


def edit(card, opcode, rows, **more):
    """INSTALL or REMOVE; return (completion, slots)."""
    done = card.run("lookup", opcode=opcode, source=card.put_rows(rows), count=len(rows),
                    slots=card.address("results"), **more)
    return done, card.result(len(rows)).tolist()


def split(card, ids, samples, tables, flags=0, lengths=None):
    """SPLIT; return (completion, slots, popular, nonpopular, misses)."""
    ids = np.asarray(ids, np.uint64 if flags & BatchFlag.ID64 else np.uint32)
    results = {name: 4096 * place for place, name in enumerate(
        ("slots", "popular", "nonpopular", "misses"))}
    operands = {name: card.address("results", offset) for name, offset in results.items()}
    if lengths is not None:
        operands["lengths"] = card.put(np.asarray(lengths, np.uint16), 16384)
    done = card.run("lookup", opcode=Opcode.SPLIT, source=card.put(ids), count=len(ids),
                    samples=samples, table_count=tables, flags=flags, **operands)
    assert done["status"] == Status.OK
    misses = card.result(done["unique"], results["misses"], ROW_RECORD)
    return (done, card.result(len(ids)).tolist(),
            card.result(done["popular"], results["popular"]).tolist(),
            card.result(samples - done["popular"], results["nonpopular"]).tolist(),
            [(int(miss["table"]), int(miss["row"])) for miss in misses])


def test_observe_counts_and_harvest_finds_the_hot_rows(card):
    done = observe(card, [5, 5, 7, 5, 9, 7])
    assert (done["lookups"], done["hits"], done["misses"]) == (6, 3, 3)
    assert observe(card, [5], table=1)["misses"] == 1
    assert harvest(card, 16) == {(0, 5): 3, (0, 7): 2, (0, 9): 1, (1, 5): 1}
    assert harvest(card, 2) == {(0, 5): 3, (0, 7): 2}
    assert harvest(card, 16, threshold=2) == {(0, 5): 3, (0, 7): 2}
    assert harvest(card, 16, threshold=0) == harvest(card, 16), "rows never seen are not harvested"
    assert harvest(card, 16, threshold=100) == {}


def test_batches_of_many_lookups(card):
    samples, each = 1000, 256
    ids = np.arange(samples * each, dtype=np.uint32) * 7 % 64
    lists, slots, misses = aligned(ids.nbytes), aligned(ids.nbytes), aligned(2 * ids.nbytes)
    lists[:] = ids.view(np.uint8)
    for handle, octets in ((12, lists), (13, slots), (14, misses)):
        card.register(handle, octets)
    batch = {
        "source": packed_address(12, 0), "count": len(ids), "samples": samples, "table_count": 1,
        "lengths": card.put(np.full(samples, each, np.uint16)), "flags": BatchFlag.JAGGED}
    done = card.run("lookup", opcode=Opcode.OBSERVE, **batch)
    assert (done["status"], done["lookups"]) == (Status.OK, len(ids))
    edit(card, Opcode.INSTALL, [(0, row) for row in range(64)])
    batch["lengths"] = card.put(np.full(samples, each, np.uint16))
    done = card.run("lookup", opcode=Opcode.SPLIT, **batch, slots=packed_address(13, 0),
                    popular=card.address("results"), nonpopular=card.address("results", 4096),
                    misses=packed_address(14, 0))
    assert (done["status"], done["lookups"], done["popular"]) == (Status.OK, len(ids), samples)
    found = slots.view(np.uint32).reshape(-1, 64)
    assert len(np.unique(found[0])) == 64 and (found == found[0]).all()


def test_harvest_writes_only_its_entries(card):
    observe(card, [5, 7, 9])
    card.results[:] = 0xEE
    harvest(card, 100)
    assert (card.results[3 * 16:] == 0xEE).all()


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 16, 31, 32, 1000, 0xFFFF_FFFF])
def test_decay_shifts_counts(card, shift):
    observe(card, [5] * 6 + [7] * 2 + [9])
    assert card.run("lookup", opcode=Opcode.DECAY, shift=shift)["status"] == Status.OK
    expected = {(0, 5): 6 >> shift, (0, 7): 2 >> shift, (0, 9): 1 >> shift}
    assert harvest(card, 16) == {row: count for row, count in expected.items() if count}


def test_decay_all_clears(card):
    observe(card, [5] * 6)
    card.run("lookup", opcode=Opcode.DECAY, flags=AllFlag.ALL)
    assert harvest(card, 16) == {}


def test_install_assigns_slots_and_split_finds_them(card):
    rows = [(0, 3), (1, 3), (2, 3), (0, 3)]
    done, slots = edit(card, Opcode.INSTALL, rows)
    assert (done["entries"], done["hits"], done["refused"]) == (4, 1, 0)
    assert slots[0] == slots[3] and len(set(slots)) == 3
    assert max(slots) < TINY.slots

    done, found, popular, nonpopular, misses = split(card, [3, 3, 3, 4, 3, 5], 3, 2)
    assert found == [slots[0], slots[1], slots[0], MISS, slots[0], MISS | 1]
    assert (popular, nonpopular) == ([0], [1, 2])
    assert misses == [(1, 4), (1, 5)]
    counts = (done["lookups"], done["hits"], done["misses"], done["unique"], done["popular"])
    assert counts == (6, 4, 2, 2, 1)


def test_remove_frees_slots(card):
    _, slots = edit(card, Opcode.INSTALL, [(0, 3), (0, 4)])
    done, removed = edit(card, Opcode.REMOVE, [(0, 4), (0, 5), (0, 4)])
    assert removed == [slots[1], NO_SLOT, NO_SLOT]
    assert (done["entries"], done["misses"]) == (1, 2)
    assert split(card, [3, 4], 2, 1)[1] == [slots[0], MISS]


def test_remove_all_empties_the_directory(card):
    edit(card, Opcode.INSTALL, [(0, 3), (0, 4)])
    before = card.results.copy()
    done = card.run("lookup", opcode=Opcode.REMOVE, flags=AllFlag.ALL)
    assert (done["status"], done["entries"]) == (Status.OK, 0)
    assert (card.results == before).all()
    assert split(card, [3, 4], 2, 1)[0]["hits"] == 0


def test_a_full_directory_refuses(card):
    rows = [(1, row) for row in range(1000)]
    done, slots = edit(card, Opcode.INSTALL, rows)
    given = [slot for slot in slots if slot != NO_SLOT]
    assert len(set(given)) == len(given) == done["entries"] <= TINY.slots
    assert done["refused"] == 1000 - done["entries"] > 0
    assert done["status"] == Status.OK


def test_jagged_feature_major_batches(card):
    edit(card, Opcode.INSTALL, [(0, 1), (1, 2)])
    # Table 0: samples have 2, 0, 1 ids; table 1: 1, 1, 0.
    done, slots, popular, nonpopular, misses = split(
        card, [1, 1, 1, 2, 9], 3, 2, BatchFlag.JAGGED | BatchFlag.FEATURE_MAJOR, [2, 0, 1, 1, 1, 0])
    assert (popular, nonpopular, misses) == ([0, 2], [1], [(1, 9)])
    assert slots[4] == MISS and MISS not in slots[:4]
    assert done["popular"] == 2


def test_jagged_sample_major_batches_of_64_bit_ids(card):
    edit(card, Opcode.INSTALL, [(0, 1), (1, 2)])
    flags = BatchFlag.JAGGED | BatchFlag.ID64
    lengths = [2, 1, 1, 1, 0, 0]
    _, _, popular, nonpopular, misses = split(card, [1, 1, 2, 9, 7], 3, 2, flags, lengths)
    assert (popular, nonpopular) == ([0, 2], [1])
    assert misses == [(0, 9), (1, 7)]


def test_misses_of_a_full_set_repeat(card):
    config, sets = TINY, defaultdict(list)
    for row in range(1000):
        bank, rest = placement.split_key(config, 1 << ROW_NUMBER_WIDTH | row)
        sets[bank, rest % config.miss_sets].append(row)
    first, second, third = next(rows for rows in sets.values() if len(rows) > MISS_WAYS)[:3]
    # The row of table 0, in another set or earlier, is in the same beat as each of the others.
    rows = [first, second, third, *[first] * 40, third, first]
    ids = np.stack([np.zeros(len(rows)), rows], axis=1).ravel()
    done, slots, _, _, misses = split(card, ids, len(rows), 2)
    assert misses == [(0, 0), (1, first), (1, second), (1, third), (1, third)]
    assert slots[1::2] == [MISS | i for i in (1, 2, 3, *[1] * 40, 4, 1)]
    assert slots[::2] == [MISS] * len(rows)
    assert (done["unique"], done["refused"]) == (5, 2)


def test_gather_moves_rows_and_state(card):
    rows = [(1, 5), (0, 99), (2, 6), (1, 5)]
    done = card.run("move", opcode=Opcode.GATHER, source=card.put_rows(rows), count=4, stride=112,
                    destination=card.address("results"), flags=GatherFlag.STATE,
                    state_destination=card.address("results", 4096))
    assert (done["status"], done["entries"]) == (Status.OK, 4)
    assert done["bytes"] == 96 + 64 + 16 + 96 + 8 + 4
    for place, (table, row) in enumerate(rows):
        known = card.tables[table]
        start = (known.weights & 0xFFFF_FFFF) + row * known.stride
        got = card.results[112 * place:112 * place + known.row_bytes]
        assert (got == card.weights[start:start + known.row_bytes]).all(), place
        assert (card.results[112 * place + known.row_bytes:112 * (place + 1)] == 0xEE).all()


def test_gather_to_listed_slots(card):
    rows, targets = [(0, 1), (0, 2), (0, 3)], [7, 0, 5]
    done = card.run("move", opcode=Opcode.GATHER, source=card.put_rows(rows), count=3, stride=64,
                    targets=card.put(np.array(targets, np.uint32), 4096),
                    destination=card.address("results", 16), flags=GatherFlag.LISTED)
    assert (done["status"], done["entries"]) == (Status.OK, 3)
    for slot, row in ((0, 2), (5, 3), (7, 1)):
        got = card.results[16 + 64 * slot:16 + 64 * (slot + 1)]
        assert (got == card.weights[64 * row:64 * (row + 1)]).all()
    assert (card.results[80:16 + 5 * 64] == 0xEE).all()


def test_scatter_reverses_gather(card):
    rows, targets = [(1, 5), (0, 99), (2, 6), (1, 7)], [3, 0, 2, 9]
    operands = {"source": card.put_rows(rows), "count": 4, "stride": 112,
                "targets": card.put(np.array(targets, np.uint32), 4096),
                "flags": GatherFlag.LISTED}
    card.results[:] = np.random.default_rng(1).integers(0, 256, card.results.size)
    wanted = card.weights.copy()
    for (table, row), slot in zip(rows, targets, strict=True):
        known = card.tables[table]
        start = (known.weights & 0xFFFF_FFFF) + row * known.stride
        wanted[start:start + known.row_bytes] = card.results[
            16 + 112 * slot:16 + 112 * slot + known.row_bytes]
    done = card.run("move", opcode=Opcode.SCATTER, rows=card.address("results", 16), **operands)
    assert (done["status"], done["entries"]) == (Status.OK, 4)
    assert done["bytes"] == 96 + 64 + 16 + 96
    assert (card.weights == wanted).all()
    done = card.run("move", opcode=Opcode.GATHER, destination=card.address("results", 8192),
                    **operands)
    assert done["status"] == Status.OK
    for slot, size in zip(targets, (96, 64, 16, 96), strict=True):
        assert (card.results[8192 + 112 * slot:][:size] == card.results[16 + 112 * slot:][:size]
                ).all()


def test_scatter_moves_state_and_the_last_of_equal_rows_stays(card):
    rows = [(0, 4), (2, 3), (0, 4)]
    card.results[:] = np.random.default_rng(2).integers(0, 256, card.results.size)
    before = card.state.copy()
    done = card.run("move", opcode=Opcode.SCATTER, source=card.put_rows(rows), count=3, stride=64,
                    rows=card.address("results"), flags=GatherFlag.STATE,
                    state_rows=card.address("results", 4100))
    assert (done["status"], done["entries"], done["bytes"]) == (
        Status.OK, 3, 64 + 16 + 64 + 8 + 4 + 8)
    assert (card.weights[256:320] == card.results[128:192]).all()
    before[32:40] = card.results[4100 + 16:4100 + 24]  # slot 2 of 8 bytes
    before[2048 + 12:2048 + 16] = card.results[4104:4108]  # slot 1 of 4 bytes
    assert (card.state == before).all()
