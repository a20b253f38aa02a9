"""Futures, the order of commands, events between the queues, time-outs and recovery."""

import threading

import hotrow
import numpy as np
import pytest
from hotrow import CommandError, DeviceError, Future, Status, TransportError
from hotrow.contract.generated import REGISTERS, ControlBits, QueueStateBits, StatusBits
from hotrow.contract.records import COMPLETION
from hotrow.memory.registers import describe_state

from tests.driver.conftest import picked, random_ids, register_tables, usable

CARDS = "model", "cpu", "sim", "sim-tiny", "pcie", "uart", "network"


def lose_rings(device, queue):
    """Make a queue's rings unreachable, as a host that unmaps them would; return the remedy."""
    ring = device._commands.queues[queue]._ring
    write = device.registers.write

    def commit(bits):
        write("REGION_HANDLE", ring.handle)
        device.registers.write_wide("REGION_BASE", ring.device_address)
        device.registers.write_wide("REGION_SIZE", ring.nbytes)
        write("REGION_COMMIT", bits)

    commit(0)
    return lambda: commit(0b11)


@pytest.mark.parametrize("name", ["plan", "plan_async"])
def test_calls_have_their_names(name):
    call = getattr(hotrow.Device, name)
    assert (call.__name__, call.__qualname__) == (name, f"Device.{name}")


@pytest.mark.slow
def test_futures_complete_in_order(device, tables):
    futures = [device.split_async(random_ids(50, seed)) for seed in range(10)]
    assert futures[-1].result().lookups == 150
    assert all(future.done() for future in futures), "an earlier command of the queue is done"
    assert [future.cycles > 0 for future in futures] == [True] * 10
    sync = [device.split(random_ids(50, seed)) for seed in range(10)]
    for future, split in zip(futures, sync, strict=True):
        assert (future.result().order == split.order).all()
        assert future.result() is future.result()


def test_more_commands_than_the_ring_holds(transport):
    with hotrow.open(transport, preset="tiny", ring_entries=4) as device:
        device.register_table(hotrow.empty((9, 4), np.float32))
        futures = [device.observe_async(np.full((1 + i, 1), i % 9)) for i in range(23)]
        assert [future.result().lookups for future in futures] == list(range(1, 24))
        assert device.harvest(9).count.sum() == sum(range(1, 24))


@pytest.mark.parametrize("before", [1, 3, 30])
def test_more_commands_than_the_counters_hold(before):
    """TAIL, HEAD, COMPLETED, tags and sequence numbers wrap at 2**32."""
    with hotrow.open("model", preset="tiny", ring_entries=4) as device:
        device.register_table(hotrow.empty((9, 4), np.float32))
        start = (1 << 32) - before
        queue = device.transport.queues["lookup"]
        queue.tail = queue.head = queue.completed = start
        device._commands.queues["lookup"]._completed = start
        futures = [device.observe_async(np.full((1 + i, 1), i % 9)) for i in range(23)]
        assert [future.result().lookups for future in futures] == list(range(1, 24))
        landed = device.registers.read("LOOKUP_COMPLETED")
        assert landed == device.registers.read("LOOKUP_TAIL") == (start + 23) % (1 << 32)


def test_queues_overlap_and_events_order_them(device, tables):
    """Batch i + 1 is split while the rows that batch i missed are moved."""
    batches = [random_ids(30, seed) for seed in range(6)]
    moved, previous = [], None
    for i, ids in enumerate(batches):
        split = device.split_async(ids)
        if previous is not None:
            device.wait_event_async(0, i, queue="move")
            moved.append((previous, device.gather_async(previous.misses)))
            device.signal_async(1, i, queue="move")
        device.signal_async(0, i + 1, queue="lookup")
        previous = split.result()
    for split, rows in moved:
        assert (rows.result() == picked(tables, split.misses)).all()
    for queue in "lookup", "move":
        device.fence(queue=queue)  # the last signals may come after the last result
    assert device.read_event(0) == 6 and device.read_event(1) == 5


def test_a_wait_holds_its_queue_only(device, tables):
    held = device.wait_event_async(2, 5, queue="move")
    rows = device.gather_async((tables[0], [3]))
    assert device.split([[0, 0, 0]]).lookups == 3
    assert not held.done() and not rows.done()
    device.signal(2, 4, queue="lookup")
    assert not rows.done(), "4 is not 5"
    device.signal(2, 5, queue="lookup")
    assert (rows.result() == tables[0].weights[3]).all() and held.done()


def test_events_wrap(device):
    device.write_event(3, 0xFFFF_FFFE)
    held = device.wait_event_async(3, 1, queue="lookup")
    assert not held.done()
    device.write_event(3, 2)
    held.result()
    device.wait_event(3, 2, queue="move")


def test_fence_and_cycles(device, tables):
    pending = [device.observe_async(random_ids(20, seed)) for seed in range(3)]
    before = device.cycle()
    device.fence(queue="lookup")
    assert all(future.done() for future in pending)
    assert device.cycle() > before


def test_statistics_add_up(device, tables):
    futures = [device.observe_async(random_ids(20, seed)) for seed in range(3)]
    cycles = sum(future.result().cycles for future in futures)
    assert device.statistics == {"OBSERVE": (3, cycles)}
    assert device.statistics["OBSERVE"].cycles == cycles > 0


def test_timeout_names_command_state_and_remedy(device, tables):
    held = device.wait_event_async(1, 7, queue="lookup")
    with pytest.raises(hotrow.TimeoutError, match=r"WAIT on the lookup queue .* 0.05 s .*waiting "
                       r"for an event; .*abort_wait\(queue='lookup'\)") as caught:
        held.result(timeout=0.05)
    assert isinstance(caught.value, TimeoutError), "the built-in one too"
    later = device.observe_async([[0, 0, 0]])
    with pytest.raises(hotrow.TimeoutError, match="OBSERVE on the lookup queue"):
        later.result(0.05)
    assert device.abort_wait(queue="lookup")
    with pytest.raises(CommandError, match="WAIT ended with ABORTED") as caught:
        held.result()
    assert caught.value.status is Status.ABORTED
    assert later.result().lookups == 3
    assert not device.abort_wait(queue="lookup"), "nothing waits"


def test_timeout_with_a_full_ring(transport):
    with hotrow.open(transport, preset="tiny", ring_entries=2, timeout=30) as device:
        device.wait_event_async(0, 1, queue="lookup")
        last = device.fence_async(queue="lookup")
        device.timeout = 0.05
        with pytest.raises(hotrow.TimeoutError, match="its ring of 2 commands is full"):
            device.fence_async(queue="lookup")
        device.timeout = 30
        device.write_event(0, 1)
        last.result()
        device.fence(queue="lookup")


def test_another_thread_signals(device, tables):
    held = device.wait_event_async(4, 1, queue="lookup")
    thread = threading.Timer(0.1, lambda: device.signal(4, 1, queue="move"))
    thread.start()
    held.result(30)
    thread.join()
    assert device.read_event(4) == 1


@pytest.mark.slow
def test_threads_share_a_device(device, tables):
    results, ids = {}, {seed: random_ids(20, seed) for seed in range(16)}

    def work(seed):
        results[seed] = [device.split(ids[seed]).misses.row.tolist() for _ in range(2)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in ids:
        assert results[seed] == [device.split(ids[seed]).misses.row.tolist()] * 2


def test_reset_gives_up_what_is_under_way(device, tables):
    device.observe([[0, 0, 0]])
    slots = device.install((tables[0], [0])).slots
    futures = [device.wait_event_async(0, 1, queue="lookup"), device.observe_async([[1, 1, 1]]),
               device.wait_event_async(0, 1, queue="move"), device.gather_async((tables[0], [1]))]
    device.reset()
    for future in futures:
        assert future.done() and future.cycles is None
        with pytest.raises(DeviceError, match="device was reset while this command was under way"):
            future.result()
    assert device.harvest(10).count.tolist() == [1, 1, 1], "the counters kept their contents"
    assert device.split([[0, 1, 1]]).slots[0] == slots[0], "the directory kept its contents"
    assert usable(device, tables)


@pytest.mark.parametrize("queue", ["lookup", "move"])
def test_a_faulted_queue(device, tables, queue):
    remedy = lose_rings(device, queue)
    pending = device.fence_async(queue=queue)
    with pytest.raises(DeviceError, match=rf"{queue} queue: .*faulted: its rings .*status REGION.*"
                       r"Device.reset\(\)"):
        pending.result()
    assert pending.done()
    with pytest.raises(DeviceError, match="faulted"):
        device.fence(queue=queue)
    device.fence(queue="move" if queue == "lookup" else "lookup")
    remedy()
    device.reset()
    assert usable(device, tables)


def test_rings_overwritten(device, tables):
    queue, completed = device._commands.queues["lookup"], device.registers.read("LOOKUP_COMPLETED")
    pending = device.fence_async(queue="lookup")
    later = device.wait_event_async(0, 1, queue="lookup")
    while device.registers.read("LOOKUP_COMPLETED") == completed:
        device.transport.wait(0, completed, 0.01)
    np.frombuffer(queue._completions, COMPLETION)["sequence"][completed] = 99
    if not device.reaches_host:
        device.transport.send(queue._ring.device_address, queue._ring.nbytes)
    with pytest.raises(DeviceError, match=r"completion 2 .* sequence 99: the rings were over"):
        pending.result()
    assert later.done(), "later commands are given up too"
    device.reset()
    assert usable(device, tables)


def test_memory_timeout_reaches_the_card(transport):
    for option, cycles in ({}, 1 << 20), ({"memory_timeout": 5000}, 5000):
        with hotrow.open(transport, preset="tiny", **option) as device:
            assert device.registers.read("TIMEOUT") == cycles


@pytest.mark.parametrize("status, resets", [
    ([0] * 3, 1), ([StatusBits.READY | StatusBits.ROW_WRITES] * 2, 3),
    ([StatusBits.LIST_PORT] * 2, 1), ([], 1)])
def test_a_reset_waits_until_the_device_is_ready(monkeypatch, status, resets):
    """And is repeated where a memory answered late, after the ports were ready."""
    with hotrow.open("model", preset="tiny", timeout=30) as device:
        tables, transport, coming = register_tables(device), device.transport, list(status)
        read, write, written = transport.read_register, transport.write_register, []
        with monkeypatch.context() as patch:
            patch.setattr(transport, "read_register", lambda offset: (
                coming.pop() if coming and offset == REGISTERS["STATUS"] else read(offset)))
            patch.setattr(transport, "write_register", lambda *access: (
                written.append(access), write(*access)))
            device.reset()
        assert not coming and usable(device, tables)
        assert written.count((REGISTERS["CONTROL"], ControlBits.SOFT_RESET)) == resets


def test_a_reset_of_a_device_that_is_not_ready_ends(monkeypatch):
    with hotrow.open("model", preset="tiny", timeout=0.1) as device:
        tables, read = register_tables(device), device.transport.read_register
        with monkeypatch.context() as patch:
            patch.setattr(device.transport, "read_register", lambda offset: (
                0 if offset == REGISTERS["STATUS"] else read(offset)))
            with pytest.raises(DeviceError, match=r"not become ready in 0\.1 s .*power-up reset"):
                device.reset()
        device.reset()
        assert usable(device, tables)


def test_a_transport_that_breaks_down(device, tables, monkeypatch):
    def broken(*_):
        raise OSError("the link is down")

    with monkeypatch.context() as patch:
        patch.setattr(device.transport, "read_register", broken)
        with pytest.raises(TransportError, match=r"transport '.*': the link is down"):
            device.fence(queue="lookup")
    assert usable(device, tables)


def test_close_gives_up_what_is_under_way(transport):
    device = hotrow.open(transport, preset="tiny")
    held = device.wait_event_async(0, 1, queue="lookup")
    device.close()
    with pytest.raises(DeviceError, match="device was closed while"):
        held.result()


def waiting_in_a_thread(device, monkeypatch, inside):
    """Start to wait for an event that nobody signals, and call `inside` in the transport's first
    wait: (thread, list for the error)."""
    wait, entered, errors = device.transport.wait, threading.Event(), []

    def watched(*arguments):
        if not entered.is_set():
            entered.set()
            inside()
        wait(*arguments)

    def work():
        try:
            held.result()
        except DeviceError as error:
            errors.append(error)

    monkeypatch.setattr(device.transport, "wait", watched)
    held = device.wait_event_async(0, 1, queue="lookup")
    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(60)
    return thread, errors


def test_other_threads_use_a_card_in_software_during_a_wait(monkeypatch):
    """The driver does not hold its lock while it waits for the card."""
    with hotrow.open("cpu", preset="tiny") as device:
        table = device.register_table(hotrow.empty((9, 4), np.float32))
        used, in_time = threading.Event(), []
        thread, errors = waiting_in_a_thread(
            device, monkeypatch, lambda: in_time.append(used.wait(20)))
        assert device.gather((table, [3])).shape == (1, 4)
        used.set()
        device.write_event(0, 1)
        thread.join()
        assert in_time == [True] and not errors


def test_a_card_in_software_is_closed_during_a_wait(monkeypatch):
    device, closed = hotrow.open("cpu", preset="tiny"), threading.Event()
    thread, errors = waiting_in_a_thread(device, monkeypatch, lambda: closed.wait(20))
    device.close()
    closed.set()
    thread.join()
    assert "device was closed while" in str(errors[0])


def test_a_card_in_software_ends_after_its_waits():
    for _ in range(20):
        card = hotrow.open("cpu", preset="tiny").transport
        begun = threading.Barrier(4)

        def wait(card=card, begun=begun):
            begun.wait()
            while not card._closed:
                card.wait(0, 0, 0.01)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait()
        card.close(), card.close()
        card.wait(0, 0, 100)  # of a card that has ended
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()


def test_a_future_without_a_command():
    future = Future.of(5)
    assert future.done() and future.result() == 5 and future.cycles is None


@pytest.mark.parametrize("array", [
    np.zeros(64, np.int8), np.zeros((2, 64), np.uint8), np.zeros(128, np.uint8)[::2]],
    ids=["type", "two dimensions", "every other byte"])
def test_only_contiguous_bytes_are_attached(device, array):
    with pytest.raises(ValueError, match="contiguous one-dimensional uint8 array, not "):
        device.transport.attach(array, True)


@pytest.mark.parametrize("state, words", [
    (0, "idle"), (QueueStateBits.BUSY, "busy"), (QueueStateBits.WAITING, "wait"),
    (QueueStateBits.FAULTED, "fault")])
def test_a_state_in_words(state, words):
    assert words in describe_state(int(state))


def test_a_listener_may_use_the_device(device, tables):
    """Also the queue of the completed command, with others under way."""
    completed, within = [], []

    def listen(queue, completion):
        completed.append((queue, completion["opcode"]))
        if len(completed) < 4 and not within:
            within.append(device.unregister(device.register(hotrow.empty(16, np.float32))))
            device.fence(queue="move")
            within.clear()

    device.listeners.append(listen)
    try:
        futures = [device.gather_async((tables[0], [row])) for row in range(3)]
        futures.append(device.wait_event_async(0, 0, queue="move"))
        futures += [device.gather_async((tables[0], [row])) for row in range(3)]
        results = [future.result() for future in futures]
    finally:
        device.listeners.remove(listen)
    assert [rows[0, 0] for rows in results[:3]] == tables[0].weights[:3, 0].tolist()
    assert len(completed) >= len(futures) and not device._commands.queues["move"].outstanding


@pytest.mark.parametrize("seconds", [float("nan"), -1, "x", [1]])
def test_a_limit_of_a_wait_is_a_number_of_seconds(device, tables, seconds):
    before, future = device.timeout, device.gather_async((tables[0], [1]))
    with pytest.raises(DeviceError, match="timeout must be 0 seconds or more"):
        device.timeout = seconds
    with pytest.raises(DeviceError, match="timeout must be 0 seconds or more"):
        device.wait_event_async(1, 1, queue="lookup").result(seconds)
    device.abort_wait(queue="lookup")
    assert device.timeout == before
    assert future.result(np.float32(5))[0, 0] == tables[0].weights[1, 0]
