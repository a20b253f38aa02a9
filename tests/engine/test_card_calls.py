"""The C functions of the card, called with what `CpuTransport` does not pass."""

import ctypes
import subprocess
import sys
from dataclasses import replace
from time import monotonic

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.contract.generated import check_geometry
from hotrow.contract.geometry import PRESETS
from hotrow.kernels.native import native_library
from hotrow.transports import cpu

TINY = PRESETS["tiny"]
FAULT, STATUS = cpu.REGISTERS["FAULT"], cpu.REGISTERS["STATUS"]


@pytest.fixture(scope="module")
def library():
    try:
        return cpu._bound(ctypes.CDLL(native_library()._name))
    except Error as error:
        pytest.skip(str(error))


def opened(library, geometry, threads=1):
    fields = cpu._Geometry(*(int(getattr(geometry, name)) for name in cpu.GEOMETRY_FIELDS))
    return library.card_open(ctypes.byref(fields), threads)


@pytest.fixture
def card(library):
    made = opened(library, TINY, threads=2)
    yield made
    library.card_close(made)


@pytest.mark.parametrize("name", cpu.GEOMETRY_FIELDS)
def test_a_card_opens_within_the_limits_of_its_parameters(library, name):
    usual = int(getattr(TINY, name))
    for value in {0, 1, 2, 3, max(0, usual - 1), usual, usual + 1, 2 * usual, 1 << 31,
                  (1 << 32) - 1}:
        flag = isinstance(getattr(TINY, name), bool) and value < 2
        geometry = replace(TINY, **{name: bool(value) if flag else value})
        try:
            check_geometry(geometry)
        except ValueError:
            sound = name == "clock_mhz" or (name == "row_bytes" and value == 2 * usual)
        else:
            sound = True
        made = opened(library, geometry)
        library.card_close(made)
        assert bool(made) == sound, f"{name} = {value}"


@pytest.mark.parametrize("threads", [0, -1, -(1 << 31), (1 << 31) - 1])
def test_a_number_of_threads_that_no_card_has(library, threads):
    assert not opened(library, TINY, threads)


def test_threads_that_cannot_start_end_no_process(library):
    script = """
import resource, sys
from hotrow.contract.geometry import PRESETS
from hotrow.transports.cpu import CpuTransport
CpuTransport(PRESETS["tiny"], 1).close()  # loads the library
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for room in range(30):
    resource.setrlimit(resource.RLIMIT_AS, (size + (room << 24), -1))
    try:
        CpuTransport(PRESETS["tiny"], 200).close()
    except RuntimeError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "memory or threads ran out" in done.stdout


def test_no_card(library):
    library.card_write_register(None, FAULT, 1)
    library.card_map(None, 1 << 16, None, 0, 1)
    library.card_unmap(None, 1 << 16)
    library.card_wait(None, 0, 0, 1.0)
    library.card_close(None)
    assert library.card_plan(None, 0, None, 1, None, None) == 0
    assert library.card_read_register(None, STATUS) == 0
    assert not library.card_open(None, 1)


def test_waits_of_any_length_end(library, card):
    begin = monotonic()
    for seconds in (float("nan"), -1.0, float("-inf"), 0.0, 1e300, float("inf")):
        for queue in (0, 1, 2, (1 << 32) - 1):
            library.card_wait(card, queue, 1, seconds)  # nothing is under way: no wait is long
    assert monotonic() - begin < 60


def test_arrays_that_cannot_be(library, card):
    memory = np.zeros(64, np.uint8)
    for address, data, size in ((1 << 16, None, 0), (1 << 17, None, 64), (1 << 18, memory, 0),
                                ((1 << 64) - 32, memory, 64), ((1 << 64) - 1, memory, 1 << 63)):
        library.card_map(card, address, None if data is None else data.ctypes.data, size, 1)
    library.card_unmap(card, 12345)
    for offset in (*range(0, 0x1000, 4), 1, (1 << 32) - 1):
        for value in (0, (1 << 32) - 1):
            library.card_write_register(card, offset, value)
            library.card_read_register(card, offset)
    assert library.card_read_register(card, STATUS) & 1 and not memory.any()
