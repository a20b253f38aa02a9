"""SlotStorage against a dict from slots to rows."""

import pytest
import torch
from hotrow.torch.memory import slots as module
from hotrow.torch.memory.rows import RowKind, Rows
from hotrow.torch.memory.slot_memory import SlotMemory
from hotrow.torch.memory.slots import SlotStorage

SLOTS = 50


@pytest.mark.parametrize("flat_rows, width", [(1 << 31, 8), ((1 << 31) - 1, 4)])
def test_rows_come_and_go(monkeypatch, flat_rows, width):
    monkeypatch.setattr(module, "_CHUNK", 7)
    seed = 4
    generator = torch.Generator().manual_seed(seed)
    storage, expected = SlotStorage(SLOTS, 0, RowKind(4), flat_rows), {}
    assert storage.held.itemsize == width
    candidates = flat_rows - 1 - torch.arange(200)  # rows of high number
    for step in range(60):
        slots = torch.randperm(SLOTS, generator=generator)[:int(torch.randint(
            1, 12, (), generator=generator))]
        for slot in slots.tolist():
            expected.pop(slot, None)
        if step % 3 == 2:
            storage.clear(slots)
        else:
            free = [each for each in candidates.tolist() if each not in expected.values()]
            rows = torch.tensor(free)[torch.randperm(len(free), generator=generator)[:len(slots)]]
            storage.assign(rows, slots)
            expected |= dict(zip(slots.tolist(), rows.tolist(), strict=True))
        storage.dirty[slots[:3]] = storage.held[slots[:3]] >= 0
        asked = candidates[torch.randperm(200, generator=generator)[:step]]
        where, found = storage.find(asked)
        slot_of = {row: slot for slot, row in expected.items()}
        assert dict(zip(asked[where].tolist(), found.tolist(), strict=True)) == {
            row: slot_of[row] for row in asked.tolist() if row in slot_of}, (seed, step)
        assert storage.count == len(expected) == len(storage.resident)
        assert storage.resident.tolist() == sorted(slot_of)
        assert storage.resident_slots.tolist() == [slot_of[row] for row in sorted(slot_of)]
        pairs = [pair for rows, here in storage.chunks()
                 for pair in zip(here.tolist(), rows.tolist(), strict=True)]
        assert pairs == sorted(expected.items())
        dirty = [slot for _, here in storage.chunks(dirty=True) for slot in here.tolist()]
        assert dirty == torch.nonzero(storage.dirty).squeeze(1).tolist()
        assert set(dirty) <= expected.keys(), "a free slot is not dirty"
        assert all(len(here) <= 7 for _, here in storage.chunks())
    storage.clear()
    assert not storage.count and not len(storage.find(candidates)[0])
    assert not list(storage.chunks(dirty=True))


def test_what_tells_where_rows_are_is_small():
    storage = SlotStorage(1 << 12, 0, RowKind(4), 1 << 20)
    storage.assign(torch.arange(1 << 12), torch.arange(1 << 12))
    assert storage.metadata_bytes == 5 << 12
    storage.find(torch.tensor([3]))
    assert storage.metadata_bytes == 9 << 12


@pytest.mark.parametrize("room", [1 << 16, 4], ids=["in place", "elsewhere"])
def test_a_storage_with_more_room_keeps_the_slots(monkeypatch, room):
    monkeypatch.setattr(module, "_ROOM", room)
    memory = SlotMemory()
    storage = SlotStorage(8, 2, RowKind(4, "row"), 100, memory)
    assert storage.memory is memory
    weights, state = torch.randn(8, 4), torch.rand(8)
    storage.rows.write(slice(8), weights, state)
    storage.assign(torch.tensor([50, 7]), torch.tensor([3, 5]))
    storage.grow(20)
    assert storage.area_rows == 20
    # No tensor holds what is reserved beyond.
    assert storage.rows.array.untyped_storage().nbytes() == 28 * 4 * 4
    assert torch.equal(storage.rows.weights[:8], weights)
    assert torch.equal(storage.rows.state[:8], state)
    assert len(storage.rows.weights) == 28
    where, found = storage.find(torch.tensor([50, 8, 7, 51]))
    assert where.tolist() == [0, 2] and found.tolist() == [3, 5]


def test_rows_in_another_memory_than_the_hosts():
    """Compiled passes are for the host's memory; device "meta" has none."""
    here, there = (Rows(torch.zeros(4, 8, device="meta")) for _ in range(2))
    here.put(torch.tensor([1, 3]), there.take(RowKind(8), torch.tensor([0, 2])))
    here.copy(there, torch.arange(4))
