"""Devices for the tests of the driver: one card for each module and kind, cleared between tests."""

import shutil
from collections import Counter
from contextlib import contextmanager

import hotrow
import numpy as np
import pytest
from hotrow import Status
from hotrow.memory.buffer import Held
from hotrow.transports.link import serial_line, udp
from hotrow.transports.link import transport as link_transport

from tests.boards.simulated_board import ECP5, PATIENCE, open_board
from tests.boards.simulated_network import open_board as open_network_board
from tests.driver.links import WHOLE_CARD, declared_transports, model_card
from tests.support.link.serial_card import SerialCard

ROWS = (40, 7, 23)  # of three tables
DIM = 8
STAGING_SHARE = 2048  # pieces of 2 KB on a simulated board
BOARDS = "board", "network"  # simulated boards, at a serial line and in a network
CARDS = "model", "cpu", "sim", "sim-tiny", "pcie", "network"
SLOW, LONG = pytest.mark.slow, pytest.mark.long
MARKS = {kind: [SLOW, LONG] for kind in ("sim", "sim-tiny", "pcie")} | {
    kind: [SLOW, LONG, pytest.mark.nightly] for kind in BOARDS}


def pytest_generate_tests(metafunc):
    """Run the tests of a module over its `CARDS` of cards.

    "pcie" is the RTL with its bridge, "uart" the model at a serial line, "network" the RTL of a
    board in a network. "board", the RTL of one at a serial line, differs in its link alone, so that
    one module of tests suffices. Cases on RTL are long: `tests/sim/device` holds it to the model.
    The cards are of preset tiny, but "sim" of ecp5, whose simulation takes a fourth of the time of
    tiny.
    """
    if "card_kind" in metafunc.fixturenames:
        metafunc.parametrize("card_kind", [
            pytest.param(kind, marks=MARKS.get(kind, ()))
            for kind in getattr(metafunc.module, "CARDS", CARDS)], indirect=True, scope="module")


@pytest.fixture(scope="module")
def card_kind(request):
    """The kind of card that the test runs over."""
    return request.param


@contextmanager
def line_to(kind, config=ECP5):
    """The specification of a transport to a card of that kind; a link has a card of its own, a
    simulated board one of `config`."""
    missing = [tool for tool in ("g++", "make", "perl") if not shutil.which(tool)]
    if kind.startswith(("sim", "pcie")) and missing:
        pytest.skip(f"the transport sim needs {', '.join(missing)}")
    if kind in ("model", "cpu", "sim", "sim-tiny"):
        yield kind.split("-")[0]
        return
    with pytest.MonkeyPatch.context() as patch:
        declared_transports(patch)
        if kind == "pcie":
            yield WHOLE_CARD
            return
        for line in (serial_line, udp):
            patch.setattr(line, "_PATIENCE", PATIENCE)
        patch.setattr(link_transport, "_STAGING_SHARE", STAGING_SHARE)
        if kind == "network":
            with open_network_board(config) as board:
                yield f"udp:127.0.0.1:{board.port}"
            return
        with open_board(config) if kind == "board" else SerialCard(
                model_card(memory_bytes=1 << 23).endpoint()) as line:
            yield f"uart:{line.path}"


@pytest.fixture
def transport(card_kind):
    """The specification of a transport, for a test that opens a device of its own."""
    with line_to(card_kind) as specification:
        yield specification


@pytest.fixture(scope="module")
def card(card_kind):
    """An open device, which all tests of the module share."""
    with open_card(card_kind) as device:
        yield device


@contextmanager
def open_card(kind, config=ECP5):
    """An open device of that kind; `config` as in `line_to`."""
    options = {"timeout": 600, "ring_entries": 4} if kind in BOARDS else {"timeout": 60}
    with line_to(kind, config) as specification, hotrow.open(
            specification, preset="ecp5" if kind == "sim" else "tiny", **options) as device:
        yield device


@pytest.fixture
def device(card):
    """The device of the module, cleared."""
    return cleared(card)


def cleared(device):
    """A device without tables, buffers, counts, slots, events and commands under way."""
    device.reset()
    device.clear_counters()
    device.clear_directory()
    for table in device.tables:
        device.unregister_table(table)
    for buffer in filter(None, tuple(device.regions._buffers)):
        if not buffer.name.startswith(("staging", "rings")):
            device.unregister(buffer)
    for event in range(device.geometry.events):
        device.write_event(event, 0)
    device.check_ids = True
    device._commands.statistics.clear()
    return device


@pytest.fixture
def tables(device):
    """Three registered tables, of ROWS rows and DIM elements, each element unlike the others."""
    return register_tables(device)


def register_tables(device, rows=ROWS, dim=DIM):
    tables = []
    for number, count in enumerate(rows):
        weights = device.regions.empty((count, dim), np.float32)
        weights[:] = np.arange(count * dim).reshape(count, dim) + 10_000 * number
        tables.append(device.register_table(weights, name=f"t{number}"))
    return tables


def answers(device, samples=60):
    """Results of commands of both queues on three tables, then the tables' weights."""
    tables, ids = register_tables(device), random_ids(samples, seed=6)
    assert usable(device, tables)
    device.observe(ids)
    hot = device.harvest(k=20)
    device.install(hot)
    split = device.split(ids)
    device.scatter(hot, 3 * device.gather(hot))
    return [np.array(each) for each in (
        hot.row, hot.count, split.slots, split.misses.row, *(t.weights for t in tables))]


def random_ids(samples, seed, rows=ROWS):
    """Skewed ids [samples, tables]: low rows are hot."""
    rng = np.random.default_rng(seed)
    return np.stack([(count * rng.random(samples) ** 3).astype(np.int64) for count in rows], 1)


def counts(ids):
    """Counter of (table, row) over ids [samples, tables]."""
    return Counter((t, int(row)) for sample in ids for t, row in enumerate(sample))


def pairs(rows):
    """The (table, row) pairs of a list of rows."""
    return list(zip(rows.table.tolist(), rows.row.tolist(), strict=True))


def counts_of(hot):
    """Count of each (table, row) that was harvested."""
    return dict(zip(pairs(hot), hot.count.tolist(), strict=True))


def picked(tables, rows):
    """The weights that a list of rows names, by plain indexing."""
    return np.array([tables[t].weights[r] for t, r in zip(rows.table, rows.row, strict=True)])


def raw(device, opcode, queue="lookup", **operands):
    """Submit a command past every check of the driver; its status."""
    return Status(device._commands.queues[queue].submit(
        opcode, operands, lambda completion: int(completion["status"]), Held()).result())


def usable(device, tables):
    """Whether the device still answers every kind of command as it should."""
    device.clear_directory()
    installed = device.install((tables[0], [0, 1]))
    ids = np.array([[0] * len(tables), [1] * len(tables)])
    split = device.split(ids)
    rows = device.gather(split.misses)
    return (installed.entries == 2 and split.slots[0] == installed.slots[0]
            and len(split.misses) == 2 * (len(tables) - 1)
            and (rows == picked(tables, split.misses)).all())
