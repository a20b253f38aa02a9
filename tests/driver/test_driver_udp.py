"""The transport `udp` on the loopback interface: loss, repetition, reordering, and strangers."""

import errno
import socket
import time

import hotrow
import numpy as np
import pytest
from hotrow import TransportError
from hotrow.contract.generated import LARGEST_PAYLOAD, UDP_PORT, Operation
from hotrow.transports.link import udp
from hotrow.transports.link.frames import pack_request

from tests.driver.conftest import random_ids, register_tables, usable
from tests.driver.links import declared_transports, model_card
from tests.support.link.udp_card import UdpCard


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    declared_transports(monkeypatch)


def results(seed, patience, **network):
    """What a card's commands give over a network, the session's statistics and the network."""
    with UdpCard(model_card().endpoint(), seed=seed, **network) as card, hotrow.open(
            f"udp:127.0.0.1:{card.port}", timeout=60, patience=patience, tries=200) as device:
        tables = register_tables(device)
        ids = random_ids(200, seed)
        device.observe(ids)
        hot = device.harvest(k=30)
        device.install(hot)
        split = device.split(ids)
        rows = device.gather(split.misses)
        out = [hot.row, hot.table, hot.count, split.slots, split.misses.row, rows]
        assert usable(device, tables)
        return ([np.array(each) for each in out], device.transport.session.statistics,
                card.network)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_loss_repetition_and_reordering_change_nothing(seed):
    sound, statistics, _ = results(seed, 60.0)
    assert statistics.repeated == 0
    rough, statistics, network = results(seed, 0.005, loss=0.05, repeat=0.05, reorder=0.05)
    for one, other in zip(sound, rough, strict=True):
        assert (one == other).all(), f"seed {seed}"
    assert network.lost and network.repeated and network.reordered and statistics.repeated


def test_a_card_has_the_contracts_port_unless_one_is_named(monkeypatch):
    asked = []

    def refuse(host, port):
        asked.append((host, port))
        raise OSError(errno.ENETUNREACH, "no such network")
    monkeypatch.setattr(udp, "UdpChannel", refuse)
    for address in ("127.0.0.1", "127.0.0.1:", "127.0.0.1:77"):
        with pytest.raises((OSError, TransportError), match="no such network"):
            hotrow.open(f"udp:{address}")
    assert asked == [("127.0.0.1", port) for port in (UDP_PORT, UDP_PORT, 77)]


@pytest.mark.long
def test_cost_of_losses(capsys):
    """Bytes arrive all the same; frames and throughput are printed, not judged."""
    rough, count, seed = {"loss": 0.05, "repeat": 0.05, "reorder": 0.05}, 400, 5
    octets = np.random.default_rng(seed).integers(0, 256, count * LARGEST_PAYLOAD, np.uint8)
    sent = {}
    for title, network, patience in (
            ("nothing lost", {}, 60.0), ("5 % lost, repeated, reordered", rough, 0.05)):
        with UdpCard(model_card().endpoint(), seed=seed, **network) as card, hotrow.open(
                f"udp:127.0.0.1:{card.port}", timeout=60, patience=patience, tries=200) as device:
            session, memory = device.transport.session, device.transport.memory
            before, began = session.statistics.sent, time.monotonic()
            address = memory.attach(octets)
            memory.push(alone=True)
            seconds = time.monotonic() - began
            sent[title] = session.statistics.sent - before
            with capsys.disabled():
                print(f"\nudp, {title}: {sent[title]} frames for {count} of {LARGEST_PAYLOAD} "
                      f"bytes, {octets.size / seconds / 1e6:.3f} MB/s to a card in Python")
            read = [session.request(Operation.READ_MEMORY, address + at, LARGEST_PAYLOAD)
                    for at in range(0, octets.size, LARGEST_PAYLOAD)]
            got = b"".join(request.result().payload for request in read)
            assert got == octets.tobytes(), f"seed {seed}"
            seen = card.network
            assert bool(seen.lost and seen.repeated and seen.reordered) == bool(network)
    sound, lossy = sent.values()
    assert sound == count < lossy, f"seed {seed}"


def test_frames_of_a_stranger_are_ignored():
    card = model_card()
    endpoint = card.endpoint(replaceable=lambda: False)
    with UdpCard(endpoint) as served:
        with hotrow.open(f"udp:127.0.0.1:{served.port}", timeout=60, patience=5.0) as device:
            tables = register_tables(device)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.connect(("127.0.0.1", served.port))
                stranger.settimeout(0.2)
                session = device.transport.session._number  # even if it knows the number
                for number in (session, session ^ 1):
                    for operation in (Operation.BIND, Operation.READ_REGISTER):
                        stranger.send(pack_request(number, 3, operation, length=4))
                with pytest.raises(TimeoutError):
                    stranger.recv(100)
            assert usable(device, tables)
            assert device.transport.counters()["foreign"] == 4
        with pytest.raises(TransportError, match="no answer to BIND"):
            hotrow.open(f"udp:127.0.0.1:{served.port}", patience=0.01, tries=3)


@pytest.mark.parametrize("address, message", [
    ("", "no host was named"), (":127.0.0.1:x", "expected a port of 1 to 65535"),
    (":127.0.0.1:70000", "expected a port of 1 to 65535"),
])
def test_addresses_that_cannot_be(address, message):
    with pytest.raises(TransportError, match=message):
        hotrow.open(f"udp{address}")


def test_nobody_there():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(TransportError, match=f"card at 127.0.0.1, port {port}: no answer to BIND"):
        hotrow.open(f"udp:127.0.0.1:{port}", patience=0.01, tries=3)
