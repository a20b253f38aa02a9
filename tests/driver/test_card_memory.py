"""Tables in memory of the card's own, over a link or beside the host's memory.

No write of the host and no write of the card is missed: either it is seen, or an error names it.
"""

from dataclasses import replace

import hotrow
import numpy as np
import pytest
from hotrow import CommandError, DeviceError, HostWriteError, RegistrationError, TransportError
from hotrow.contract.geometry import PRESETS
from hotrow_sim.address_space import FIRST

from tests.driver.interrupts import interrupted
from tests.driver.links import DIM, ROWS, linked_device, random_table

ROW_BYTES = 4 * DIM
CARD = replace(  # small, so that its simulation is soon built
    PRESETS["tiny"], name="with-memory", card_memory_log2=18, lookup_lanes=1, lane_banks=1,
    row_ports=1, arithmetic_lanes=1, planner=False, counter_sets=16, counter_ways=2,
    directory_sets=16, miss_entries=32)
BASE = 1 << CARD.host_address_width  # of the card's memory


def opened(kind):
    """A device whose card has memory of its own: all its memory over a link, a half otherwise."""
    return linked_device() if kind == "link" else hotrow.open(kind, preset=CARD, timeout=60)


@pytest.fixture(params=[
    "link", "model", "cpu",
    pytest.param("sim", marks=[pytest.mark.slow, pytest.mark.long])])  # a card of its own
def device(request):
    with opened(request.param) as device:
        yield device


@pytest.fixture
def beside():
    """A device whose card reaches the host's memory beside its own."""
    with opened("model") as device:
        yield device


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
    weights[0, 0] = 5
    with pytest.raises(HostWriteError, match=r"bytes 0 to 3 of weights of 'users' \(row 0\)"):
        device.flush()
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


def test_only_blocks_that_the_card_wrote_are_fetched(device, monkeypatch):
    """A block may hold the end of one table and the begin of another."""
    tables = [random_table(device, seed, name=f"table {seed}")[0] for seed in range(2)]
    device.gather((tables[0], [0]))  # both are on the card
    copies, asked = device.regions.copies, []
    copies = getattr(copies, "memory", copies)
    read = copies.access.read

    def noting(spans):
        spans = list(spans)
        asked.extend((address, size) for _, address, size in spans)
        return read(spans)

    monkeypatch.setattr(copies.access, "read", noting)
    for table in tables:
        for row in (0, 1, ROWS // 2, ROWS - 1):
            device.scatter((table, [row]), np.full((1, DIM), row, np.float32))
            asked.clear()
            device.flush()
            first = table.buffers[0].device_address + row * ROW_BYTES
            assert all(0 < size <= copies._block for _, size in asked)
            assert any(at <= first and first + ROW_BYTES <= at + size for at, size in asked)
            assert len(asked) <= len(tables)


@pytest.mark.parametrize("when", ["take_written", "_read_parts"])
def test_after_an_interrupt_no_block_is_forgotten(device, monkeypatch, when):
    """The interrupt comes before the note of the blocks, or within the merge."""
    table, weights = random_table(device)
    device.scatter((table, [3, 400]), np.full((2, DIM), 7, np.float32))
    copies = device.regions.copies
    place = getattr(copies, "memory", copies)
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


def test_tables_in_either_memory_by_table(device):
    """What a command gives does not depend on where the rows are."""
    both = [random_table(device, seed, on_card, name=f"table {seed}")
            for seed, on_card in enumerate((True, False))]
    start = [weights.copy() for _, weights in both]
    rng = np.random.default_rng(5)
    rows = hotrow.RowList(rng.integers(0, 2, 60).astype(np.uint32),
                          rng.choice(ROWS, 60, replace=False).astype(np.uint32))
    picked = np.stack([start[table][row] for table, row in zip(rows.table, rows.row, strict=True)])
    assert (device.gather(rows) == picked).all()
    device.update(rows, picked, 0.5)
    device.flush()
    for number, (table, weights) in enumerate(both):
        assert table.on_card == (number == 0) or not device.reaches_host
        trained = rows.row[rows.table == number]
        start[number][trained] *= 0.5
        assert (weights == start[number]).all()


def test_where_the_memory_is(beside):
    """Tables on the card from the first address of the upper half on, others in the lower half."""
    own, _ = random_table(beside)
    other, _ = random_table(beside, on_card=False, name="items")
    assert own.buffers[0].device_address in range(BASE, BASE + 64)
    assert FIRST <= other.buffers[0].device_address < BASE
    with pytest.raises(RegistrationError, match=r"weights of 'large' cannot be registered: no room "
                                                r"for 262144 bytes in the card's memory of 262144"):
        beside.register_table(hotrow.empty((4096, DIM), np.float32), "large", on_card=True)
    large = beside.register_table(hotrow.empty((4096, DIM), np.float32), "large")
    assert not large.on_card


def test_memory_that_is_in_both_is_refused(beside):
    rows = hotrow.empty((40, DIM), np.float32)
    part = beside.register(rows[8:16])
    with pytest.raises(RegistrationError, match=r"'users' .*overlap.* buffer \d+, which was "
                                                r"registered without on_card=True"):
        beside.register_table(rows, "users", on_card=True)
    beside.unregister(part)
    beside.register_table(rows, "users", on_card=True)
    with pytest.raises(RegistrationError, match="overlap"):
        beside.register(np.lib.stride_tricks.as_strided(rows[8:], (48, DIM), rows.strides))


def test_a_read_only_table_on_the_card(device):
    """The driver sends it, and no command writes it."""
    weights = hotrow.empty((ROWS, DIM), np.float32)
    weights[:] = 3
    weights.flags.writeable = False
    table = device.register_table(weights, "fixed", on_card=True)
    assert (device.gather((table, [5, ROWS - 1])) == 3).all()
    with pytest.raises((CommandError, RegistrationError)):
        device.scatter((table, [5]), np.zeros((1, DIM), np.float32))


@pytest.mark.parametrize("size", [4, 16, 37, 4 * DIM * ROWS + 1])
def test_arrays_of_any_size(device, size):
    """Bytes beyond an array stay those of its neighbour."""
    arrays = [hotrow.empty(size, np.uint8) for _ in range(3)]
    for number, array in enumerate(arrays):
        array[:] = 17 * number + 1
        device.register(array, on_card=True)
    device.fill(hotrow.empty(4, np.uint8), 0)  # a command, before which they are sent
    arrays[1][:] = 99
    device.upload()
    device.flush()
    for number, array in enumerate(arrays):
        assert (array == (99 if number == 1 else 17 * number + 1)).all()


def test_nothing_is_copied_unless_a_command_may_have_written(beside):
    table, _ = random_table(beside)
    beside.scatter((table, [3]), np.ones((1, DIM), np.float32))
    beside.flush()
    copies = beside.statistics["COPY"]
    beside.flush()
    assert beside.statistics["COPY"] == copies
    beside.gather((table, [3]))
    beside.flush()
    assert beside.statistics["COPY"].commands == copies.commands + 1


def test_what_a_command_wrote_before_a_reset_is_fetched(beside):
    """A command that was given up may have written, although it never completed."""
    table, weights = random_table(beside)
    beside.gather((table, [0]))
    beside.flush()
    beside.scatter_async((table, [3]), np.full((1, DIM), 7, np.float32))
    beside.registers.read("STATUS")  # the model carries it out
    beside.reset()
    beside.flush()
    assert (weights[3] == 7).all()


@pytest.mark.parametrize("kind", ["model", "cpu"])
def test_closing_brings_rows_to_the_host(kind):
    with opened(kind) as device:
        table, weights = random_table(device, state=True)
        device.scatter((table, [3]), np.full((1, DIM), 7, np.float32))
        out = hotrow.empty((4, DIM), np.float32)
        device.register(out, on_card=True)
        device.gather((table, [3, 3, 3, 3]), out=out)
        device.scatter_async((table, [4]), np.full((1, DIM), 8, np.float32))
    assert (weights[3] == 7).all() and (out == 7).all()


def test_rows_that_a_card_keeps_are_named(beside, monkeypatch):
    """The card hangs when the device is closed: the error names what the host lacks."""
    table, _ = random_table(beside)
    random_table(beside, on_card=False, name="items")
    beside.scatter((table, [3]), np.full((1, DIM), 7, np.float32))

    def hang(timeout):
        raise DeviceError("the device did not become ready")
    monkeypatch.setattr(beside._commands, "_soft_reset", hang)
    with pytest.raises(TransportError, match=r"what the card wrote since the last flush\(\) is "
                                             r"lost: weights of 'users'$"):
        beside.close()
    assert beside.closed


def test_a_card_that_hangs_and_keeps_nothing(beside, monkeypatch):
    table, _ = random_table(beside)
    beside.scatter((table, [3]), np.full((1, DIM), 7, np.float32))
    beside.flush()

    def hang(timeout):
        raise DeviceError("the device did not become ready")
    monkeypatch.setattr(beside._commands, "_soft_reset", hang)
    beside.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["flush", "upload", "first command"])
def test_an_interrupt_at_any_line(what):
    """The next call continues: every write of either side arrives."""
    at, where = 0, "begin"
    while where:
        at += 7
        with opened("model") as device:
            table, weights = random_table(device)
            expected = weights.copy()
            if what == "first command":
                where = interrupted(lambda: device.gather((table, [0])), at)
            else:
                device.scatter((table, [3]), np.full((1, DIM), 7, np.float32))
                expected[3] = 7
                if what == "upload":
                    weights[400] = expected[400] = 9
                where = interrupted(getattr(device, what), at)
            rows = [3, 400, 599]
            if what == "upload":
                device.upload()
            assert (device.gather((table, rows)) == expected[rows]).all(), (at, where)
            device.flush()
            assert (weights == expected).all(), (at, where)
    assert at > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["model", "cpu"])
def test_random_writes_of_both_sides(kind, seed):
    rng = np.random.default_rng(seed)
    with opened(kind) as device:
        table, weights = random_table(device, seed)
        want = weights.copy()
        device.gather((table, [0]))
        for turn in range(30):
            rows = rng.choice(ROWS, 40, replace=False)
            values = rng.standard_normal((40, DIM)).astype(np.float32)
            mine = rng.random(40) < 0.5 * (turn % 2)
            want[rows] = values
            device.flush()  # before the host writes to what the card wrote
            if not mine.all():
                device.scatter((table, rows[~mine]), values[~mine])
            if mine.any():
                weights[rows[mine]] = values[mine]
                with pytest.raises(HostWriteError):
                    device.flush()
                device.upload()
            else:
                device.flush()
                assert (weights == want).all(), f"seed {seed}, turn {turn}"
        assert (device.gather((table, np.arange(ROWS))) == want).all(), f"seed {seed}"
        assert (table.weights == want).all(), f"seed {seed}"


@pytest.mark.parametrize("kind", ["link", "model", "cpu"])
def test_what_the_card_wrote_comes_home_at_the_end_beside_a_write_of_the_host(kind):
    device = opened(kind)
    tables = [random_table(device, seed, name=name) for seed, name in enumerate(("one", "two"))]
    for table, _ in tables:
        device.scatter((table, [9]), np.full((1, DIM), 3, np.float32))
    tables[0][1][20] = 5
    with pytest.raises(HostWriteError, match="'one'"):
        device.close()
    assert device.closed and (tables[0][1][20] == 5).all()
    assert all((weights[9] == 3).all() for _, weights in tables)
