"""Every C function of the library, called with sizes, pointers and contents that no caller passes.

A call refuses them or is right, whatever the border in Python lets through: `test_sanitizers` runs
these calls with a sanitizer, too.
"""

import ctypes
import re
from itertools import combinations

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.ids import index
from hotrow.kernels import library as passes
from hotrow.kernels import native
from hotrow.kernels.library import Bags, Integers, Table

LARGEST = {ctypes.c_int64: (1 << 63) - 1, ctypes.c_int32: (1 << 31) - 1}  # c_int is c_int32
ARGUMENTS = {**passes.ARGUMENTS, **index.ARGUMENTS}
EXTREMES = (-1, -(1 << 63), (1 << 63) - 1, 1 << 31, -(1 << 31))


def ints(*values):
    return np.array(values, np.int64)


def zeros(count, dtype=np.int64):
    return np.zeros(count, dtype)


def table(**fields):
    return Table, dict(data=zeros((6, 16), np.float32), rows=6, stride=16, dim=16, type=0) | fields


def bags(lookups=5, **fields):
    return Bags, dict(lengths=(Integers, dict(lengths=ints(2, 1, 0, 2), wide=1)), weights=None,
                      mean=None, columns=ints(0, 16), features=2, samples=2, lookups=lookups,
                      row_stride=32) | fields


def id_map(**fields):
    state, index_entries = zeros(9, index.ROW), zeros(21, index.ENTRY)
    state[1:4] = [(5, 1, 1), (6, 1, 1), (7, 1, 2)]
    made = index._Map(state.ctypes.data, index_entries.ctypes.data, state.ctypes.data, 9, 21, 0, 4,
                      3, 1)
    assert index.declared(native.native_library(), index.ARGUMENTS).id_map_rebuild(
        ctypes.byref(made)) == 0
    return index._Map, dict(state=state, index=index_entries, free=zeros(9, np.int32), rows=9,
                            buckets=21, free_count=0, fresh=4, used=3, seed=1) | fields


def whole(*values, name="slots"):
    return Integers, {name: ints(*values), "wide": 1}


KEYS = np.array([3, 1 << 32 | 4, 3, 1 << 32 | 5], np.uint64)
WORDS = np.array([3, 4, 70, 5], np.uint32)
# A sound call of each function, by the names of its arguments.
CALLS = {
    "group": lambda: dict(slots=whole(3, 1, 3, 2), rows=2, columns=2, row_stride=2, column_stride=1,
                          keys=4, table=zeros(4, np.int32), numbers=zeros(4, np.int32),
                          distinct=zeros(4), counts=zeros(4, np.int32)),
    "number_keys": lambda: dict(keys=KEYS.copy(), count=4, table=zeros(8, np.int32), mask=7,
                                numbers=zeros(4), first=zeros(4)),
    "pool_forward": lambda: dict(table=table(), bags=bags(), slots=whole(0, 5, 2, 2, 1),
                                 feature_stride=0, sample_stride=0,
                                 pooled=zeros((2, 32), np.float32), threads=2),
    "pool_backward": lambda: dict(gradients=zeros((2, 32), np.float32), bags=bags(),
                                  numbers=ints(0, 1, 0, 2, 2).astype(np.int32),
                                  counts=ints(2, 1, 2).astype(np.int32), distinct=3, dim=16,
                                  sums=zeros((3, 16), np.float32), threads=2),
    "update": lambda: dict(table=table(), state=np.ones(6, np.float32), state_stride=1,
                           slots=whole(3, 1, 2), count=3, gradients=np.ones((3, 16), np.float32),
                           rule=1, lr=0.1, eps=0.1, threads=2),
    "first_not_finite": lambda: dict(rows=zeros((3, 5), np.float32), count=3, dim=5),
    "flatten_ids": lambda: dict(ids=whole(1, 0, 2), size=3, features=2, begin=ints(0, 1),
                                counts=ints(1, 2), stride=1, rows=ints(4, 4),
                                flat=zeros(3), room=3, flat_wide=1),
    "copy_rows": lambda: dict(target=zeros((4, 8), np.uint8), target_rows=4, target_stride=8,
                              to=whole(3, 1, name="to"), source=zeros((5, 9), np.uint8),
                              source_rows=5, source_stride=9, start=whole(4, 4, name="start"),
                              count=2, bytes=8, threads=2),
    "place_slots": lambda: dict(slots=WORDS.copy(), count=4, directory=64, flag=0, choice_log2=5,
                                part=32, first=0, area=ints(*range(64, 72)), area_rows=8,
                                places=zeros(4, np.int32)),
    "select_rows": lambda: dict(keys=KEYS.copy(), slots=WORDS.copy(), count=4, tables=2,
                                group_of=zeros(2, np.int32), first=ints(0, 10), group=0,
                                directory=64, flat=zeros(4), chosen=zeros(4, np.uint32),
                                having=zeros(2), lacking=zeros(2)),
    "locate_rows": lambda: dict(flat=ints(3, 12, 4), count=3, first=ints(0, 10), tables=2, number=1,
                                entries=zeros((3, 2), np.uint32)),
    "assign_slots": lambda: dict(places=ints(3, 1).astype(np.int32), flat=ints(7, 8), count=2,
                                 slots=4, held=zeros(4), wide=1, dirty=zeros(4, np.uint8)),
    "read_rows": lambda: dict(base=zeros((6, 4), np.float32), bytes=16, total=6,
                              rows=whole(5, 1, name="rows"), count=2, spans=ints(0, 2, 4, 6),
                              span_count=2),
    "mark_dirty": lambda: dict(places=whole(3, 9, name="places"), count=2, slots=4,
                               dirty=zeros(4, np.uint8), others=zeros(2)),
    "id_map_find": lambda: dict(map=id_map(), ids=np.array([5, 9], np.uint64), count=2, batch=3,
                                rows=zeros(2), threads=2),
    "id_map_rebuild": lambda: dict(map=id_map()),
    "id_map_add": lambda: dict(map=id_map(), ids=np.array([8, 9], np.uint64),
                               counts=np.ones(2, np.uint32), count=2, batch=3, rows=zeros(2)),
    "id_map_expire": lambda: dict(map=id_map(), done=2, before=2, below=0, by_count=0, most=3,
                                  rows=zeros(3), ids=zeros(3, np.uint64)),
    "id_map_count": lambda: dict(sketch=zeros((4, 8), np.uint16), width=8, seed=1,
                                 ids=np.array([8, 9], np.uint64), counts=np.ones(2, np.uint32),
                                 count=2, estimates=zeros(2, np.uint32)),
}
# By which a call refuses its lists.
CODES = {"pool_forward": -1, "pool_backward": -1, "flatten_ids": -2, "locate_rows": -1}
OPTIONAL = {"lengths", "start", "to"}  # may be null
NO_SIZES = {"place_slots first", "seed"}  # neither sizes nor strides
NO_MEMORY = {"directory", "most"}  # limits, which may be large
# Contents that the library, or the module that calls it, computes.
INNER = {"index", "state", "columns", "having", "lacking"}


@pytest.fixture(scope="module")
def library():
    try:
        loaded = native.native_library()
    except Error as error:
        pytest.skip(str(error))
    for types in (passes.ARGUMENTS, index.ARGUMENTS):
        passes.declared(loaded, types)
    return loaded


def leaves(arguments, types):
    """(dict, name, type) of each number and array, within structures, too."""
    for (name, value), kind in zip(list(arguments.items()), types, strict=True):
        if isinstance(value, tuple):
            yield from leaves(value[1], [kind for _, kind in value[0]._fields_])
        else:
            yield arguments, name, kind


def call(library, name, arguments):
    """The result, or None where the call is refused."""
    kept = []

    def packed(value):
        if isinstance(value, tuple):
            kept.append(value[0](*map(packed, value[1].values())))
            return kept[-1]
        return value.ctypes.data if isinstance(value, np.ndarray) else value

    given = [ctypes.byref(each) if isinstance(each, ctypes.Structure) and not isinstance(
        each, Integers) else each for each in map(packed, arguments.values())]
    try:
        found = getattr(library, name)(*given)
    except Error:
        return None
    return None if found == CODES.get(name) else found


def arrays(name, arguments):
    return [holder[key].copy() for holder, key, _ in leaves(arguments, ARGUMENTS[name])
            if isinstance(holder[key], np.ndarray)]


def spoils(name):
    """(names of a changed argument, change, whether the call must be refused)"""
    for at, (holder, key, kind) in enumerate(leaves(CALLS[name](), ARGUMENTS[name])):
        named, value = {key, f"{name} {key}"}, holder[key]
        if isinstance(value, np.ndarray):
            yield at, key, None, not named & OPTIONAL
        elif kind in LARGEST and kind is ctypes.c_int64 and not named & NO_SIZES:
            for wrong in (-1, -LARGEST[kind] - 1):
                yield at, key, wrong, True
            yield at, key, LARGEST[kind], not named & NO_MEMORY
            yield at, key, 0, False
        elif kind in LARGEST:
            for wrong in (-1, 0, -LARGEST[kind] - 1, LARGEST[kind]):
                yield at, key, wrong, key in ("type", "rule") and wrong != 0
        elif kind in (ctypes.c_uint32, ctypes.c_uint64):
            for wrong in (0, (1 << 8 * ctypes.sizeof(kind)) - 1):
                yield at, key, wrong, False


def test_each_function_is_called():
    defined = re.findall(r'extern "C" \w+ (\w+)', "".join(
        path.read_text() for path in native.sources()))
    assert sorted(defined) == sorted(CALLS) == sorted(ARGUMENTS)


@pytest.mark.parametrize("name", CALLS)
def test_a_sound_call(library, name):
    assert call(library, name, CALLS[name]()) in (0, -1, 1, 2, 3, 4)


@pytest.mark.parametrize("name", CALLS)
def test_sizes_and_pointers(library, name):
    for at, key, wrong, refused in spoils(name):
        arguments = CALLS[name]()
        list(leaves(arguments, ARGUMENTS[name]))[at][0][key] = wrong
        before = arrays(name, arguments)
        found = call(library, name, arguments)
        assert found is None or not refused, f"{name}: {key} = {wrong} gives {found}"
        if found is None:
            assert all(map(np.array_equal, before, arrays(name, arguments))), f"{name}: {key}"


@pytest.mark.parametrize("name, structure, stride, least", [
    ("pool_forward", "bags", "row_stride", 32), ("copy_rows", None, "target_stride", 8)])
def test_rows_that_are_written_share_no_memory(library, name, structure, stride, least):
    for value in (0, least - 1, least):
        arguments = CALLS[name]()
        (arguments[structure][1] if structure else arguments)[stride] = value
        assert (call(library, name, arguments) is None) == (value < least), value


@pytest.mark.parametrize("columns, row_stride, apart", [
    ((16, 0), 32, True), ((0, 15), 32, False), ((0, 17), 32, False), ((-1, 16), 32, False),
    ((0, 32), 16, True), ((0, 31), 16, False), ((0, 48), 32, True), ((0, 33), 32, False)])
def test_pooled_bags_share_no_memory(library, columns, row_stride, apart):
    """Features in one row for each sample, or one after the other."""
    arguments = CALLS["pool_forward"]()
    arguments["bags"][1].update(columns=ints(*columns), row_stride=row_stride)
    arguments["pooled"] = np.full(128, np.nan, np.float32)
    assert (call(library, "pool_forward", arguments) is not None) == apart
    assert np.count_nonzero(~np.isnan(arguments["pooled"])) == (64 if apart else 0)


@pytest.mark.parametrize("name, written, read", [
    ("pool_forward", "pooled", "data"), ("pool_backward", "sums", "gradients"),
    ("copy_rows", "target", "source"), ("update", "data", "gradients"), ("update", "data", "state"),
    ("update", "state", "gradients")])
@pytest.mark.parametrize("first", [0, 4, 1024])
def test_what_is_written_is_not_read(library, name, written, read, first):
    """The array that is written begins `first` bytes after the other."""
    arguments, memory = CALLS[name](), np.zeros(4096, np.uint8)
    for at, array in ((first, written), (0, read)):
        holder = next(holder for holder, key, _ in leaves(arguments, ARGUMENTS[name])
                      if key == array)
        holder[array] = memory[at:].view(holder[array].dtype)
    assert (call(library, name, arguments) is None) == (first < 1024)


def test_columns_of_one_array_may_be_read_and_written(library):
    arguments, memory = CALLS["copy_rows"](), np.arange(64, dtype=np.uint8).reshape(4, 16)
    arguments |= dict(target=memory[:, 8:], target_stride=16, source=memory, source_rows=4,
                      source_stride=16, start=whole(3, 2, name="start"))
    assert call(library, "copy_rows", arguments) == 0
    assert (memory[[3, 1], 8:] == [range(48, 56), range(32, 40)]).all()
    assert call(library, "copy_rows", arguments | dict(target=memory[:, 7:])) is None


@pytest.mark.parametrize("name", CALLS)
def test_two_at_a_time(library, name):
    for one, other in combinations(spoils(name), 2):
        arguments = CALLS[name]()
        for at, key, wrong, _ in (one, other):
            list(leaves(arguments, ARGUMENTS[name]))[at][0][key] = wrong
        found = call(library, name, arguments)
        assert found is None or not (one[3] or other[3]) or one[0] == other[0] or (
            0 in (one[2], other[2])), f"{name}: {one} and {other} give {found}"


@pytest.mark.parametrize("name", CALLS)
def test_contents(library, name):
    random = np.random.default_rng(1)
    for at, (_, key, _) in enumerate(leaves(CALLS[name](), ARGUMENTS[name])):
        for wrong in EXTREMES * 4:
            arguments = CALLS[name]()
            holder = list(leaves(arguments, ARGUMENTS[name]))[at][0]
            if isinstance(holder[key], np.ndarray) and holder[key].dtype.kind in "iu" and (
                    key not in INNER):
                flat = holder[key].reshape(-1)
                flat[random.integers(flat.size)] = np.array([wrong]).astype(flat.dtype)[0]
                call(library, name, arguments)
