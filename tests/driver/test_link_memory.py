"""Tables on the card over a link: sent once, flushed by the blocks that the card wrote.

No write of the host and no write of the card is missed: either it is seen, or an error names it.
"""

import weakref
from contextlib import suppress

import hotrow
import numpy as np
import pytest
from hotrow import HostWriteError, RegistrationError, TransportError
from hotrow.contract.records import COMMAND, COMPLETION
from hotrow.device import Device
from hotrow.transports.link.card_memory import CardMemory
from hotrow.transports.link.session import Session
from hotrow.transports.link.transport import LinkTransport

from tests.driver.interrupts import interrupted
from tests.driver.links import RoughChannel, model_card

ROUGH = {"loss": 0.05, "repeat": 0.05, "damage": 0.03, "reorder": 0.1}
ROWS, DIM = 600, 16
ROW_BYTES, BLOCK = 4 * DIM, 256


def opened(patience=60.0, memory_bytes=1 << 20, seed=0, **rough):
    """A device on a link to a golden card."""
    channel = RoughChannel(model_card(memory_bytes=memory_bytes).endpoint(), seed, **rough)
    return Device(LinkTransport("link", channel, patience, 50), 60.0, 4, 1 << 20)


@pytest.fixture
def device():
    with opened() as device:
        yield device


def random_table(device, seed=1, on_card=True, state=False, name="users"):
    """A table of random rows: (Table, its weights as the caller has them)."""
    weights = hotrow.empty((ROWS, DIM), np.float32)
    weights[:] = np.random.default_rng(seed).standard_normal(weights.shape)
    kept = None
    if state:
        kept = hotrow.empty(ROWS, np.float32)
        kept[:] = 1
    return device.register_table(weights, name, kept, on_card=on_card), weights


def test_a_step_moves_no_table(device):
    """The table crosses once; then a command moves its lists and its rows."""
    table, _ = random_table(device)
    device.gather((table, [0]))
    memory = device.transport.memory
    before = memory.access.sent, memory.access.fetched
    rows = np.arange(0, 600, 60)
    found = device.gather((table, rows))
    device.scatter((table, rows), found + 1)
    up, down = memory.access.sent - before[0], memory.access.fetched - before[1]
    lists, moved = 2 * 8 * len(rows), len(rows) * ROW_BYTES
    assert up == 2 * COMMAND.itemsize + lists + moved
    assert down == 2 * COMPLETION.itemsize + moved


def test_the_host_has_the_card_s_rows_after_a_flush(device):
    table, weights = random_table(device)
    rows, before = [3, 4, 77, 599], weights.copy()
    device.scatter((table, rows), before[rows] * 2)
    assert (weights == before).all(), "the host's rows are those of the last flush"
    memory = device.transport.memory
    fetched = memory.access.fetched
    device.flush()
    before[rows] *= 2
    assert (weights == before).all()
    assert memory.access.fetched - fetched <= len(rows) * BLOCK, "blocks that hold these rows"
    fetched = memory.access.fetched
    device.flush()
    assert memory.access.fetched == fetched, "nothing was written since"


def test_weights_and_state_of_a_table_are_up_to_date(device):
    table, weights = random_table(device, state=True)
    expected = weights.copy()
    device.update((table, [5]), np.ones((1, DIM), np.float32), 0.5, optimizer="rowwise_adagrad")
    assert table.state[5] == 2 and (np.delete(table.state, 5) == 1).all()
    assert (table.weights[5] != expected[5]).all()
    assert (np.delete(table.weights, 5, 0) == np.delete(expected, 5, 0)).all()


def test_a_table_comes_home_when_it_is_unregistered(device):
    table, weights = random_table(device)
    device.scatter((table, [9]), np.full((1, DIM), 4, np.float32))
    device.unregister_table(table)
    assert (weights[9] == 4).all()
    assert (table.weights[9] == 4).all(), "the host's own again"


def test_a_registered_array_comes_home_too(device):
    """Also with a part of it that was registered once more, which is on the card like all of it."""
    array = hotrow.empty((40, DIM), np.float32)
    array[:] = 1
    whole = device.register(array, on_card=True)
    part = device.register(array[8:16])
    assert part.on_card
    device.fill(array[8:12], 5)
    device.unregister(part)
    assert (array[8:12] == 5).all() and (array[12:] == 1).all()
    device.fill(array[20:24], 6)
    device.unregister(whole)
    assert (array[20:24] == 6).all()


def test_a_write_of_the_host_between_two_commands_reaches_an_array_of_both(device):
    table, weights = random_table(device, on_card=False)
    assert (device.gather((table, [7])) == weights[7]).all()
    weights[7] = 5
    assert (device.gather((table, [7])) == 5).all()
    device.scatter((table, [8]), np.full((1, DIM), 6, np.float32))
    assert (weights[8] == 6).all()


def test_a_write_of_the_host_to_a_table_on_the_card_is_refused_or_uploaded(device):
    table, weights = random_table(device)
    other, others = random_table(device, 2, name="items")
    device.gather((table, [7]))
    weights[7, 3], others[9] = 5, 6
    with pytest.raises(HostWriteError, match=r"the host wrote to bytes 460 to 463 of weights of "
                                             r"'users' \(row 7\), which is on the card: call "
                                             r"upload\(\)") as caught:
        device.flush()
    assert (caught.value.first, caught.value.both) == (7 * ROW_BYTES + 12, False)
    with pytest.raises(HostWriteError, match="'users'"):
        table.weights  # noqa: B018
    device.upload()
    device.flush()
    assert device.gather((table, [7]))[0, 3] == 5 and (device.gather((other, [9])) == 6).all()


def test_rows_that_host_and_card_both_wrote_are_refused(device):
    table, weights = random_table(device)
    before = weights.copy()
    device.scatter((table, [7, 8]), np.full((2, DIM), 2, np.float32))
    weights[7, 1] = 9
    with pytest.raises(HostWriteError, match=r"the host and the card both wrote to bytes 452 to "
                                             r"455 .* \(row 7\)") as caught:
        device.upload()
    assert caught.value.both and (weights[8] == before[8]).all(), "nothing was merged"
    weights[7, 1] = before[7, 1]
    device.upload()
    assert (weights[7:9] == 2).all()


def test_writes_of_host_and_card_in_one_block_are_merged(device):
    table, weights = random_table(device)
    device.scatter((table, [8]), np.full((1, DIM), 2, np.float32))
    weights[9] = 3
    device.upload()
    assert (weights[8] == 2).all() and (device.gather((table, [9])) == 3).all()
    device.flush()


def test_arrays_within_a_table_on_the_card_are_used_there(device):
    """The host's bytes are not up to date: the card reads and writes its own."""
    _, weights = random_table(device)
    source, target = random_table(device, 2, name="source")[0], weights[100:104]
    device.gather((source, [1, 2, 3, 4]), out=target)
    device.scatter((source, [11, 12, 13, 14]), target)
    device.update((source, [21]), target[:1], 1.0)
    device.copy(weights[100], weights[200])
    pooled = device.pool((source, [1, 2]), lengths=[2], out=weights[300:301])
    device.flush()
    rows = source.weights
    assert (weights[100:104] == rows[1:5]).all() and (rows[11:15] == rows[1:5]).all()
    assert (weights[200] == rows[1]).all() and (pooled == rows[1] + rows[2]).all()
    assert (weights[300] == rows[1] + rows[2]).all()


def test_what_the_card_cannot_use_where_it_is_is_refused(device):
    _, weights = random_table(device)
    source, _ = random_table(device, 2, name="source")
    upside_down = weights[100:104][::-1]
    for call in (lambda: device.gather((source, [1, 2, 3, 4]), out=upside_down),
                 lambda: device.scatter((source, [1, 2, 3, 4]), upside_down),
                 lambda: device.update((source, [1, 2, 3, 4]), upside_down, 1.0)):
        with pytest.raises(RegistrationError):
            call()
    with pytest.raises(RegistrationError, match=r"which was registered without on_card=True"):
        whole = hotrow.empty((ROWS, DIM), np.float32)
        device.register(whole)
        device.register_table(whole[:10], "part", on_card=True)
    device.flush()


def test_a_card_without_room_names_what_does_not_fit():
    with opened(memory_bytes=1 << 16) as device:
        table, weights = random_table(device)
        for on_card in (True, False):
            with pytest.raises(RegistrationError, match=r"weights of 'large' cannot be registered: "
                                                        r"no room for 65536 bytes in the card's "
                                                        r"memory of 65536"):
                device.register_table(hotrow.empty((1024, DIM), np.float32), "large",
                                      on_card=on_card)
        with pytest.raises(RegistrationError, match=r"staging slab \d+ cannot be registered: no "
                                                    r"room for"):
            device.gather((table, np.zeros(600, np.int64).repeat(2)))
        assert (device.gather((table, [1, 2])) == weights[1:3]).all()


@pytest.mark.parametrize("uses", [1, 3])
def test_a_detached_array_gives_its_place_back(device, uses):
    """More bytes are attached, one array after the other, than the card holds."""
    memory = device.transport.memory
    for _ in range(40):
        array = np.zeros(1 << 16, np.uint8)
        addresses = [memory.attach(array) for _ in range(uses)]
        for address in addresses:
            memory.detach(address)


def test_a_slab_is_smaller_where_the_card_is_nearly_full(device):
    """Slabs grow with their number; what a command needs still fits."""
    table, weights = random_table(device)
    device.gather((table, np.arange(200)))
    ranges = device.transport.memory._ranges
    first = ranges._used[-1][1]
    ranges.place(0, ranges._end - first - 5000)
    rows = np.arange(60)  # 3,840 bytes; another slab would have 16 KB
    assert (device.gather((table, rows)) == weights[rows]).all()
    assert ranges._end - ranges._used[-1][1] < 1000


def test_a_line_that_is_gone_takes_rows_along_by_name():
    device = opened(patience=0.001)
    table, _ = random_table(device)
    device.scatter((table, [1]), np.zeros((1, DIM), np.float32))
    device.transport._channel._endpoint.answer = lambda frame: None
    with pytest.raises(TransportError, match=r"what the card wrote since the last flush\(\) is "
                                             r"lost: weights of 'users'"):
        device.close()
    device.close()


@pytest.mark.parametrize("when", ["take_written", "_read_parts"])
def test_after_an_interrupt_no_block_is_forgotten(device, monkeypatch, when):
    """The interrupt comes before the note of the blocks, or within the merge."""
    table, weights = random_table(device)
    device.scatter((table, [3, 400]), np.full((2, DIM), 7, np.float32))
    place = device.transport.memory
    place = place.access if when == "take_written" else place
    answer = getattr(place, when)

    def interrupted(*arguments):
        answer(*arguments)
        if when == "_read_parts":
            weights[3] = 7  # as the merge begins
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, when, interrupted)
        with pytest.raises(KeyboardInterrupt):
            device.flush()
    device.flush()
    assert (weights[[3, 400]] == 7).all()


def test_an_interrupt_at_any_line_of_a_wait_hides_no_write_of_the_card():
    rng, at, where = np.random.default_rng(1), 0, "begin"
    with opened(patience=1e-3) as device:
        table, weights = random_table(device)
        out = hotrow.empty((5, DIM), np.float32)
        device.register(out)
        while where:
            at, rows = at + 1, rng.integers(0, ROWS, 5)
            future = device.gather_async((table, rows), out=out)
            where = interrupted(future.result, at)
            assert (future.result(9) == weights[rows]).all(), where
    assert at > 300


def test_after_an_interrupt_no_two_arrays_share_a_place_on_the_card():
    """It comes at any line of `unregister`; a copy that stays has its array."""
    at, where = 0, "begin"
    with opened(patience=1e-3) as device:
        memory = device.transport.memory
        while where:
            at, array = at + 1, hotrow.empty(1 << 10, np.uint8)
            buffer, alive = device.register(array), weakref.ref(array)
            where, first = interrupted(lambda one=buffer: device.unregister(one), at), buffer.host
            others = [device.register(hotrow.empty(700, np.uint8)[16:]) for _ in range(2)]
            with suppress(RegistrationError):  # the call had done its work
                device.unregister(buffer)
            del array, buffer
            copies = sorted(memory._arrays.items())
            ends = [home + copy.octets.size for home, copy in copies]
            assert all(end <= home for end, (home, _) in zip(ends, copies[1:], strict=False)), where
            left = [home for home, copy in copies if copy.host == first]
            assert not left or alive() is not None, where
            for other in others:
                device.unregister(other)
            for home in left:
                del memory._arrays[home]
            memory._ranges._used = [(home, home + copy.octets.size)  # the interrupt may lose one
                                    for home, copy in sorted(memory._arrays.items())]
    assert at > 50


@pytest.mark.parametrize("seed", range(3))
def test_flush_and_upload_over_a_rough_line(seed):
    """Host and card write at random to one table: after each exchange both have every write."""
    rng = np.random.default_rng(seed)
    card = model_card(memory_bytes=1 << 16)
    session = Session(RoughChannel(card.endpoint(), seed, **ROUGH), 0.001, 50)
    memory = CardMemory(session)
    host = rng.integers(0, 256, 20_000).astype(np.uint8)
    place = memory.attach(host, True, "card") - card.link.memory_base
    on_card = card.memory[place:place + host.size]
    memory.push(alone=True)
    want = host.copy()
    for turn in range(20):
        for word in rng.choice(host.size // 4, 40, replace=False).tolist():
            part, mine = slice(4 * word, 4 * word + 4), turn % 2 and word % 2
            want[part] = rng.integers(0, 256, 4)
            (host if mine else on_card)[part] = want[part]
        memory.push(alone=True)
        memory.pull()
        if turn % 2:
            with pytest.raises(HostWriteError):
                memory.flush()
            memory.upload()
        else:
            memory.flush()
        assert (host == want).all() and (on_card == want).all(), (seed, turn)


def test_where_the_card_reaches_the_host_nothing_changes():
    with hotrow.open("model", preset="tiny") as device:
        table, weights = random_table(device)
        device.scatter((table, [3]), np.full((1, DIM), 7, np.float32))
        assert (weights[3] == 7).all()
        weights[4] = 8
        device.flush()
        device.upload()
        assert (device.gather((table, [4])) == 8).all()
