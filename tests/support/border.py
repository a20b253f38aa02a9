"""Arguments as callers hold them: the same values in other forms, and values of no meaning."""

import re
from contextlib import contextmanager

import hotrow
import numpy as np
import pytest
import torch

INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i2", ">i4", ">i8", ">u2", ">u4",
            ">u8")
TENSORS = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32,
           torch.int64, torch.uint64)


def layouts(values):
    """An array in layouts that hold the same values, by name."""
    values = np.asarray(values)
    mirrored = np.ascontiguousarray(np.flip(values))
    read_only = values.copy()
    read_only.flags.writeable = False
    shifted = np.frombuffer(b"-" + values.tobytes(), np.uint8)[1:]
    yield "spaced", np.repeat(values, 2, axis=-1)[..., ::2]
    yield "reversed", mirrored[tuple(slice(None, None, -1) for _ in values.shape)]
    yield "read-only", read_only
    yield "column-major", np.asfortranarray(values)
    yield "not aligned", shifted.view(values.dtype).reshape(values.shape)
    yield "spaced tensor", torch.from_numpy(np.repeat(values, 2, axis=-1))[..., ::2]


def forms(values):
    """Integers below 128 in every form that holds them, by name."""
    values = np.asarray(values, np.int64)
    yield from ((name, values.astype(name)) for name in INTEGERS)
    yield from ((str(dtype), torch.from_numpy(values.copy()).to(dtype)) for dtype in TENSORS)
    yield "list", values.tolist()
    yield from layouts(values)


def no_integers(values):
    """What is no array of integers of the shape of `values`, by name."""
    values = np.asarray(values, np.int64)
    tensor, wide = torch.from_numpy(values.copy()), values.astype(object)
    wide.flat[-1] = 1 << 70
    yield from ((f"{dtype}", values.astype(dtype)) for dtype in (
        bool, float, ">f4", complex, str, "S4", "M8[s]", "m8[s]", [("a", int)]))
    yield from ((f"{dtype}", tensor.to(dtype)) for dtype in (
        torch.bool, torch.float32, torch.bfloat16, torch.complex64))
    yield "NaN", np.full(values.shape, np.nan)
    yield "2**70", wide
    yield "a list with 2**70", wide.tolist()
    yield "sparse", tensor.to_sparse()
    yield "meta", tensor.to("meta")
    yield "nested", torch.nested.nested_tensor(list(torch.atleast_2d(tensor)))
    yield "jagged", torch.nested.nested_tensor(list(torch.atleast_2d(tensor)), layout=torch.jagged)
    yield "ragged", [[1], [1, 2]]
    yield "another dimension", values[None]
    yield from (("text", "1 2"), ("a function", len), ("a dict", {}), ("a set", {1}))
    yield "a generator", (value for value in values.ravel().tolist())


def no_rows(values):
    """Integers of which the last is no row of a small table, by name."""
    for number in (-1, -(1 << 63), (1 << 63) - 1, 1 << 31, (1 << 32) + 1):
        found = np.array(values, np.int64)
        found.flat[-1] = number
        yield str(number), found
    for number in ((1 << 64) - 1, 1 << 63):
        found = np.array(values, np.uint64)
        found.flat[-1] = number
        yield f"uint64 {number}", found


def no_number():
    """What is no whole number, by name."""
    yield from ((repr(value), value) for value in (
        True, 1.5, float("nan"), "1", [1], (), 1j, np.float32(2), np.ones(2, int), torch.ones(3)))


@contextmanager
def refused(what, name, form):
    """The body must raise an error whose message matches `what`."""
    try:
        yield
    except (hotrow.Error, ValueError, TypeError) as error:
        text = str(error)
        assert re.search(what, text), f"{name}, {form}: {error!r}"
    else:
        pytest.fail(f"{name}, {form}: accepted")
