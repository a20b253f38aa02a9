"""A card that another process serves: registers, memory, interrupts, and clients that go."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import hotrow
import numpy as np
import pytest
from hotrow import DeviceError
from hotrow.contract.errors import TransportError
from hotrow.contract.generated import IDENTITY, REGISTERS
from hotrow.transports.pcie import transport
from hotrow_rtl.config import preset
from hotrow_sim.pcie import messages
from hotrow_sim.pcie.card import PcieCard
from hotrow_sim.pcie.configuration import BAR_BYTES
from hotrow_sim.pcie.messages import Command
from hotrow_sim.pcie.server import CardServer

from tests.driver.conftest import answers, register_tables, usable
from tests.driver.links import ROOT, VFIO_USER, declared_transports
from tests.support.pcie.served_card import served_card
from tests.support.pcie.vfio_user_client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CARD = preset("ecp5")  # whose library is built in half the time of that of tiny


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The socket of a card in this process."""
    path = tmp_path_factory.mktemp("card") / "card.sock"
    server = CardServer(PcieCard(CARD), path)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield path
    socket.socket(socket.AF_UNIX).connect(str(path))  # `accept` returns
    server.close()


@pytest.fixture
def client(path):
    client = Client(path)
    yield client
    client.close()


@pytest.fixture
def declared(monkeypatch):
    declared_transports(monkeypatch)


def test_a_function_describes_itself(client):
    info = client.call(Command.GET_INFO, messages.INFO.pack(messages.INFO.size, 0, 0, 0))
    assert messages.INFO.unpack(info)[1:] == (3, 9, 5)
    sizes = [messages.REGION_INFO.unpack(client.call(
        Command.GET_REGION_INFO, messages.REGION_INFO.pack(
            messages.REGION_INFO.size, 0, index, 0, 0, 0)))[4] for index in range(9)]
    assert sizes == [BAR_BYTES, 0, 0, 0, 0, 0, 0, 256, 0]
    vendor = client.read(0, 2, messages.CONFIGURATION)
    client.write(0, b"\0\0", messages.CONFIGURATION)
    client.write(0x10, b"\xff" * 4, messages.CONFIGURATION)
    assert client.read(0, 2, messages.CONFIGURATION) == vendor
    assert int.from_bytes(client.read(0x10, 4, messages.CONFIGURATION), "little") == (
        2**32 - BAR_BYTES)
    assert client.read(REGISTERS["IDENTITY"]) == client.read(BAR_BYTES // 2) == IDENTITY


def program(specification, **options):
    """What commands on a card give."""
    with hotrow.open(specification, timeout=300, ring_entries=4, **options) as device:
        return answers(device)


def check(path, **options):
    """The results over the socket are those of `model`."""
    found = program(f"{VFIO_USER}:{path}", **options)
    for one, other in zip(found, program("model", preset=CARD.name), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("options", [
    {}, pytest.param({"interrupts": False}, marks=pytest.mark.long), {"shared": True}],
    ids=["events", "polled", "shared"])
def test_a_program(path, declared, options):
    """Memory by messages, or in a file as a virtual machine shares it."""
    check(path, **options)


REFUSED = {
    "a command that does not exist": (14, b"", errno.ENOTSUP),
    "a cut payload": (Command.DMA_MAP, b"1234", errno.EINVAL),
    "an empty range": (Command.DMA_MAP, messages.MAP.pack(32, 3, 0, 4096, 0), errno.EINVAL),
    "a range that wraps": (
        Command.DMA_MAP, messages.MAP.pack(32, 3, 0, 2**64 - 4096, 8192), errno.EEXIST),
    "a range that is not mapped": (
        Command.DMA_UNMAP, messages.UNMAP.pack(24, 0, 4096, 4096), errno.EINVAL),
    "a region that does not exist": (
        Command.GET_REGION_INFO, messages.REGION_INFO.pack(32, 0, 9, 0, 0, 0), errno.EINVAL),
    "an interrupt that does not exist": (
        Command.GET_IRQ_INFO, messages.IRQ_INFO.pack(16, 0, 5, 0), errno.EINVAL),
    "a second interrupt": (
        Command.SET_IRQS, messages.IRQ_SET.pack(20, 36, 1, 1, 1), errno.EINVAL),
    "beyond the registers": (
        Command.REGION_READ, messages.ACCESS.pack(BAR_BYTES - 4, 0, 8), errno.EINVAL),
    "beyond the configuration": (
        Command.REGION_WRITE, messages.ACCESS.pack(2**63, 7, 4) + bytes(4), errno.EINVAL),
    "half a register": (
        Command.REGION_WRITE, messages.ACCESS.pack(0, 0, 2) + bytes(2), errno.EINVAL),
    "fewer bytes than announced": (
        Command.REGION_WRITE, messages.ACCESS.pack(0, 0, 8) + bytes(4), errno.EINVAL),
    "another version": (Command.VERSION, messages.VERSION.pack(1, 0) + b"{}\0", errno.EINVAL),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_server_refuses(client, case):
    command, payload, number = REFUSED[case]
    with pytest.raises(OSError) as refused:
        client.call(command, payload)
    assert refused.value.errno == number
    assert client.read(REGISTERS["IDENTITY"]) == IDENTITY


def test_a_file_that_cannot_be_mapped(client):
    with open(os.devnull) as file, pytest.raises(OSError):
        client.call(Command.DMA_MAP, messages.MAP.pack(32, 3, 0, 4096, 4096), (file.fileno(),))
    assert client.read(REGISTERS["IDENTITY"]) == IDENTITY


def test_an_event_that_is_none(client):
    """A file that cannot be written, and a pipe that is full: the card goes on."""
    reader, pipe = os.pipe()
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(4096))
    with open(__file__) as file:
        for event in (file.fileno(), pipe):
            client.call(Command.SET_IRQS, messages.IRQ_SET.pack(20, 36, 1, 0, 1), (event,))
            client.call(Command.SET_IRQS, messages.IRQ_SET.pack(20, 33, 1, 0, 1))
    assert client.read(REGISTERS["IDENTITY"]) == IDENTITY
    for end in (reader, pipe):
        os.close(end)


@pytest.mark.parametrize("octets", [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(16), b"\xff" * 64])
def test_a_client_that_speaks_otherwise(path, octets):
    """It loses its connection, and the next one is served."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        line.sendall(octets)
        with suppress(ConnectionResetError, BrokenPipeError):
            line.shutdown(socket.SHUT_WR)
            assert line.recv(1) == b""
    client = Client(path)
    assert client.read(REGISTERS["IDENTITY"]) == IDENTITY
    client.close()


def test_a_card_that_may_not_master_the_bus(path, declared):
    """Its reads find nothing: the queue stops, and memory stays as it was."""
    with hotrow.open(f"{VFIO_USER}:{path}", timeout=300, ring_entries=4) as device:
        device.transport._enable(master=False)
        with pytest.raises(DeviceError):
            device.clear_counters()
        device.transport._enable(master=True)
        device.reset()
        assert usable(device, register_tables(device))


KILLED = """\
import os, signal, sys
import pytest
from tests.driver.links import VFIO_USER, declared_transports
declared_transports(pytest.MonkeyPatch())
import hotrow, numpy as np
device = hotrow.open(f"{VFIO_USER}:{sys.argv[1]}", timeout=300, ring_entries=4)
table = device.register_table(hotrow.empty((64, 8), np.float32))
device.observe_async([[0]] * 50)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_client_that_is_killed(path, declared):
    """The card forgets its memory and starts afresh for the next client."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path[1:], str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=300, cwd=ROOT,
                          env=environment)
    assert done.returncode == -signal.SIGKILL
    check(path)


@pytest.mark.long
def test_a_server_that_is_killed(tmp_path, declared):
    """The next access of the client fails and names it."""
    with served_card(tmp_path, CARD.name) as (path, process), pytest.raises(
            TransportError, match="server has gone"), hotrow.open(
                f"{VFIO_USER}:{path}", timeout=300, ring_entries=4) as device:
        process.kill()
        process.wait(60)
        device.clear_counters()


def test_a_path_that_is_taken(path, tmp_path):
    card = PcieCard(CARD)
    with pytest.raises(ValueError, match="another process serves"):
        CardServer(card, path)
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(ValueError, match="no socket"):
        CardServer(card, file)
    assert file.read_text() == "kept"
    for odd, message in ((tmp_path / "no" / "card", "no folder"),
                         (tmp_path / ("a" * 100), "at most 107 bytes")):
        with pytest.raises(ValueError, match=message):
            CardServer(card, odd)
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(left))
    CardServer(card, left).close()
    assert not left.exists()


@pytest.mark.long
def test_interrupts_end_a_wait(path, declared, monkeypatch):
    """A wait whose interrupt is lost would end in the time-out of its command."""
    monkeypatch.setattr(transport, "_PATIENCE", 10_000)
    with hotrow.open(f"{VFIO_USER}:{path}", timeout=60, ring_entries=4) as device:
        table = device.register_table(np.ones((64, 8), np.float32))
        for _ in range(20):
            device.observe(np.zeros((1, 1), np.int64))
            assert (device.gather((table, [1])) == 1).all()
