"""Tables, buffers and regions: what can be registered, and what happens when it changes."""

import hotrow
import numpy as np
import pytest
from hotrow import Opcode, PaddedCopyWarning, RegistrationError, Status
from hotrow.operands.table import _weights

from tests.driver.conftest import BOARDS, raw, register_tables, usable

CARDS = "model", "cpu", "uart", "network"  # the host checks


def misaligned(rows=4, dim=8):
    memory = hotrow.empty(rows * dim + 1, np.float32)
    return memory[1:].reshape(rows, dim)


def test_the_array_is_the_table(device):
    weights = hotrow.empty((10, 4), np.float32)
    table = device.register_table(weights)
    assert table.weights is weights and device.tables == (table,)
    assert (table.number, table.name, table.rows, table.dim, table.element) == (
        0, "table0", 10, 4, "fp32")
    weights[:] = 5
    assert (device.gather((table, [9])) == 5).all(), "the device sees later writes"


def test_a_file_is_the_table(device, tmp_path):
    """A table may be larger than memory: the system keeps pages of the file that are in use."""
    weights = np.memmap(tmp_path / "table", np.float32, "w+", shape=(50, 16))
    weights[:] = np.arange(50)[:, None]
    table = device.register_table(weights)
    assert (device.gather((table, [49, 3]))[:, 0] == [49, 3]).all()
    device.scatter((table, [7]), np.full((1, 16), 9, np.float32))
    device.fence(queue="move")
    weights.flush()
    assert np.fromfile(tmp_path / "table", np.float32).reshape(50, 16)[6:9, 0].tolist() == [6, 9, 8]
    device.unregister_table(table)
    weights.flags.writeable = False
    with pytest.raises(RegistrationError, match="read"):
        device.scatter((device.register_table(weights), [7]), np.zeros((1, 16), np.float32))


@pytest.mark.parametrize("weights, message", [
    (lambda: misaligned(), "not a multiple of 16 bytes: allocate .* hotrow.empty"),
    (lambda: hotrow.empty((4, 4), np.float64), "float32, float16 or bfloat16, not float64"),
    (lambda: hotrow.empty((4, 4), ">f4"), "not float32 in another byte order than the host"),
    (lambda: hotrow.empty(16, np.float32), r"\[rows, dim\].* not of shape \(16,\)"),
    (lambda: hotrow.empty((0, 4), np.float32), r"at least one of each"),
    (lambda: hotrow.empty((4, 512), np.float32), "2048 bytes: this card carries at most "),
    (lambda: hotrow.empty((8, 8), np.float32).T, "each row of 'w' must be contiguous"),
    (lambda: hotrow.empty((8, 8), np.float32)[::-1], "must be contiguous"),
    (lambda: hotrow.empty((3, 20000), np.float32)[:, :8], "80000 bytes apart: the limit is 65520"),
])
def test_weights_that_the_card_cannot_carry(device, tables, weights, message):
    with pytest.raises(RegistrationError, match=message):
        device.register_table(weights(), name="w")
    assert len(device.tables) == 3 and usable(device, tables)


@pytest.mark.parametrize("state, message", [
    (lambda: hotrow.empty(5, np.float32), "with 4 rows, not of shape .5,."),
    (lambda: hotrow.empty((4, 3), np.float32), "12 bytes a row: expected 4, 8, 16, 32"),
    (lambda: hotrow.empty((4, 2), np.float32)[:, 0], "must be a contiguous"),
    (lambda: hotrow.empty(5, np.float32)[1:], "state of 'w' starts at .* not a multiple of 16"),
])
def test_state_that_the_card_cannot_carry(device, tables, state, message):
    handle = device.register(hotrow.empty(64, np.uint8)).handle
    with pytest.raises(RegistrationError, match=message):
        device.register_table(hotrow.empty((4, 4), np.float32), name="w", state=state())
    following = device.register(hotrow.empty(64, np.uint8)).handle
    assert following == handle + 1, "the region of the weights was given back"
    assert len(device.tables) == 3 and usable(device, tables)


def test_names_are_unique(device, tables):
    with pytest.raises(RegistrationError, match="a table named 't1' already"):
        device.register_table(hotrow.empty((4, 4), np.float32), name="t1")


@pytest.mark.parametrize("partition", [(0, 3), (2, 2), (-1, 2), (0, 16), (0, 0)])
def test_partitions(device, partition):
    with pytest.raises(RegistrationError, match=r"\(part, parts\) with parts .* up to "
                       f"{device.geometry.directory_partitions} and"):
        device.register_table(hotrow.empty((4, 4), np.float32), partition=partition)


@pytest.mark.parametrize("command", ["install", "plan"])
@pytest.mark.parametrize("rows", [50, 2000])
def test_a_later_table_has_no_slots_of_an_earlier_one(device, command, rows):
    if command == "plan" and not device.geometry.planner:
        pytest.skip("this card has no planner")
    weights = hotrow.empty((rows, 4), np.float32)
    table = device.register_table(weights, partition=(1, 2))
    if command == "install":
        device.install((table, np.arange(10)))
    else:
        device.plan(np.arange(10)[:, None])
    device.unregister_table(table)
    later = device.register_table(weights)
    assert later.number == (rows > 4 * device.geometry.slots), "such a table keeps its slots"
    assert device.split(np.arange(10)[:, None]).hits == 0
    device.clear_directory()
    device.unregister_table(later)
    assert device.register_table(weights).number == 0


def test_a_table_has_a_number_of_32_bits_for_each_row():
    """Arrays without memory of their own: all rows are the same one."""
    def weights(rows):
        return np.broadcast_to(hotrow.empty((1, 4), np.float32), (rows, 4))

    with pytest.raises(RegistrationError, match=r"has 4294967297 rows: the limit is 2\*\*32"):
        _weights(weights((1 << 32) + 1), "t", 4096)
    with pytest.raises(RegistrationError, match="each row of 't' must be contiguous"):
        _weights(weights(1 << 32), "t", 4096)


def test_every_number_has_slots(device, card_kind):
    if card_kind in BOARDS:
        pytest.skip("32 tables of over 32,768 rows take an hour on a simulated line")
    weights = hotrow.empty((2000, 4), np.float32)
    for _ in range(device.geometry.tables):
        table = device.register_table(weights)
        device.install((table, [1]))
        device.unregister_table(table)
    with pytest.raises(RegistrationError, match=r"had the numbers 0, .* 31: call clear_directory"):
        device.register_table(weights)
    device.clear_directory()
    assert device.register_table(weights).number == 0


def test_a_later_table_has_no_counts_of_an_earlier_one(device):
    old, other = (device.register_table(hotrow.empty((50, 4), np.float32)) for _ in range(2))
    device.observe([[3, 1], [3, 2]])
    device.unregister_table(old)
    assert device.harvest(10).table.tolist() == [1, 1], "the other table's rows"
    device.register_table(hotrow.empty((50, 4), np.float32), name="new")
    with pytest.raises(hotrow.BatchError, match=r"had the number 0 before 'new': call clear_coun"):
        device.harvest(10)
    for table in device.tables:
        device.unregister_table(table)
    device.register_table(hotrow.empty((50, 4), np.float32))
    assert len(device.harvest(10)) == 0, "without tables the device forgets its counts"
    assert other not in device.tables


def test_misaligned_rows_that_need_padding_are_copied(device):
    with pytest.warns(PaddedCopyWarning, match="'w' has 20 bytes, 20 apart"):
        table = device.register_table(misaligned(dim=5), name="w")
    assert table.weights.ctypes.data % 64 == 0
    assert (table.source[:, 5:] == 0).all() and table.source.shape == (4, 8)


def test_one_row(device):
    table = device.register_table(hotrow.empty((3, 8), np.float32)[1:2])
    table.weights[:] = 3
    assert (device.gather((table, [0, 0])) == 3).all()


def test_half_precision(device):
    weights = hotrow.empty((6, 8), np.float16)
    weights[:] = np.arange(48).reshape(6, 8)
    table = device.register_table(weights)
    assert table.element == "fp16" and table.row_bytes == 16
    assert (device.gather((table, [5, 2])) == weights[[5, 2]]).all()


def test_read_only_weights_can_be_gathered(device):
    weights = hotrow.empty((6, 8), np.float32)
    weights[:] = 1
    weights.flags.writeable = False
    table = device.register_table(weights)
    assert (device.gather((table, [5, 2])) == 1).all()
    assert not table.buffers[0].writable


@pytest.mark.parametrize("which", ["weights", "view", "state"])
def test_resized_while_registered(device, tables, which):
    weights, state = np.zeros((400, 8), np.float32), np.zeros(400, np.float32)
    victim = state if which == "state" else weights
    table = device.register_table(weights[100:300] if which == "view" else weights, name="w",
                                  state=None if which == "view" else state)
    victim.resize(np.array(victim.shape) * 4, refcheck=False)
    for call in (lambda: device.gather((table, [0])), lambda: device.install((table, [0])),
                 lambda: device.split(np.zeros((1, 4), int))):
        with pytest.raises(RegistrationError, match="of 'w' was resized or replaced"):
            call()
    device.unregister_table(table)
    assert usable(device, tables)


def test_a_buffer_resized_while_registered(device, tables):
    out = np.zeros((100, 8), np.float32)
    buffer = device.register(out)
    device.gather((tables[0], [1]), out=buffer)
    out.resize((4000, 8), refcheck=False)
    with pytest.raises(RegistrationError, match="was resized or replaced"):
        device.gather((tables[0], [1]), out=buffer)
    device.unregister(buffer)
    assert usable(device, tables)


def test_unregistered_means_out_of_reach(device, tables):
    out = hotrow.empty((4, 8), np.float32)
    buffer = device.register(out)
    address = buffer.packed()
    assert raw(device, Opcode.HARVEST, destination=address, count=1) is Status.OK
    device.unregister(buffer)
    assert raw(device, Opcode.HARVEST, destination=address, count=1) is Status.REGION
    with pytest.raises(RegistrationError, match="not registered: register it again"):
        device.gather((tables[0], [1]), out=buffer)
    with pytest.raises(RegistrationError, match="not registered with this device"):
        device.unregister(buffer)
    table = device.register_table(hotrow.empty((4, 8), np.float32), name="gone")
    device.unregister_table(table)
    with pytest.raises(RegistrationError, match="not a table registered with this device"):
        device.gather((table, [0]))
    with pytest.raises(RegistrationError, match="not a table registered with this device"):
        device.unregister_table(table)
    assert usable(device, tables)


def test_a_table_keeps_its_memory(device, tables):
    with pytest.raises(RegistrationError, match="belongs to a table"):
        device.unregister(tables[0].buffers[0])


def test_nothing_is_unregistered_under_a_command(device, tables):
    out = hotrow.empty((4, 8), np.float32)
    buffer = device.register(out)
    device.wait_event_async(0, 1, queue="move")
    pending = device.gather_async((tables[0], [1]), out=buffer)
    with pytest.raises(RegistrationError, match="in use by a command under way"):
        device.unregister(buffer)
    with pytest.raises(RegistrationError, match="table 't0' is in use"):
        device.unregister_table(tables[0])
    device.write_event(0, 1)
    pending.result()
    device.unregister(buffer)
    device.unregister_table(tables[0])


def test_a_command_that_has_completed_keeps_nothing(device, tables):
    buffer = device.register(hotrow.empty((4, 8), np.float32))
    device.gather_async((tables[0], [1]), out=buffer)
    while not device.registers.read("MOVE_COMPLETED"):
        device.registers.wait("move", 0, 0.01)
    device.unregister_table(tables[0])
    device.gather_async((tables[1], [1]), out=buffer)
    while device.registers.read("MOVE_COMPLETED") == 1:
        device.registers.wait("move", 1, 0.01)
    device.unregister(buffer)


def test_memory_is_given_back(transport, monkeypatch):
    device = hotrow.open(transport, preset="tiny")
    link, attached = device.transport, set()
    attach, detach = link.attach, link.detach
    monkeypatch.setattr(link, "attach", lambda *given: attached.add(at := attach(*given)) or at)
    monkeypatch.setattr(link, "detach", lambda at: (attached.discard(at), detach(at)))
    tables = register_tables(device)
    buffer = device.register(hotrow.empty((4, 8), np.float32))
    assert len(attached) == 4
    device.unregister(buffer)
    device.unregister_table(tables[0])
    assert len(attached) == 2
    device.close()
    assert not attached


def test_read_only_buffers(device, tables):
    out = hotrow.empty((4, 8), np.float32)
    out.flags.writeable = False
    with pytest.raises(RegistrationError, match=r"read-only array: register .* writable=False"):
        device.register(out)
    assert not device.register(out, writable=False).writable


@pytest.mark.parametrize("end", ["unregistered", "replaced"])
def test_rows_known_to_be_of_tables_are_checked_once_those_change(device, tables, end):
    rows = hotrow.RowList(np.arange(3, dtype=np.uint32), np.arange(1, 4, dtype=np.uint32),
                          tables=device.table_set(tables))
    assert len(device.gather(rows)) == 3
    device.unregister_table(tables[1])
    if end == "replaced":
        device.register_table(hotrow.empty((2, 8), np.float32))
    with pytest.raises(hotrow.BatchError, match="table 1"):
        device.gather(rows)


def test_handles_and_numbers_are_used_again(device):
    for _ in range(3):
        tables = register_tables(device)
        assert [table.number for table in tables] == [0, 1, 2]
        assert usable(device, tables)
        for table in tables:
            device.unregister_table(table)


def test_every_handle_in_use(device):
    buffers = []
    with pytest.raises(RegistrationError, match=r"all 64 memory regions .* unregister"):
        while True:
            buffers.append(device.register(hotrow.empty(64, np.uint8)))
    assert len(buffers) > 50
    with pytest.raises(RegistrationError, match="all 64 memory regions"):
        device.register_table(hotrow.empty((4, 4), np.float32))
    for buffer in buffers:
        device.unregister(buffer)
    assert usable(device, register_tables(device))


def test_every_table_in_use(device):
    for _ in range(device.geometry.tables):
        device.register_table(hotrow.empty((4, 4), np.float32))
    with pytest.raises(RegistrationError, match="all 32 tables of this card"):
        device.register_table(hotrow.empty((4, 4), np.float32))


def test_staging_is_reused(device, tables):
    ids = np.zeros((500, 3), int)
    device.split(ids)
    first = device.register(hotrow.empty(64, np.uint8)).handle
    for _ in range(30):
        device.split(ids)
    assert device.register(hotrow.empty(64, np.uint8)).handle == first + 1


def test_nothing_is_left_by_an_earlier_program(transport):
    """Counters, directory and tables of a card that was not powered down."""
    with hotrow.open(transport, preset="tiny") as device:
        tables = register_tables(device)
        device.observe(np.zeros((5, 3), int))
        device.install((tables[0], [0]))
        device.write_event(2, 5)
        handle = device.register(hotrow.empty(1024, np.uint8)).handle
        again = hotrow.Device(device.transport, 60, 64, 1 << 20)
        assert again.tables == () and len(again.harvest(10)) == 0 and again.read_event(2) == 0
        assert raw(again, Opcode.HARVEST, destination=handle << 48, count=1) is Status.REGION
        assert raw(again, Opcode.OBSERVE, source=handle << 48, samples=1, table_count=1,
                   count=1) is Status.TABLE_UNKNOWN
        assert usable(again, register_tables(again))


@pytest.mark.parametrize("shape, dtype", [(7, np.uint8), ((3, 5), np.float32)])
def test_empty_is_aligned(shape, dtype):
    array = hotrow.empty(shape, dtype)
    assert array.ctypes.data % 64 == 0 and array.dtype == dtype and array.flags.c_contiguous
    assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
