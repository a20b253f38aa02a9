"""Slots and the end of the log in a limit of memory."""

import pytest
from hotrow import Error
from hotrow.tables import Table, plan_memory
from hotrow.tables.memory import SLOT_BYTES, memory_bytes, most_resident, resident_bytes

TABLE = Table("item", 1 << 26, 16)


@pytest.mark.parametrize("limit", ["640MB", "2GB", 10**10])
@pytest.mark.parametrize("state", [None, "row"])
def test_parts_fill_the_limit(limit, state):
    tables = [TABLE, Table("user", 10**6, 64, state=state)]
    plan = plan_memory(limit, tables, process=224 << 20)
    assert plan.total <= plan.limit == memory_bytes(limit)
    assert plan.slots & plan.slots - 1 == 0 and plan.tail >= 16 << 20
    assert plan.slot_bytes == plan.slots * (256 + SLOT_BYTES + 4 * (state == "row"))
    more = plan.total + plan.slot_bytes
    assert more > plan.limit - (16 << 20), "twice the slots do not fit"
    assert plan.index >= sum(table.rows for table in tables) * 20 // 8


def test_a_limit_that_is_too_low_names_the_least():
    with pytest.raises(Error, match="too little for tables of 67,108,864 rows") as found:
        plan_memory("300MB", [TABLE], process=224 << 20)
    least = int(str(found.value).split("give ")[1].split(" MB")[0].replace(",", ""))
    assert plan_memory(least * 10**6, [TABLE], process=224 << 20).slots == 1 << 14
    with pytest.raises(Error, match="too little"):
        plan_memory((least - 1) * 10**6, [TABLE], process=224 << 20)


@pytest.mark.parametrize("given", ["", "12 apples", "-3MB", True, None, 3.5j])
def test_what_is_no_size(given):
    with pytest.raises(Error, match="expected a size of memory"):
        memory_bytes(given)


def test_sizes():
    assert [memory_bytes(each) for each in (7, "7", "7B", "1.5 kb", "2GiB")] == [
        7, 7, 7, 1500, 2 << 30]


def test_small_tables_take_less_than_the_limit():
    plan = plan_memory("8GB", [Table("item", 4000, 16)], process=0)
    assert plan.slots == 1 << 14 and plan.tail == 16 << 20 and plan.total < 50 << 20


def test_a_limit_of_the_tables_says_what_the_process_adds():
    whole, alone = (plan_memory("640MB", [TABLE], process=process) for process in (224 << 20, 0))
    assert "process 235" in str(whole) and whole.beside == 0
    assert alone.total > 600e6 and "process" not in str(alone).split(";")[0]
    beside = alone.beside / 1e6
    assert f"the rest of the process comes on top: {beside:,.0f} so far" in str(alone)
    assert 0 < beside <= most_resident(lambda: None) / 1e6 + 1


def test_the_most_memory_of_a_call_is_measured():
    before = resident_bytes()
    most = most_resident(lambda: bytearray(b"1" * (64 << 20)))
    assert 56 << 20 <= most - before < 200 << 20  # some of `before` may be free again
    assert most_resident(lambda: None) < most - (32 << 20)
