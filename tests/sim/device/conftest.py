"""A card with tables and buffers; every test of it runs on the model, in software and on the
RTL."""

from importlib import import_module

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import packed_address
from hotrow_sim.golden.region_check import Table

from tests.support.bare_host import BareHost, aligned

CARDS = "model", "cpu", pytest.param("sim", marks=pytest.mark.slow)
TINY = preset("tiny")  # the one that the default tier builds
HANDLES = {"weights": 8, "state": 9, "lists": 10, "results": 11}
ROWS = (100, 1000, 7)  # of tables 0 to 2
STRIDES, ROW_BYTES, STATE_BYTES = (64, 128, 16), (64, 96, 16), (8, 0, 4)


class Card(BareHost):
    """A `BareHost` with three tables, a read-only buffer for lists and one for results.

    Attributes
    ----------
    weights, state, lists, results : uint8 arrays
        The buffers; `address` returns their addresses.
    tables : list of Table
        As registered.
    """

    def __init__(self, transport):
        super().__init__(transport)
        rng = np.random.default_rng(0)
        offsets = np.cumsum([0, *np.multiply(ROWS, STRIDES)])
        self.weights, self.state = aligned(int(offsets[-1])), aligned(4096)
        self.lists, self.results = aligned(1 << 15), aligned(1 << 15)
        for array in (self.weights, self.state):
            array[:] = rng.integers(0, 256, array.size)
        self.results[:] = 0xEE
        for name, handle in HANDLES.items():
            self.register(handle, getattr(self, name), writable=name != "lists")
        self.tables = [
            Table(ROWS[n] - 1, self.address("weights", int(offsets[n])), ROW_BYTES[n], STRIDES[n],
                  self.address("state", 1024 * n), STATE_BYTES[n])
            for n in range(len(ROWS))]
        for number, table in enumerate(self.tables):
            self.table(number, table)

    def address(self, buffer, offset=0):
        """Packed address of a byte of a buffer, by its name."""
        return packed_address(HANDLES[buffer], offset)

    def put(self, values, offset=0):
        """Write an array to the list buffer; return its packed address."""
        octets = np.ascontiguousarray(values).view(np.uint8).ravel()
        self.lists[offset:offset + octets.size] = octets
        return self.address("lists", offset)

    def put_rows(self, rows, offset=0):
        """Write (table, row) pairs as a list."""
        return self.put(np.array([(row, table) for table, row in rows], np.uint32), offset)

    def result(self, count, offset=0, dtype=np.uint32):
        """`count` values from the result buffer."""
        size = np.dtype(dtype).itemsize * count
        return self.results[offset:offset + size].view(dtype)


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items):
    """Mark the cases long that build another card with a planner, which takes minutes, and on the
    hardware two of four policies."""
    for item in items:
        parameters = getattr(item, "callspec", None) and item.callspec.params
        if parameters and parameters.get("make_planner") == "sim" and (
                "card" in item.fixturenames or parameters.get("config", TINY) != TINY
                or parameters.get("which") in ("rrip", "lfu")):
            item.add_marker(pytest.mark.long)


def open_card(transport, *arguments, **options):
    """The golden model, the software or the RTL."""
    module = {"model": "hotrow_sim.model", "cpu": "hotrow.transports.cpu",
              "sim": "hotrow_sim.verilated.transport"}[transport]
    return import_module(module).open_transport(*arguments, **options)


def open_tiny(transport, **options):
    return open_card(transport, "tiny", **options)


@pytest.fixture
def make_card():
    """The class `Card`, for tests that open their own devices; `last` is the latest card."""
    def make(transport):
        make.last = Card(transport)
        return make.last
    return make


@pytest.fixture(params=CARDS)
def make_planner(request, make_card):
    """Makes a card with a planner from its Config."""
    opened = []

    def make(config):
        opened.append(open_card(request.param, config=config))
        return make_card(opened[-1])
    yield make
    for transport in opened:
        if request.param == "sim":
            assert transport.violations() == []
        transport.close()


@pytest.fixture(params=CARDS)
def card(request):
    transport = open_tiny(request.param)
    yield Card(transport)
    if request.param == "sim":
        assert transport.violations() == []
    transport.close()
