"""A whole board in simulation, through RGMII pins: the driver, losses, unbound peers, noise."""

import socket
import time
from ipaddress import IPv4Address

import hotrow
import numpy as np
import pytest
from hotrow.contract.generated import LARGEST_PAYLOAD, LINK_COUNTERS, Operation
from hotrow.transports.link.frames import pack_request
from hotrow_rtl.contract.link_frames import UDP_PORT

from tests.boards.board_program import run_program, train
from tests.boards.simulated_network import STATION, open_board
from tests.driver.conftest import random_ids, register_tables, usable
from tests.driver.links import declared_transports
from tests.support.link.ethernet import ARP, BROADCAST, IPV4, Datagram, Frame

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.nightly, pytest.mark.timeout(3600)]
ROUGH = {"loss": 0.05, "repeat": 0.05, "reorder": 0.05, "seed": 7}
# A card that another test has bound is free after IDLE_MS; without losses, a reply then takes far
# less than this.
OPENED = {"timeout": 600, "ring_entries": 4, "patience": 5.0, "tries": 60}
HOST, HOST_MAC = "192.168.1.9", bytes.fromhex("0600c0a80109")
CARD_MAC = bytes.fromhex(STATION.mac.replace(":", ""))


@pytest.fixture(scope="module")
def board():
    """One board for all tests of this file, in a lossless network."""
    with open_board() as board:
        yield board
        assert not board.refused, "the card sent invalid frames"


@pytest.fixture
def device(board, monkeypatch):
    declared_transports(monkeypatch)
    with hotrow.open(f"udp:127.0.0.1:{board.port}", **OPENED) as device:
        yield device


def test_a_program(device):
    run_program(device)
    assert not any(device.transport.counters().values())


def results(device):
    """Results of commands as arrays."""
    tables = register_tables(device)
    ids = random_ids(40, seed=2)
    device.observe(ids)
    hot = device.harvest(k=30)
    device.install(hot)
    split = device.split(ids)
    rows = device.gather(split.misses)
    device.scatter(hot, np.full((len(hot.row), rows.shape[1]), 3, np.float32))
    return [np.array(each) for each in (
        hot.row, hot.table, hot.count, split.slots, split.misses.row, rows,
        *(table.weights for table in tables))]


def test_losses_change_nothing(monkeypatch, capsys):
    """5 % of the datagrams lost, repeated and reordered in both directions."""
    declared_transports(monkeypatch)
    count, found, sent = 60, [], []
    octets = np.random.default_rng(5).integers(0, 256, count * LARGEST_PAYLOAD, np.uint8)
    for title, network, patience in (("nothing lost", {}, 60.0),
                                     ("5 % lost, repeated, reordered", ROUGH, 1.0)):
        with open_board(**network) as board, hotrow.open(
                f"udp:127.0.0.1:{board.port}", timeout=600, ring_entries=4, patience=patience,
                tries=200) as device:
            session, memory = device.transport.session, device.transport.memory
            found.append(results(device))
            frames, cycles = session.statistics.sent, board.cycles
            address = memory.attach(octets)
            memory.push(alone=True)
            frames, cycles = session.statistics.sent - frames, board.cycles - cycles
            with capsys.disabled():
                print(f"\nethernet, {title}: {frames} frames for {count} of {LARGEST_PAYLOAD} "
                      f"bytes, {octets.size / cycles:.4f} bytes a cycle of the simulated card, "
                      f"patience {patience:g} s")
            read = [session.request(Operation.READ_MEMORY, address + at, LARGEST_PAYLOAD)
                    for at in range(0, octets.size, LARGEST_PAYLOAD)]
            assert b"".join(each.result().payload for each in read) == octets.tobytes()
            seen, counted = board.network, device.transport.counters()
            assert bool(seen.lost and seen.repeated and seen.reordered) == bool(network)
            assert bool(counted["replayed"]) == bool(network)
            sent.append(frames)
    for one, other in zip(*found, strict=True):
        assert (one == other).all()
    assert sent[0] == count < sent[1]


def test_a_peer_that_is_not_bound_gets_no_answer_and_changes_nothing(board, device):
    tables = register_tables(device)
    weights = [table.weights.copy() for table in tables]
    number, before = device.transport.session._number, device.transport.counters()
    strangers = "127.0.0.1", "127.0.0.2"
    for address in strangers:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((address, 0))
            stranger.connect(("127.0.0.1", board.port))
            stranger.settimeout(0.2)
            for session in (number, number ^ 1):  # even with the right session
                stranger.send(pack_request(session, 0, Operation.BIND))
                stranger.send(pack_request(session, 3, Operation.WRITE_MEMORY, 0, payload=b"evil"))
            with pytest.raises(TimeoutError):
                stranger.recv(100)
            device.transport.counters()  # keep the host active
    assert changes(device, before) == {"foreign": 4 * len(strangers)}
    assert usable(device, tables)
    for table, kept in zip(tables, weights, strict=True):
        assert (table.weights == kept).all()


def test_frames_that_are_none_change_nothing(board, device):
    """Damaged, cut, fragmented, to other addresses, of other protocols; the card keeps working."""
    tables = register_tables(device)
    weights = [table.weights.copy() for table in tables]
    session, before = device.transport.session, device.transport.counters()
    evil = pack_request(session._number, session._next, Operation.WRITE_MEMORY, 0, payload=b"evil")

    def come(payload, destination=(STATION.address, UDP_PORT), kind=IPV4, to=CARD_MAC, **headings):
        datagram = Datagram((HOST, 5), destination, payload).pack(**headings)
        board.send_frame(Frame(to, HOST_MAC, kind, datagram))

    # Counted as frames of the wrong length:
    for size in (0, 1, 19, 1013, 1472):
        come(bytes(size))
    come(evil, length=8 + len(evil) + 4)  # cut: its UDP length is larger
    come(evil, length=4)
    come(evil + bytes(1400 - len(evil)), fragment=0x2000, length=8 + 2000)
    damaged = bytearray(Frame(CARD_MAC, HOST_MAC, IPV4, Datagram(
        (HOST, 5), (STATION.address, UDP_PORT), evil).pack()).on_line())
    damaged[60] ^= 1
    board._send(bytes(damaged))
    counted = 9
    # Ignored:
    come(evil, destination=("192.168.1.51", UDP_PORT))
    come(evil, destination=("192.168.1.255", UDP_PORT), to=BROADCAST)
    come(evil, destination=("255.255.255.255", UDP_PORT), to=BROADCAST)
    come(evil, destination=(STATION.address, UDP_PORT + 1))
    come(evil, checksum=1)
    come(bytes(1400), protocol=1)  # an echo request, and one that lies about its length
    come(bytes(1400), protocol=1, total_length=60)
    come(bytes(100), protocol=6)
    board.send_frame(Frame(BROADCAST, HOST_MAC, ARP, bytes(300)))
    board.send_frame(Frame(BROADCAST, HOST_MAC, 0x86DD, bytes(60)))
    rng = np.random.default_rng(3)
    for size in (1, 8, 20, 60, 2000):  # noise, with and without a preamble
        board._send(rng.bytes(size))
        board._send(bytes([0x55] * 7 + [0xD5]) + rng.bytes(size))
    assert IPv4Address(HOST) in board._hosts
    wait_until_sent(board)
    found = changes(device, before)
    assert found == {"wrong_length": counted}, found
    assert usable(device, tables)
    for table, kept in zip(tables, weights, strict=True):
        assert (table.weights == kept).all()


def test_a_flood_at_the_rate_of_the_line_is_counted_and_endured(board, device):
    """The largest frames of another session, back to back."""
    tables, count = register_tables(device), 60
    session, before = device.transport.session, device.transport.counters()
    flood = pack_request(session._number ^ 1, 1, Operation.WRITE_MEMORY, 0,
                         payload=bytes(LARGEST_PAYLOAD))
    for _ in range(count):
        board.send_frame(Frame(CARD_MAC, HOST_MAC, IPV4, Datagram(
            (HOST, 5), (STATION.address, UDP_PORT), flood).pack()))
    wait_until_sent(board)
    found = changes(device, before)
    assert found["overrun"] and found["overrun"] + found["foreign"] == count and len(found) == 2
    assert usable(device, tables)


def test_another_host_may_bind_after_an_idle_time(board, monkeypatch):
    """The card then ignores the previous host."""
    declared_transports(monkeypatch)
    address = f"udp:127.0.0.1:{board.port}"
    with hotrow.open(address, **OPENED) as first, hotrow.open(address, **OPENED) as second:
        assert usable(second, register_tables(second))
        with pytest.raises(hotrow.TransportError, match="no answer to READ_COUNTERS"):
            first.transport.session.patience, first.transport.session._tries = 0.5, 2
            first.transport.counters()
        assert second.transport.counters()["foreign"]


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_training_steps_agree_with_plain_pytorch(device, optimizer):
    train(device, optimizer)


def wait_until_sent(board):
    """Wait until the line has sent all frames to the card."""
    deadline = time.monotonic() + 300
    while board._library.hotrow_board_unsent(board._board):
        assert time.monotonic() < deadline, "the board's clock stands still"
        time.sleep(0.05)


def changes(device, before):
    """Increments of the counters that changed."""
    after = device.transport.counters()
    assert list(after) == list(LINK_COUNTERS)
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}
