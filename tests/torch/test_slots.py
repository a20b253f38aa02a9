"""SlotStorage: which row is in which slot, beside a dict."""

import pytest
import torch
from hotrow.torch.memory import slots as module
from hotrow.torch.memory.rows import RowKind
from hotrow.torch.memory.slots import SlotStorage

SLOTS = 50


@pytest.mark.parametrize("flat_rows, width", [(1 << 31, 8), ((1 << 31) - 1, 4)])
def test_rows_come_and_go(monkeypatch, flat_rows, width):
    monkeypatch.setattr(module, "_MOST", 7)
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
            storage.empty(slots)
        else:
            free = [each for each in candidates.tolist() if each not in expected.values()]
            rows = torch.tensor(free)[torch.randperm(len(free), generator=generator)[:len(slots)]]
            storage.place(rows, slots)
            expected |= dict(zip(slots.tolist(), rows.tolist()))
        storage.dirty[slots[:3]] = storage.held[slots[:3]] >= 0
        asked = candidates[torch.randperm(200, generator=generator)[:step]]
        where, found = storage.find(asked)
        slot_of = {row: slot for slot, row in expected.items()}
        assert dict(zip(asked[where].tolist(), found.tolist())) == {
            row: slot_of[row] for row in asked.tolist() if row in slot_of}, (seed, step)
        assert storage.count == len(expected) == len(storage.hot)
        assert storage.hot.tolist() == sorted(slot_of)
        assert storage.hot_slots.tolist() == [slot_of[row] for row in sorted(slot_of)]
        pairs = [pair for rows, here in storage.in_slots()
                 for pair in zip(here.tolist(), rows.tolist())]
        assert pairs == sorted(expected.items())
        dirty = [slot for _, here in storage.in_slots(dirty=True) for slot in here.tolist()]
        assert dirty == torch.nonzero(storage.dirty).squeeze(1).tolist()
        assert all(len(here) <= 7 for _, here in storage.in_slots())
    storage.empty()
    assert not storage.count and not len(storage.find(candidates)[0])


def test_what_tells_where_rows_are_is_small():
    storage = SlotStorage(1 << 12, 0, RowKind(4), 1 << 20)
    storage.place(torch.arange(1 << 12), torch.arange(1 << 12))
    assert storage.metadata_bytes == 5 << 12
    storage.find(torch.tensor([3]))
    assert storage.metadata_bytes == 9 << 12
