"""Command queues of the device, on the model and on the RTL: order, events, faults, resets."""

from itertools import pairwise

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Opcode, Status, packed_address

BUSY, HALTED, WAITING, FAULTED = 1, 2, 4, 8
REFUSED_LOOKUP, REFUSED_MOVE = 1, 2
BAD = 0x7F  # no such opcode


def settle(card, queue):
    """Let the device run until it waits for the host."""
    # The card in software returns by itself, however busy the machine is.
    seconds = 60 if card.transport.name == "cpu" else 0.05
    card.transport.wait(("lookup", "move").index(queue), card.read(f"{queue}_COMPLETED"), seconds)


@pytest.mark.parametrize("queue", ["lookup", "move"])
def test_completions_arrive_in_order_around_the_ring(card, queue):
    for lap in range(3):
        for step in range(card.entries):
            card.submit(queue, opcode=Opcode.NOP, tag=100 * lap + step)
        card.ring(queue)
        card.wait(queue)
        for step in range(card.entries):
            done = card.completion(queue, lap * card.entries + step + 1)
            assert done["tag"] == 100 * lap + step
            assert done["sequence"] == lap * card.entries + step + 1
            assert done["status"] == Status.OK
    assert card.read(f"{queue}_HEAD") == card.read(f"{queue}_TAIL") == 3 * card.entries
    assert card.read(f"{queue}_STATE") == 0


def test_batches_overlap(card):
    """While a long batch is counted, the next one is fetched and checked."""
    count, ids = card.entries, np.arange(1024, dtype=np.uint32) % 100
    source = card.put(ids)
    for _ in range(count):
        card.submit("lookup", opcode=Opcode.OBSERVE, source=source, count=len(ids),
                    samples=len(ids), table_count=1)
    card.ring("lookup")
    card.wait("lookup")
    done = [card.completion("lookup", sequence) for sequence in range(1, count + 1)]
    assert [(each["status"], each["lookups"]) for each in done] == [(Status.OK, len(ids))] * count
    if card.transport.name == "sim":
        assert all(second["start"] < first["end"] - 200
                   for first, second in pairwise(done))


def test_cycles_of_a_queue_do_not_overlap(card):
    for tag in range(4):
        card.submit("move", opcode=Opcode.FENCE, tag=tag)
    card.ring("move")
    card.wait("move")
    last = 0
    for sequence in range(1, 5):
        done = card.completion("move", sequence)
        assert last <= done["start"] <= done["end"]
        last = done["end"]
    assert last <= card.read("CYCLE_LOW")


@pytest.mark.parametrize("queue, bit", [("lookup", REFUSED_LOOKUP), ("move", REFUSED_MOVE)])
def test_a_doorbell_out_of_bounds_is_refused(card, queue, bit):
    card.submit(queue, opcode=Opcode.NOP)
    card.ring(queue)
    card.wait(queue)
    for wrong in (1 + card.entries + 1, 0, 0xFFFF_FFFF):
        card.write(f"{queue}_TAIL", wrong)
        assert card.read("FAULT") == bit, wrong
        assert card.read(f"{queue}_TAIL") == 1
        card.write("FAULT", bit)
    card.write(f"{queue}_TAIL", 1)
    card.write(f"{queue}_CONTROL", 0)
    card.write(f"{queue}_TAIL", 2)
    assert card.read("FAULT") == bit, "the queue is not enabled"


@pytest.mark.parametrize("size", [0, 17, 32 + 3])
def test_a_doorbell_of_an_invalid_ring_is_refused(card, size):
    card.write("LOOKUP_ENTRIES", size)
    card.write("LOOKUP_TAIL", 1)
    assert card.read("FAULT") == REFUSED_LOOKUP


def test_a_queue_without_halt_continues_after_an_error(card):
    card.submit("lookup", opcode=BAD, tag=1)
    card.submit("lookup", opcode=Opcode.NOP, tag=2)
    card.ring("lookup")
    card.wait("lookup")
    assert [card.completion("lookup", n)["status"] for n in (1, 2)] == [Status.BAD_OPCODE, 0]


def test_a_halted_queue_waits_for_resume(card):
    card.enable("lookup", halt_on_error=True)
    for opcode in (Opcode.NOP, BAD, Opcode.NOP, BAD, Opcode.NOP):
        card.submit("lookup", opcode=opcode)
    card.ring("lookup")
    for stop in (2, 4):
        card.wait("lookup", completed=stop)
        settle(card, "lookup")
        assert card.read("LOOKUP_COMPLETED") == stop
        assert card.read("LOOKUP_STATE") == HALTED | Status.BAD_OPCODE << 8
        assert card.read("LOOKUP_HEAD") == stop + 1, "one command is read ahead"
        card.write("LOOKUP_CONTROL", 0b1011)
    card.wait("lookup")
    assert card.read("LOOKUP_STATE") == 0
    assert card.read("LOOKUP_CONTROL") == 0b11


def test_wait_holds_a_queue_until_the_other_signals(card):
    card.submit("move", opcode=Opcode.WAIT, event=3, value=5)
    card.submit("move", opcode=Opcode.NOP)
    card.ring("move")
    settle(card, "move")
    assert card.read("MOVE_STATE") == BUSY | WAITING
    assert card.read("MOVE_COMPLETED") == 0
    for value in (4, 6):  # 5 is passed over: 6 reaches it too
        signal = card.run("lookup", opcode=Opcode.SIGNAL, event=3, value=value)
        assert signal["status"] == Status.OK
        settle(card, "move")
        assert card.read("MOVE_COMPLETED") == (0 if value == 4 else 2)
    assert card.completion("move", 1)["end"] >= signal["start"]


@pytest.mark.parametrize("value, target, reached", [
    (5, 5, True), (4, 5, False), (0x7FFF_FFFF, 0, True), (0x8000_0000, 0, False),
    (3, 0xFFFF_FFF0, True), (0xFFFF_FFF0, 3, False),
])
def test_wait_compares_in_half_range(card, value, target, reached):
    card.write("EVENT_SELECT", 7)
    card.write("EVENT_VALUE", value)
    card.submit("lookup", opcode=Opcode.WAIT, event=7, value=target)
    card.ring("lookup")
    settle(card, "lookup")
    assert card.read("LOOKUP_COMPLETED") == reached


def test_the_host_can_set_an_event_that_a_queue_waits_for(card):
    card.submit("lookup", opcode=Opcode.WAIT, event=1, value=9)
    card.ring("lookup")
    settle(card, "lookup")
    card.write("EVENT_SELECT", 1)
    card.write("EVENT_VALUE", 9)
    card.wait("lookup")
    assert card.completion("lookup", 1)["status"] == Status.OK


def test_abort_ends_only_the_wait_in_progress(card):
    card.write("LOOKUP_CONTROL", 0b101)  # nothing waits: no effect
    for value in (1, 2):
        card.submit("lookup", opcode=Opcode.WAIT, event=0, value=value, tag=value)
    card.ring("lookup")
    settle(card, "lookup")
    assert card.read("LOOKUP_COMPLETED") == 0
    card.write("LOOKUP_CONTROL", 0b101)
    card.wait("lookup", completed=1)
    settle(card, "lookup")
    assert card.read("LOOKUP_STATE") == BUSY | WAITING
    done = card.completion("lookup", 1)
    assert (done["status"], done["tag"], done["error_index"]) == (Status.ABORTED, 1, 0)


def test_soft_reset_stops_queues_and_keeps_registrations(card):
    ids = card.put(np.arange(8, dtype=np.uint32))
    batch = {"source": ids, "count": 8, "samples": 8, "table_count": 1}
    assert card.run("lookup", opcode=Opcode.OBSERVE, **batch)["misses"] == 8
    card.run("lookup", opcode=Opcode.SIGNAL, event=2, value=77)
    card.submit("move", opcode=Opcode.WAIT, event=2, value=99)
    card.ring("move")
    settle(card, "move")
    card.write("CONTROL", 0b111)
    card.await_ready()
    assert card.read("CONTROL") == 0b110
    for queue in ("lookup", "move"):
        for register in ("CONTROL", "TAIL", "HEAD", "COMPLETED", "STATE"):
            assert card.read(f"{queue}_{register}") == 0, (queue, register)
        card.enable(queue)
    assert card.run("lookup", opcode=Opcode.OBSERVE, **batch)["hits"] == 8
    assert card.read("EVENT_SELECT") == 0
    card.write("EVENT_SELECT", 2)
    assert card.read("EVENT_VALUE") == 77
    assert card.run("move", opcode=Opcode.NOP)["sequence"] == 1


def reaches(card, queue, state):
    """Whether STATE becomes a value, within a time that a busy machine does not exceed."""
    for _ in range(200):
        if card.read(f"{queue}_STATE") == state:
            return True
        settle(card, queue)
    return False


@pytest.mark.parametrize("command, state, how", [
    ({"opcode": BAD}, HALTED | Status.BAD_OPCODE << 8, "soft reset"),
    ({"opcode": BAD}, HALTED | Status.BAD_OPCODE << 8, "enabled again"),
    ({"opcode": Opcode.WAIT, "value": 1}, BUSY | WAITING, "soft reset"),
], ids=["halted, soft reset", "halted, enabled again", "waiting, soft reset"])
@pytest.mark.parametrize("queue", ["lookup", "move"])
def test_a_restart_forgets_what_stopped_a_queue(card, queue, command, state, how):
    card.enable(queue, halt_on_error=True)
    for _ in range(3):
        card.submit(queue, **command)
    card.ring(queue)
    assert reaches(card, queue, state)
    if how == "soft reset":
        card.write("CONTROL", 0b111)
        card.await_ready()
    card.enable(queue, halt_on_error=True)
    assert reaches(card, queue, 0)
    for register in ("TAIL", "HEAD", "COMPLETED"):
        assert card.read(f"{queue}_{register}") == 0, register
    for sequence in range(1, 4):
        assert card.run(queue, opcode=Opcode.NOP)["sequence"] == sequence
    assert card.read(f"{queue}_STATE") == 0


def test_interrupt_bits_are_set_by_completions_and_cleared_by_the_host(card):
    assert card.read("INTERRUPT") == 0
    card.run("lookup", opcode=Opcode.NOP)
    assert card.read("INTERRUPT") == 1
    card.run("move", opcode=Opcode.NOP)
    card.write("INTERRUPT", 1)
    assert card.read("INTERRUPT") == 2
    card.write("INTERRUPT", 2)
    assert card.read("INTERRUPT") == 0


@pytest.mark.parametrize("ring, handle, offset, status", [
    ("COMMANDS", 60, 0, Status.REGION),
    ("COMMANDS", 10, (1 << 15) - 64, Status.REGION),
    ("COMMANDS", 10, 16, Status.MISALIGNED),
    ("COMPLETIONS", 60, 0, Status.REGION),
    ("COMPLETIONS", 10, 0, Status.READ_ONLY),
    ("COMPLETIONS", 11, 32, Status.MISALIGNED),
])
def test_a_ring_that_cannot_be_reached_faults_the_queue(card, ring, handle, offset, status):
    card.write("MOVE_CONTROL", 0)
    card.write_wide(f"MOVE_{ring}", packed_address(handle, offset))
    card.enable("move")
    card.submit("move", opcode=Opcode.NOP)
    card.ring("move")
    settle(card, "move")
    assert card.read("MOVE_STATE") == FAULTED | status << 8
    assert card.read("MOVE_COMPLETED") == 0
    assert card.read("MOVE_HEAD") == (ring == "COMPLETIONS")
    assert card.run("lookup", opcode=Opcode.NOP)["status"] == Status.OK

    card.write("MOVE_CONTROL", 0)
    card.write_wide(f"MOVE_{ring}", packed_address(2 + (ring == "COMPLETIONS"), 0))
    card.enable("move")
    assert card.read("MOVE_STATE") == 0
    assert card.run("move", opcode=Opcode.NOP)["sequence"] == 1


@pytest.mark.parametrize("queue", ["lookup", "move"])
def test_rings_anywhere_fault_the_queue(card, queue):
    rng = np.random.default_rng(7)
    name = queue.upper()
    for _ in range(12):
        card.write(f"{name}_CONTROL", 0)
        for ring in ("COMMANDS", "COMPLETIONS"):
            handle, offset = int(rng.integers(12, 1 << 16)), int(rng.integers(1 << 42)) << 6
            card.write_wide(f"{name}_{ring}", packed_address(handle, offset))
        card.enable(queue)
        card.write(f"{name}_TAIL", 1)
        settle(card, queue)
        assert card.read(f"{name}_STATE") == FAULTED | Status.REGION << 8
        assert (card.read(f"{name}_HEAD"), card.read(f"{name}_COMPLETED")) == (0, 0)


def test_a_ring_outside_memory_faults_the_queue(card):
    card.region(40, 1 << 40, 4096)  # registered, but without memory
    card.write("MOVE_CONTROL", 0)
    card.write_wide("MOVE_COMMANDS", packed_address(40, 0))
    card.enable("move")
    card.write("MOVE_TAIL", 1)
    settle(card, "move")
    assert card.read("MOVE_STATE") == FAULTED | Status.DECERR << 8
