"""Every argument of every call: the same answer in each form that holds its values, or a refusal
that names it, after which the device works as before."""

from dataclasses import fields, is_dataclass, replace

import hotrow
import numpy as np
import pytest
import torch
from hotrow import Batch
from hotrow.contract.geometry import PRESETS
from hotrow.operands.results import HotRows, RowList

from tests.driver.conftest import DIM, ROWS, cleared, random_ids, usable
from tests.support.border import (
    forms,
    layouts,
    no_integers,
    no_number,
    no_rows,
    refused,
)

CARDS = ("cpu",)  # the host checks
IDS = random_ids(12, seed=4)
BAGS, LENGTHS = np.array([1, 2, 3, 0, 1, 1, 1, 1]), np.array([1, 2, 0, 3, 1, 1])
TABLE, ROW = np.array([0, 1, 2, 0, 1]), np.array([1, 2, 3, 4, 5])
SLOTS, PLACES = np.array([5, 3, 1, 0, 2]), np.array([4, 1])
VALUES = hotrow.empty((8, DIM), np.float32)
VALUES[:] = np.arange(8 * DIM).reshape(8, DIM) / 7
STARTS, ENDS = np.array([0, 1]), np.array([0, 1, 3])


def out():
    made = hotrow.empty((8, DIM), np.float32)
    made[:] = 7
    return made


def weights(device):
    return [table.weights for table in device.tables]


def pooled(device, slots):
    target = out()
    device.pool((TABLE, ROW), [2, 3], out=target, slots=slots)
    return target


def gathered(device, slots):
    target, state = out(), hotrow.empty(8, np.float32)
    state[:] = 3
    return device.gather((TABLE, ROW), out=target, slots=slots, state_out=state), state


# By name: the values of an argument, whether they are rows or places, what a refusal says, and a
# call, whose result is followed by the tables' weights.
INTEGERS = {
    "observe": (IDS, True, "id", lambda d, ids: (d.observe(ids), d.counts())),
    "split": (IDS, True, "id", lambda d, ids: d.split(ids)),
    "plan": (IDS, True, "id", lambda d, ids: np.sort(d.plan(ids).fills.keys)),
    "mark": (IDS, True, "id", lambda d, ids: d.mark(ids, 0)),
    "stage": (IDS, True, "id", lambda d, ids: d.stage(ids).release()),
    "dense": (IDS.T, True, "id", lambda d, ids: d.split(Batch.dense(ids, feature_major=True))),
    "jagged": (BAGS, True, "id", lambda d, ids: d.split(Batch.jagged(ids, LENGTHS, 2))),
    "lengths": (LENGTHS, True, "bag|length", lambda d, lengths: d.split(
        Batch.jagged(BAGS, lengths, 2))),
    "indices": (ROW[:3], True, "id|indices", lambda d, ids: d.split(
        Batch.from_offsets([(ids, STARTS)] * 3))),
    "offsets": (STARTS, True, "offsets", lambda d, offsets: d.split(
        Batch.from_offsets([(ROW[:3], offsets)] * 3))),
    "last offsets": (ENDS, True, "offsets", lambda d, offsets: d.split(
        Batch.from_offsets([(ROW[:3], offsets)] * 3, include_last_offset=True))),
    "keyed values": (BAGS, True, "id", lambda d, ids: d.split(
        Batch.from_keyed_jagged(ids, LENGTHS, ("t0", "t1", "t2")))),
    "keyed lengths": (LENGTHS, True, "bag|length|batch", lambda d, lengths: d.split(
        Batch.from_keyed_jagged(BAGS, lengths, ("t0", "t1", "t2")))),
    **{f"{call} row": (ROW, True, "row", lambda d, row, call=call: getattr(d, call)((TABLE, row)))
       for call in ("install", "remove", "gather")},
    **{f"{call} table": (TABLE, True, "table", lambda d, table, call=call: getattr(d, call)(
        (table, ROW))) for call in ("install", "remove", "gather")},
    "RowList": (ROW, True, "row|table", lambda d, row: d.remove(RowList(TABLE, row))),
    "gather slots": (SLOTS, True, "slot", gathered),
    "scatter rows": (ROW, True, "row", lambda d, row: d.scatter((TABLE, row), VALUES).cycles * 0),
    "scatter slots": (SLOTS, True, "slot", lambda d, slots: d.scatter(
        (TABLE, ROW), VALUES, slots).cycles * 0),
    "pool rows": (ROW, True, "row", lambda d, row: d.pool((TABLE, row), [2, 3])),
    "pool lengths": ([2, 3], True, "length|bag", lambda d, lengths: d.pool((TABLE, ROW), lengths)),
    "pool offsets": ([0, 3], True, "offsets", lambda d, offsets: d.pool(
        (TABLE, ROW), offsets=offsets)),
    "pool slots": (PLACES, True, "slot", pooled),
    "update rows": (ROW, True, "row", lambda d, row: d.update(
        (TABLE, row), VALUES, 0.5).cycles * 0),
    "update slots": (SLOTS, True, "slot", lambda d, slots: d.update(
        (TABLE, ROW), VALUES, 0.5, slots=slots).cycles * 0),
    "counted rows": (ROW, True, "row", lambda d, row: (
        d.set_counts(HotRows(TABLE, row, ROW, 0)), d.counts())),
    "counts": (ROW, False, "count", lambda d, count: (
        d.set_counts(HotRows(TABLE, ROW, count, 0)), d.counts())),
}


@pytest.fixture
def made(device):
    """Makes the device's three tables once more, with state."""
    def make():
        cleared(device)
        for number, rows in enumerate(ROWS):
            table, state = hotrow.empty((rows, DIM), np.float32), hotrow.empty(rows, np.float32)
            table[:] = np.arange(rows * DIM).reshape(rows, DIM) + 1000 * number
            state[:] = number
            device.register_table(table, f"t{number}", state)
        return device
    return make


def facts(result):
    """What a call returned, to compare."""
    if is_dataclass(result):
        return [facts(getattr(result, field.name)) for field in fields(result)
                if field.name not in ("cycles", "end", "tables")]
    if isinstance(result, (tuple, list)):
        return [facts(one) for one in result]
    return np.asarray(result).tolist()


def answer(device, call, given):
    result = facts(call(device, given))
    return result, facts(weights(device))


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_in_every_form(made, name):
    values, _, _, call = INTEGERS[name]
    expected = answer(made(), call, np.array(values))
    for form, given in forms(values):
        assert answer(made(), call, given) == expected, form


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("name", INTEGERS)
def test_what_is_no_integer_is_refused(made, name):
    values, rows, what, call = INTEGERS[name]
    device = made()
    before, rest = facts(weights(device)), device.statistics
    wrong = [*no_integers(values), ("empty", np.array(values)[:0])]
    for form, given in [*wrong, *no_rows(values)] if rows else wrong:
        with refused(what, name, form):
            call(device, given)
        assert device.statistics == rest and facts(weights(device)) == before, form
    assert usable(device, device.tables)


NUMBERS = {
    "shift": lambda d, value: d.decay(value), "k": lambda d, value: d.harvest(value),
    "threshold": lambda d, value: d.harvest(5, value),
    "number": lambda d, value: d.plan(IDS, value),
    "number of a mark": lambda d, value: d.mark(IDS, value),
    "number retired": lambda d, value: d.retire(value),
    "event": lambda d, value: d.signal(value, 1, queue="move"),
    "value": lambda d, value: d.write_event(0, value),
    "event read": lambda d, value: d.read_event(value),
    "samples": lambda d, value: Batch.jagged(BAGS, LENGTHS, value),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number_is_refused(made, name):
    device = made()
    before = device.statistics
    beyond = [] if name == "value" else [(str(value), value) for value in (-2, 1 << 70)]
    for form, value in [*no_number(), *beyond]:
        with refused(name.split()[0].replace("number", "number|batch"), name, form):
            NUMBERS[name](device, value)
    assert device.statistics == before
    assert usable(device, device.tables)


def no_floats(shape):
    """What is no array of float32 of that shape, by name."""
    values = np.ones(shape, np.float32)
    yield from ((str(dtype), values.astype(dtype)) for dtype in (
        bool, int, float, complex, object, "S4"))
    yield from (("a number", 1.0), ("no dimension", np.float32(1)), ("None", None),
                ("text", "x"), ("a dict", {}), ("a list of text", ["x"]), ("ragged", [[1], [1, 2]]))
    yield from (("another dimension", values[None]), ("empty", values[:0]), ("short", values[:1]))
    yield "meta", torch.ones(shape, device="meta")
    yield "sparse", torch.ones(shape).to_sparse()
    if len(shape) > 1:
        yield "narrow", values[:, 1:]


def written(values):
    """Arrays of the shape that no row can be written to, by name."""
    read_only = np.ones_like(values)
    read_only.flags.writeable = False
    yield "read-only", read_only
    yield "shared rows", np.lib.stride_tricks.as_strided(np.ones(DIM, np.float32), values.shape,
                                                         (0, 4))
    yield "an expanded tensor", torch.ones(1, DIM).expand(values.shape)


FLOATS = {
    "out": (written, lambda d, given: d.gather((TABLE, ROW), given)),
    "state_out": (None, lambda d, given: d.gather((TABLE, ROW), VALUES.copy(), state_out=given)),
    "out of pool": (written, lambda d, given: d.pool((TABLE, ROW), [2, 3], out=given)),
    "values": (None, lambda d, given: d.scatter((TABLE, ROW), given)),
    "state": (None, lambda d, given: d.scatter((TABLE, ROW), VALUES, state=given)),
    "gradients": (None, lambda d, given: d.update((TABLE, ROW), given, 0.5)),
    "weights": (None, lambda d, given: d.pool((TABLE, ROW), [2, 3], weights=given)),
}


@pytest.mark.parametrize("name", FLOATS)
def test_what_are_no_rows_is_refused(made, name):
    device, (more, call) = made(), FLOATS[name]
    before = facts(weights(device))
    shape = (5,) if name in ("weights", "state", "state_out") else (5, DIM)
    optional = name not in ("values", "gradients")
    for form, given in [*no_floats(shape), *(more(np.ones(shape, np.float32)) if more else ())]:
        if (form == "None" and optional) or (name == "weights" and form in (str(float), "object")):
            continue
        with refused(name.split()[0].replace("_out", ""), name, form):
            call(device, given)
        assert facts(weights(device)) == before, form
    assert usable(device, device.tables)


@pytest.mark.parametrize("name", ["values", "gradients", "weights"])
def test_rows_in_every_layout(made, name):
    call, shape = FLOATS[name][1], (5,) if name == "weights" else (5, DIM)
    values = np.random.default_rng(1).random(shape, np.float32)

    def outcome(given):
        device = made()
        return facts(call(device, given)) and facts(weights(device))

    expected = outcome(values)
    for form, given in layouts(values):
        assert outcome(given) == expected, form


SPANS = {"fill": lambda d, given: d.fill(given, 1.0),
         "source": lambda d, given: d.copy(given, hotrow.empty(64, np.float32)),
         "destination": lambda d, given: d.copy(hotrow.empty(64, np.float32), given)}


@pytest.mark.parametrize("name", SPANS)
def test_what_is_no_span_is_refused(made, name):
    device, values = made(), np.zeros((64, 2), np.float32)
    read_only = hotrow.empty(64, np.float32)
    read_only.flags.writeable = False
    for form, given in [
            ("spaced", values[:, 0]), ("reversed", values[::-1, 0]), ("empty", values[:0]),
            ("one byte", np.zeros(1, np.int8)), ("None", None), ("text", "x"), ("a number", 1),
            ("objects", values.astype(object)), ("meta", torch.ones(64, device="meta")),
            ("sparse", torch.ones(64).to_sparse()), 
            ("misaligned", hotrow.empty(66, np.uint8)[1:65]),
            *([("read-only", read_only)] if name != "source" else ())]:
        with refused("buffer|source|destination|expected|tensor", name, form):
            SPANS[name](device, given)
    for value in ("x", None, [1, 2], 1j, {}):
        with refused("value", "value of fill", value):
            device.fill(hotrow.empty(64, np.float32), value)
    for value, dtype in ((300, np.uint8), (-1, np.uint16), (1e39, np.float32)):
        with refused("value", "value of fill", value):
            device.fill(hotrow.empty(64, dtype), value)
    assert usable(device, device.tables)


REGISTERED = {
    "weights": lambda d, given: d.register_table(given, "x"),
    "state": lambda d, given: d.register_table(hotrow.empty((5, DIM), np.float32), "x", given),
    "buffer": lambda d, given: d.register(given),
    "partition": lambda d, given: d.register_table(
        hotrow.empty((5, DIM), np.float32), "x", partition=given),
}


@pytest.mark.parametrize("name", REGISTERED)
def test_what_cannot_be_registered_is_refused(made, name):
    device = made()
    shape, tables = (5, DIM) if name == "weights" else (5,), device.tables
    given = {
        "partition": [(repr(value), value) for value in (
            None, 1, (1, 1), (0, 3), (-1, 2), (0.5, 1), ("a", "b"), (0, 1 << 70), (0, 1, 2))],
        "buffer": [("None", None), ("text", "x"), ("empty", np.ones(0)), ("a number", 1),
                   ("objects", hotrow.empty(64, np.int64).astype(object)),
                   ("reversed", np.ones(8)[::-1]), ("meta", torch.ones(8, device="meta"))],
    }.get(name) or [each for each in no_floats(shape) if each[0] not in (
        ("short", "narrow") if name == "weights" else
        ("None", str(int), str(float), str(complex), "S4"))]
    for form, value in given:
        with refused(f"{name}|{'x'!r}|expected|tensor", name, form):
            REGISTERED[name](device, value)
        assert device.tables == tables, form
    assert usable(device, tables)


GEOMETRY = [field.name for field in fields(PRESETS["tiny"]) if field.name != "name"]


@pytest.mark.parametrize("spec", ["model", "cpu"])
@pytest.mark.parametrize("name", GEOMETRY)
def test_geometries_that_no_card_has_are_refused(spec, name):
    for value in (-1, 1 << 40, 2.5, "2", None, 5000):
        with pytest.raises(hotrow.TransportError, match=name):
            hotrow.open(spec, preset=replace(PRESETS["tiny"], **{name: value}))


@pytest.mark.parametrize("options, name", [
    *(({"preset": preset}, "preset|bus_bytes") for preset in (7, "huge", [], object())),
    *(({"slots": slots}, "slots") for slots in (-1, 0, 1.5, "9", 1 << 60)),
    *(({"threads": threads}, "threads") for threads in (0, 2.5, "2", 1 << 40)),
    *(({"ring_entries": entries}, "ring_entries") for entries in (2.0, "4", 1 << 20, -4)),
    *(({"memory_timeout": cycles}, "memory_timeout") for cycles in (-1, 1 << 32, 2.5, None)),
    *(({"timeout": seconds}, "timeout") for seconds in (-1, "1", None, float("nan"))),
    ({"speed": 1}, "speed"),
])
def test_options_of_no_meaning_are_refused(options, name):
    with pytest.raises(hotrow.Error, match=name):
        hotrow.open("cpu", **{"preset": "tiny", **options})


def test_a_closed_device_refuses_every_call():
    for spec in ("model", "cpu"):
        device = hotrow.open(spec, preset="tiny")
        table = device.register_table(hotrow.empty((4, DIM), np.float32))
        device.close()
        for call in (device.cycle, lambda: device.read_event(0), lambda: device.write_event(0, 1),
                     lambda: device.abort_wait(queue="move"), lambda: device.plan_window,
                     lambda: device.retire(0), lambda: device.observe([[1]]),
                     lambda: device.unregister_table(table), lambda: device.stage([[1]])):
            with pytest.raises(hotrow.DeviceError, match="closed"):
                call()
    with pytest.raises(hotrow.DeviceError, match="closed"):
        device.registers.read("CYCLE_LOW")
