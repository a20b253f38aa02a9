"""Requests over a line that loses, repeats, damages and reorders: each is carried out once."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow import TransportError
from hotrow.contract.generated import Operation
from hotrow.device import Device
from hotrow.transports.link.memory_access import copies_over
from hotrow.transports.link.session import Session
from hotrow.transports.link.transport import LinkTransport
from hotrow_rtl.config import preset
from hotrow_rtl.contract.link_frames import LinkStatus
from hotrow_sim.link.endpoint import LinkEndpoint

from tests.driver.conftest import random_ids, register_tables, usable
from tests.driver.links import LateCard, RoughChannel, model_card

ROUGH = {"loss": 0.05, "repeat": 0.05, "damage": 0.03, "reorder": 0.1}


class Counting:
    """A card that counts what it is asked."""

    def __init__(self):
        self.writes = []

    def read_register(self, offset):
        return len(self.writes)

    def write_register(self, offset, value):
        self.writes.append(value)
        return True


@pytest.mark.parametrize("seed", range(4))
def test_each_request_is_carried_out_once_and_in_order(seed):
    card = Counting()
    channel = RoughChannel(LinkEndpoint(card, model_card().link), seed, **ROUGH)
    session = Session(channel, patience=0.001, tries=50)
    for number in range(500):
        request = session.request(
            Operation.WRITE_REGISTER, 0, payload=number.to_bytes(4, "little"))
        if number % 7 == 0:
            request.result()
    session.finish()
    assert card.writes == list(range(500)), f"seed {seed}"
    statistics = session.statistics
    assert statistics.repeated and statistics.damaged and statistics.unexpected, f"seed {seed}"


@pytest.mark.slow
def test_nothing_is_repeated_on_a_line_that_is_sound():
    card = Counting()
    session = Session(RoughChannel(LinkEndpoint(card, model_card().link)), 60.0, 2)
    for _ in range(70_000):  # past the last sequence number
        session.request(Operation.WRITE_REGISTER, 0, payload=bytes(4))
    assert session.request(Operation.READ_REGISTER, 0, 4).result().payload == (
        70_000).to_bytes(4, "little")
    assert session.statistics.repeated == 0 and not any(session.counters().values())
    assert session.statistics.sent == 70_003 and not session.statistics.unexpected


def test_a_card_that_does_not_answer():
    channel = RoughChannel(LinkEndpoint(Counting(), model_card().link), loss=1.0)
    with pytest.raises(TransportError, match=r"no answer to BIND within 0\.003 s: check"):
        LinkTransport("uart", channel, patience=0.001, tries=3)
    assert channel.closed
    for patience, tries in ((0.0, 3), (float("nan"), 3), (0.001, 0)):
        with pytest.raises(ValueError, match=r"patience must be more than 0 .* tries at least 1"):
            LinkTransport("uart", channel, patience, tries)


def test_a_card_whose_memory_is_not_ready_yet():
    endpoint = model_card().endpoint(memory=LinkStatus.MEMORY_STARTING)

    class Starting(RoughChannel):
        sends = 0

        def send(self, frame):
            self.sends += 1
            if self.sends == 4:
                endpoint.memory = LinkStatus.OK
            super().send(frame)

    channel = Starting(endpoint)
    session = Session(channel, 1.0, 2)
    assert channel.sends == 4 and session.card["memory_bytes"] == 1 << 20
    assert session.request(Operation.READ_MEMORY, session.card["memory_base"], 4
                           ).result().status == LinkStatus.OK


@pytest.mark.parametrize("memory_bytes, staging", [(1 << 20, 1 << 14), (1 << 26, 1 << 17)])
def test_little_is_sent_for_staging(memory_bytes, staging):
    card = model_card()
    endpoint = LinkEndpoint(card, replace(card.link, memory_bytes=memory_bytes))
    assert LinkTransport("uart", RoughChannel(endpoint)).staging_bytes == staging


@pytest.mark.parametrize("status, message", [
    (LinkStatus.MEMORY_STARTING, r"the card's DRAM was not ready within 0\.004 s"),
    (LinkStatus.MEMORY_FAILED, "the card's DRAM did not calibrate: its controller found no delay"),
])
def test_a_card_whose_memory_cannot_be_used(status, message):
    channel = RoughChannel(model_card().endpoint(memory=status))
    with pytest.raises(TransportError, match=message):
        LinkTransport("uart", channel, patience=0.002, tries=2)
    assert channel.closed


def test_a_card_of_another_version():
    endpoint = LinkEndpoint(Counting(), replace(model_card().link, version=2))
    with pytest.raises(TransportError, match="link has version 1, found 2"):
        Session(RoughChannel(endpoint), 0.01, 2)


@pytest.mark.parametrize("seed", range(3))
def test_memory_is_kept_alike_whoever_writes(seed):
    """Host and card write to the same arrays at random, never to the same four bytes."""
    rng = np.random.default_rng(seed)
    card = model_card(memory_bytes=1 << 16)
    session = Session(RoughChannel(card.endpoint(), seed, **ROUGH), 0.001, 50)
    memory = copies_over(session)
    base = card.link.memory_base
    hosts = [np.zeros(int(size) + 16, np.uint8)[-int(size):] for size in (5000, 64, 20_000, 333)]
    places = [memory.attach(host) for host in hosts]
    wanted = [host.copy() for host in hosts]
    memory.push(alone=True)
    for turn in range(30):
        alone = turn % 3 == 0
        for host, want, place in zip(hosts, wanted, places, strict=True):
            mine = rng.random(host.size // 4 + 1) < 0.3  # words of the host, the others the card's
            for word in rng.integers(0, host.size // 4, 5).tolist():
                part = slice(4 * word, 4 * word + 4)
                want[part] = rng.integers(0, 256, 4)
                if mine[word]:
                    host[part] = want[part]
                elif not alone:
                    card.memory[place - base:][part] = want[part]
                else:
                    want[part] = host[part]
        memory.push(alone)
        memory.pull()
        for number, (host, want, place) in enumerate(zip(hosts, wanted, places, strict=True)):
            on_card = card.memory[place - base:place - base + host.size]
            assert (host == want).all() and (on_card == want).all(), (seed, turn, number)


def test_only_what_changed_goes_over_the_line():
    card = model_card(memory_bytes=1 << 16)
    memory = copies_over(Session(RoughChannel(card.endpoint()), 60.0, 2))
    host = np.zeros(1 << 14, np.uint8)
    memory.attach(host)
    memory.push(alone=True)
    assert memory.access.sent == host.size
    host[100], host[140], host[9000] = 1, 2, 3
    memory.push(alone=True)
    assert memory.access.sent == host.size + 44 + 4
    host[100], host[140] = 2, 3
    memory.push(alone=False)
    assert memory.access.sent == host.size + 44 + 4 + 8
    memory.pull()
    assert memory.access.fetched == 0
    card.memory[300] = 9
    memory.pull()
    assert memory.access.fetched == 256


@pytest.mark.parametrize("seed", range(2))
def test_the_driver_over_a_rough_line(seed):
    """Results are those of a line that is sound."""
    def results(patience, **rough):
        transport = LinkTransport("rough", RoughChannel(model_card().endpoint(), seed, **rough),
                                  patience, tries=50)
        with Device(transport, 60, 64, 1 << 20) as device:
            tables = register_tables(device)
            ids = random_ids(60, seed)
            device.observe(ids)
            hot = device.harvest(k=20)
            device.install(hot)
            split = device.split(ids)
            rows = device.gather(split.misses)
            found = [hot.row, hot.table, split.slots, split.misses.row, rows]
            assert usable(device, tables)
        return [np.array(each) for each in found], transport.session.statistics

    sound, rough = results(60.0), results(0.001, **ROUGH)
    assert sound[1].repeated == 0 and rough[1].repeated > 0
    for one, other in zip(sound[0], rough[0], strict=True):
        assert (one == other).all(), seed


def test_a_card_that_takes_its_time():
    """Results are waited for, and what the card wrote is fetched with them."""
    card = LateCard(preset("tiny"))
    transport = LinkTransport("late", RoughChannel(card.endpoint()), patience=60.0, tries=2)
    with Device(transport, 60, 4, 1 << 20) as device:
        tables = register_tables(device)
        assert usable(device, tables)
        device.scatter((tables[0], [0, 1]), 2 * device.gather((tables[0], [0, 1])))
    assert card.late > 10


def test_arrays_that_share_memory_share_their_copy():
    card = model_card(memory_bytes=1 << 16)
    memory = copies_over(Session(RoughChannel(card.endpoint()), 60.0, 2))
    host = np.arange(1024, dtype=np.uint8)
    whole = memory.attach(host[:768])
    part = memory.attach(host[256:512])
    assert part == whole + 256
    with pytest.raises(MemoryError, match=r"256 bytes overlap 768 that .* array that holds"):
        memory.attach(host[640:896])
    memory.push(alone=True)
    assert memory.access.sent == 768
    memory.detach(whole)
    host[300] = 7
    memory.push(alone=True)
    assert card.memory[part - card.link.memory_base + 44] == 7, "a part of it is still attached"
    memory.detach(part)
    memory.attach(host[640:896])


def test_what_the_card_writes_after_a_reset_is_fetched():
    """As many commands have completed as when COMPLETED was read last before the reset."""
    transport = LinkTransport("line", RoughChannel(model_card().endpoint()), 60.0, 2)
    with Device(transport, 60, 4, 1 << 20) as device:
        table, *_ = register_tables(device)
        assert (device.gather((table, [1, 2])) == table.weights[[1, 2]]).all()
        device.reset()
        assert (device.gather((table, [3, 4])) == table.weights[[3, 4]]).all()
