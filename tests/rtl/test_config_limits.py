"""Every parameter of a geometry at its limits, alone and in pairs."""

from collections import Counter
from dataclasses import fields, replace
from functools import cache
from itertools import combinations, product

import pytest
from amaranth.hdl import Fragment
from hotrow_rtl.config import BURST_BEATS, PAGE_BYTES, Config, preset
from hotrow_rtl.contract.encoding import packed_address
from hotrow_rtl.memory.bursts import burst as list_burst
from hotrow_rtl.mover.port.payloads import burst as row_burst
from hotrow_rtl.top import Top

from tests.support.benches.row_bench import TINY, RowBench, Span, compare

BASE = replace(preset("ecp5"), name="limits", counter_sets=128, directory_sets=128,
               miss_entries=128, batch_samples=64, batch_lookups=64)
LIMITS = {
    "bus_bytes": (8, 64), "lookup_lanes": (0, 1), "lane_banks": (1, 2), "address_width": (32, 64),
    "card_memory_log2": (0, 31), "handles": (8, 1 << 16), "tables": (2, 1024),
    "counter_sets": (16, 1 << 24), "counter_ways": (2, 64), "counter_bits": (4, 32),
    "directory_choices": (1, 2),
    "directory_sets": (16, 1 << 24), "directory_ways": (2, 16), "directory_partitions": (1, 64),
    "stamp_bits": (4, 16), "batch_samples": (64, 1 << 20), "batch_lookups": (64, 1 << 31),
    "miss_entries": (32, 1 << 20), "burst_beats": (2, 256), "outstanding": (1, 1024),
    "row_bytes": (64, 4096), "row_ports": (1, 8), "result_ports": (1, 4), "window_beats": (1, 15),
    "events": (2, 256), "arithmetic": (0, 2), "arithmetic_lanes": (0, 16),
    "bag_units": (1, 8), "planner": (False, True), "clock_mhz": (1, 2000)}
POSITIVE = [name for name, member in vars(Config).items() if isinstance(member, property)
            and name not in ("units", "striped_misses", "pools_batches")]


def accepted(changes):
    """The Config with these parameters, or None if it names a reason why there is none."""
    try:
        return replace(BASE, **changes)
    except ValueError as refused:
        assert any(name in str(refused) for name in LIMITS), refused
        return None


def settings():
    """Each parameter at one limit, and each two parameters at one limit of theirs."""
    for count in (1, 2):
        for names in combinations(LIMITS, count):
            for values in product(*map(LIMITS.get, names)):
                yield dict(zip(names, values, strict=True))


@cache
def covering():
    """Accepted geometries in which every accepted pair of limits occurs, the first with most."""
    pairs = {frozenset(changes.items()) for changes in settings() if accepted(changes)}
    found = []
    while pairs:
        chosen = dict(min(pairs, key=sorted))
        occurring = Counter(limit for pair in pairs for limit in pair)
        for limit, _ in sorted(occurring.items(), key=lambda item: (-item[1], item[0])):
            if limit[0] not in chosen and accepted(chosen | dict([limit])):
                chosen |= dict([limit])
        pairs -= {pair for pair in pairs if pair <= chosen.items()}
        found.append(chosen)
    return found


def test_the_limits_are_of_every_parameter():
    assert LIMITS.keys() == {field.name for field in fields(Config)} - {"name"}


@pytest.mark.parametrize("name", [
    name for name in LIMITS if name not in ("lookup_lanes", "planner")])
def test_values_beyond_a_limit_are_refused(name):
    low, high = LIMITS[name]
    for value in (low - 1, high + 1, 2 * high):
        assert accepted({name: value}) is None, value


def test_pairs_of_limits_are_refused_or_whole():
    for changes in settings():
        if config := accepted(changes):
            assert all(getattr(config, name) > 0 for name in POSITIVE), changes
            words = min(PAGE_BYTES, config.row_bytes) // config.bus_bytes
            assert words <= BURST_BEATS, changes
            for burst in (row_burst(config), list_burst(config)):
                assert burst["len_minus_1"].width <= 8, changes


@pytest.mark.parametrize("bus_bytes, row_bytes, burst_beats", [(8, 1024, 8), (16, 4096, 2)])
def test_the_longest_rows_and_shortest_bursts_of_a_bus(bus_bytes, row_bytes, burst_beats):
    limits = {"bus_bytes": bus_bytes, "row_bytes": row_bytes, "burst_beats": burst_beats}
    assert accepted(limits) is not None
    assert accepted(limits | {"row_bytes": 2 * row_bytes}) is None
    assert accepted(limits | {"burst_beats": burst_beats // 2}) is None


@pytest.mark.parametrize("bus_bytes", [8, 16, 32, 64])
def test_the_default_row_fits_every_bus(bus_bytes):
    named = BASE.describe() | {"bus_bytes": bus_bytes}
    del named["row_bytes"]
    assert Config(**named).row_bytes == 1024


@pytest.mark.long
@pytest.mark.parametrize("number", range(12))
def test_accepted_limits_elaborate(number):
    for changes in covering()[number::12] if number > 1 else covering()[number:number + 1]:
        print(changes)
        assert Fragment.get(Top(accepted(changes)), None)


@pytest.mark.slow
@pytest.mark.parametrize("bus_bytes, row_bytes, offset", [
    (8, 1024, 0xFD0), (16, 4096, 4), (64, 4096, 0), *(
        pytest.param(*bus, offset, marks=pytest.mark.long) for bus, offset in (
            ((8, 1024), 0), ((8, 1024), 4), ((16, 4096), 0), ((16, 4096), 0xFD0),
            ((64, 4096), 4), ((64, 4096), 0xFD0)))])
def test_the_longest_rows_are_moved(bus_bytes, row_bytes, offset):
    """Spans of the longest row, from a word's start, within a word, and across a page."""
    config = replace(TINY, name="longest", bus_bytes=bus_bytes, burst_beats=8, row_bytes=row_bytes,
                     directory_sets=256, counter_sets=64)
    compare(RowBench(config), [
        Span(size, packed_address(0, 0xBF0 + offset), packed_address(1, 0x1000))
        for size in (row_bytes - 4, row_bytes)], limit=20000)
