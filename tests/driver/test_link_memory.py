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
from hotrow.transports.link.memory_access import copies_over
from hotrow.transports.link.session import Session

from tests.driver.interrupts import interrupted
from tests.driver.links import DIM, ROWS, RoughChannel, linked_device, model_card, random_table

ROUGH = {"loss": 0.05, "repeat": 0.05, "damage": 0.03, "reorder": 0.1}
ROW_BYTES, BLOCK = 4 * DIM, 256


@pytest.fixture
def device():
    with linked_device() as device:
        yield device


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


def test_a_write_of_the_host_between_two_commands_reaches_an_array_of_both(device):
    table, weights = random_table(device, on_card=False)
    assert (device.gather((table, [7])) == weights[7]).all()
    weights[7] = 5
    assert (device.gather((table, [7])) == 5).all()
    device.scatter((table, [8]), np.full((1, DIM), 6, np.float32))
    assert (weights[8] == 6).all()


def test_a_card_without_room_names_what_does_not_fit():
    with linked_device(memory_bytes=1 << 16) as device:
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
    device = linked_device(patience=0.001)
    table, _ = random_table(device)
    device.scatter((table, [1]), np.zeros((1, DIM), np.float32))
    device.transport._channel._endpoint.answer = lambda frame: None
    with pytest.raises(TransportError, match=r"what the card wrote since the last flush\(\) is "
                                             r"lost: weights of 'users'"):
        device.close()
    device.close()


@pytest.mark.slow
def test_an_interrupt_at_any_line_of_a_wait_hides_no_write_of_the_card():
    rng, at, where = np.random.default_rng(1), 0, "begin"
    with linked_device(patience=1e-3) as device:
        table, weights = random_table(device)
        out = hotrow.empty((5, DIM), np.float32)
        device.register(out)
        while where:
            at, rows = at + 1, rng.integers(0, ROWS, 5)
            future = device.gather_async((table, rows), out=out)
            where = interrupted(future.result, at)
            assert (future.result(9) == weights[rows]).all(), where
    assert at > 300


@pytest.mark.slow
def test_after_an_interrupt_no_two_arrays_share_a_place_on_the_card():
    """It comes at any line of `unregister`; a copy that stays has its array."""
    at, where = 0, "begin"
    with linked_device(patience=1e-3) as device:
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
    memory = copies_over(session)
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
