"""The Verilated device: zero copy, faults of memory, time-outs, resets in flight, interface."""

import ctypes

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Opcode, Status

from tests.support.bare_host import BareHost, aligned

pytestmark = pytest.mark.slow
STOPPED = {"list": 2, "result0": 4, "row_read": 8, "row_write": 16}  # bits of STATUS


@pytest.fixture
def open_sim():
    """Opens the tiny preset, and closes it at the end."""
    opened = []

    def open_one(**options):
        from hotrow_sim.verilated.transport import open_transport

        opened.append(open_transport("tiny", **options))
        return opened[-1]

    yield open_one
    for device in opened:
        device.close()


def ports(card, kind):
    """Names of the memory ports of one kind."""
    return [name for name in card.transport.ports if name.startswith(kind)]


def gather(card, count=20, **more):
    return {"opcode": Opcode.GATHER, "source": card.put_rows([(0, n) for n in range(count)]),
            "count": count, "stride": 64, "destination": card.address("results"), **more}


def test_the_arrays_are_the_memory(open_sim, make_card):
    card = make_card(open_sim(latency=5))
    card.weights[:64] = np.arange(64)
    card.run("move", **gather(card, 1))
    assert card.result(64, dtype=np.uint8).tolist() == list(range(64))


def test_devices_are_independent(open_sim, make_card):
    cards = [make_card(open_sim(latency=latency)) for latency in (2, 90)]
    cards[0].run("lookup", opcode=Opcode.SIGNAL, event=1, value=7)
    for card, value in zip(cards, (7, 0), strict=True):
        card.write("EVENT_SELECT", 1)
        assert card.read("EVENT_VALUE") == value
    # Equal register accesses on both, but different latencies.
    near, far = (card.run("move", **gather(card)) for card in cards)
    assert near["end"] - near["start"] + 170 < far["end"] - far["start"]


def test_equal_seeds_give_equal_cycles(open_sim, make_card):
    def cycles(seed):
        device = open_sim(latency=10, jitter=30, stall=0.3, reorder=True, seed=seed)
        done = make_card(device).run("move", **gather(make_card.last))
        return done["start"], done["end"]

    assert cycles(1) == cycles(1) != cycles(2)


@pytest.mark.parametrize("port", ["row_read", "row_write"])
@pytest.mark.parametrize("accept", [False, True])
def test_a_row_port_without_responses(open_sim, make_card, port, accept):
    """TIMEOUT after the host's limit; the device works after a soft reset."""
    card = make_card(open_sim(latency=8))
    card.write("TIMEOUT", 300)
    now = card.transport.cycles
    for name in ports(card, port):
        card.transport.silence(name, now, now + 5000, accept)
    done = card.run("move", **gather(card))
    assert done["status"] == Status.TIMEOUT and done["entries"] < 20
    assert card.read("STATUS") & STOPPED[port]
    card.transport.run(5000)
    card.write("CONTROL", 1)
    card.await_ready()
    assert card.read("STATUS") == 1
    card.enable("move")
    done = card.run("move", **gather(card))
    assert (done["status"], done["entries"]) == (Status.OK, 20)
    assert (card.result(1280, dtype=np.uint8) == card.weights[:1280]).all()


def test_a_silent_list_port_faults_the_queue(open_sim, make_card):
    card = make_card(open_sim(latency=8))
    card.write("TIMEOUT", 200)
    now = card.transport.cycles
    card.transport.silence("list", now, now + 3000)
    card.submit("lookup", opcode=Opcode.NOP)
    card.ring("lookup")
    card.transport.run(1000)
    assert card.read("LOOKUP_STATE") == 8 | Status.TIMEOUT << 8
    card.transport.run(3000)
    card.write("CONTROL", 1)
    card.await_ready()
    card.enable("lookup")
    assert card.run("lookup", opcode=Opcode.NOP)["status"] == Status.OK


@pytest.mark.parametrize("moment", [3, 40, 90, 150, 260, 400, 700, 1100])
def test_a_soft_reset_in_flight(open_sim, make_card, moment):
    """After a soft reset at any time every command works, and none wrote out of bounds."""
    card = make_card(open_sim(latency=60, jitter=30, stall=0.3, reorder=True, seed=moment))
    ids = np.arange(90, dtype=np.uint32)
    batch = {"opcode": Opcode.SPLIT, "count": 90, "samples": 90, "table_count": 1,
             "source": card.put(ids, 8192), "slots": card.address("results", 16384),
             "popular": card.address("results", 17408),
             "nonpopular": card.address("results", 18432),
             "misses": card.address("results", 19456)}
    card.submit("lookup", **batch)
    card.submit("move", **gather(card, 40))
    card.ring("lookup")
    card.ring("move")
    card.transport.run(moment)
    card.write("CONTROL", 1)
    card.await_ready()
    for queue in ("lookup", "move"):
        card.enable(queue)
    card.results[:] = 0xEE
    assert card.run("lookup", **batch)["unique"] == 90
    assert card.run("move", **gather(card, 40))["entries"] == 40
    assert (card.result(2560, dtype=np.uint8) == card.weights[:2560]).all()
    assert (card.results[2560:16384] == 0xEE).all()
    assert card.transport.violations() == []


def test_the_reset_input_clears_everything(open_sim, make_card):
    device = open_sim(latency=4)
    card = make_card(device)
    card.run("lookup", opcode=Opcode.SIGNAL, event=1, value=7)
    device.reset()
    host = BareHost(device)
    host.write("EVENT_SELECT", 1)
    assert host.read("EVENT_VALUE") == 0
    done = host.run("move", **gather(card))
    assert (done["status"], done["error_address"]) == (Status.REGION, card.address("lists"))


def test_the_interrupt_line_follows_its_enable(open_sim, make_card):
    card = make_card(open_sim(latency=4))
    card.run("move", opcode=Opcode.NOP)
    assert not card.transport.interrupt
    card.write("CONTROL", 0b100)
    assert card.transport.interrupt
    card.write("INTERRUPT", 0b10)
    assert not card.transport.interrupt


def test_attach_returns_congruent_addresses_and_refuses_other_arrays(open_sim):
    device = open_sim(latency=4)
    for offset in (0, 1, 16, 63):
        octets = aligned(100, offset)
        address = device.attach(octets, True)
        assert address % 64 == offset
        device.detach(address)
    with pytest.raises(ValueError, match=r"contiguous one-dimensional uint8 array, not float32"):
        device.attach(np.zeros(4, np.float32), True)
    with pytest.raises(ValueError, match="no array is attached at device address"):
        device.detach(12345)


def test_options_are_checked(open_sim):
    with pytest.raises(ValueError, match="unknown preset 'huge'"):
        from hotrow_sim.verilated.transport import open_transport
        open_transport("huge")
    with pytest.raises(ValueError, match="latency must be 1"):
        open_sim(latency=0)
    with pytest.raises(ValueError, match="unknown port 'rows': expected one of list"):
        open_sim(latency=1).silence("rows", 0)


def test_a_closed_device_raises(open_sim):
    device = open_sim(latency=1)
    device.close()
    with pytest.raises(RuntimeError, match="closed"):
        device.read_register(0)


def beats(card):
    return [card.transport.statistics(name).beats for name in ports(card, "row_read")]


def test_statistics_count_the_traffic_of_a_port(open_sim, make_card):
    card = make_card(open_sim(latency=4))
    before = beats(card)
    card.run("move", **gather(card, 10))
    assert sum(beats(card)) - sum(before) == 10 * 64 // card.transport.config.bus_bytes
    assert all(after > first for after, first in zip(beats(card), before, strict=True))


def test_the_library_exports_only_its_interface():
    from hotrow_rtl.config import preset
    from hotrow_sim.verilated.build import device_library

    library = ctypes.CDLL(str(device_library(preset("tiny"))))
    assert library.hotrow_open
    with pytest.raises(AttributeError):
        _ = library.vl_fatal
