from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import GatherFlag, Opcode, Status, packed_address
from hotrow_sim.golden.mover.gather_scatter import move_rows
from hotrow_sim.golden.records import ROW_RECORD
from hotrow_sim.golden.region_check import Region, Table, check_operand

CONFIG = replace(preset("tiny"), row_bytes=256)
MEMORY = 1 << 16
REGIONS = {0: Region(0x100, 0x4000, False), 1: Region(0x5000, 0x4000, True),
           2: Region(0xA000, 0x1000, True), 3: Region(0xB000, 0x1000, False)}
TABLES = {
    0: Table(63, packed_address(0, 0), 64, 80, packed_address(3, 0), 8),
    1: Table(200, packed_address(0, 0x1450), 16, 16, packed_address(3, 0x800), 8),  # past its end
    3: Table(1, packed_address(0, 0), 512, 512),  # wider than the card carries
    4: Table(7, packed_address(2, 0x800), 48, 64, packed_address(9, 0), 4),  # state unregistered
    5: Table(0xFFFF_FFFF, packed_address(0, 0), 16, 65520, packed_address(0, 0), 4),
    6: Table(20, packed_address(0, 0x800), 32, 32, packed_address(3, 0x400), 4),
    7: Table(40, packed_address(1, 0x2000), 64, 80, packed_address(2, 0), 8),  # for SCATTER
    8: Table(30, packed_address(1, 0x3000), 32, 32, packed_address(2, 0x400), 4),
    9: Table(30, packed_address(1, 0x3020), 32, 32, packed_address(2, 0x404), 4),  # in table 8
}


class Bytes:
    """A memory with one hole that responds with a fault."""

    def __init__(self, seed, hole=range(0)):
        self.octets = np.random.default_rng(seed).integers(0, 256, MEMORY, np.uint8)
        self.hole = hole

    def view(self, address, size, write=False):
        if address + size > MEMORY or range(max(address, self.hole.start),
                                            min(address + size, self.hole.stop)):
            return None
        return self.octets[address:address + size]

    def write(self, address, octets):
        here = self.view(address, octets.size, write=True)
        if here is None:
            return 2
        here[:] = octets
        return 0


class BruteForce:
    """The rules of a move, entry by entry."""

    def __init__(self, command, memory):
        self.command, self.memory, self.before = command, memory, memory.octets.copy()
        self.to_tables, self.moved = command["opcode"] == Opcode.SCATTER, 0

    def run(self, entries, slots, entry_faults, slot_faults):
        """(status, error index, error address, entries, bytes)."""
        errors = []
        for i, (table, row) in enumerate(zip(entries["table"].tolist(), entries["row"].tolist(),
                                             strict=True)):
            status = self._entry_status(table, row, entry_faults[i], slot_faults[i])
            address = 0
            if status == Status.OK:
                status, address = self._copy(TABLES[table], row, int(slots[i]))
            if status != Status.OK:
                errors.append((status, i, address))
        first = errors[0] if errors else (Status.OK, 0, 0)
        return *first, len(entries) - len(errors), self.moved

    def _entry_status(self, number, row, entry_fault, slot_fault):
        table = TABLES.get(number)
        if entry_fault:
            return Status(13 + entry_fault)
        if table is None:
            return Status.TABLE_UNKNOWN
        if row > table.last_row:
            return Status.ROW_OUT_OF_RANGE
        if slot_fault:
            return Status(13 + slot_fault)
        fits = table.row_bytes <= min(self.command["stride"], CONFIG.row_bytes)
        return Status.OK if fits else Status.STRIDE

    def _copy(self, table, row, slot):
        """Copy row and state; the status and address of the first error."""
        ends = []
        for (base, distance), (slot_base, slot_distance, alignment), size in self._arrays(
                table, row, slot):
            pair = [(base, distance, 1), (slot_base, slot_distance, alignment)]
            for number, (*place, least) in enumerate(reversed(pair) if self.to_tables else pair):
                status, packed, address = self._resolve(*place, size, number == 1, least)
                if status != Status.OK:
                    return status, packed
                ends.append((packed, address, size))
        error = Status.OK, 0
        for (source, here, size), (target, there, _) in zip(ends[::2], ends[1::2], strict=True):
            for packed, address in ((source, here), (target, there)):
                if self.memory.view(address, size) is None:
                    error = error if error[0] else (Status.DECERR, packed)
                    break
            else:
                self.memory.octets[there:there + size] = self.before[here:here + size]
                self.moved += size
        return error

    def _arrays(self, table, row, slot):
        """Table end, slot end and bytes of the row and of its state."""
        rows, states = (("rows", "state_rows") if self.to_tables
                        else ("destination", "state_destination"))
        yield ((table.weights, row * table.stride),
               (self.command[rows], slot * self.command["stride"], 16), table.row_bytes)
        if self.command["flags"] & GatherFlag.STATE and table.state_bytes:
            size = table.state_bytes
            yield (table.state, row * size), (self.command[states], slot * size, 4), size

    @staticmethod
    def _resolve(base, distance, size, write, alignment):
        handle, offset = base >> 48, (base & (1 << 48) - 1) + distance
        packed = packed_address(handle, offset % (1 << 48))
        status, address = check_operand(REGIONS, packed, size, write)
        if offset >> 48:
            status = Status.REGION
        elif status == Status.OK and address % alignment:
            status = Status.MISALIGNED
        return status, packed, address


def scenario(seed, tables, rows, count, flags, stride, base, state_base, slots,
             fault_rate=0.0, hole=range(0), opcode=Opcode.GATHER):
    """Move random rows with both models and compare memory and outcome; return the outcome."""
    rng = np.random.default_rng(seed)
    entries = np.zeros(count, ROW_RECORD)
    entries["table"], entries["row"] = rng.choice(tables, count), rng.integers(0, rows, count)
    targets = rng.permutation(slots)[:count] if slots >= count else rng.integers(0, slots, count)
    faults = [np.where(rng.random(count) < fault_rate, rng.integers(1, 4, count), 0)
              for _ in range(2)]
    command = {"opcode": opcode, "flags": flags, "stride": stride, "destination": base,
               "state_destination": state_base, "rows": base, "state_rows": state_base}
    actual, expected = Bytes(seed, hole), Bytes(seed, hole)
    got = move_rows(command, entries, targets, TABLES, REGIONS, actual, CONFIG, *faults)
    want = BruteForce(command, expected).run(entries, targets, *faults)
    assert (got.status, got.error_index, got.error_address, got.entries, got.bytes) == want
    np.testing.assert_array_equal(actual.octets, expected.octets)
    return got


DESTINATION, STATE = packed_address(1, 0x40), packed_address(2, 0)


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_state(seed):
    got = scenario(seed, [0, 6], 21, 60, GatherFlag.LISTED, 96, DESTINATION, 0, 100)
    assert got.status == Status.OK and got.entries == 60
    got = scenario(seed, [0], 64, 60, GatherFlag.STATE, 96, DESTINATION, STATE, 100)
    assert got.bytes == 60 * (64 + 8)


@pytest.mark.parametrize("seed", range(4))
def test_order_decides_repeated_slots_with_different_state_sizes(seed):
    assert scenario(seed, [0, 6], 21, 60, GatherFlag.LISTED, 64, DESTINATION, 0, 10).bytes > 60 * 16
    flags = GatherFlag.LISTED | GatherFlag.STATE
    assert scenario(seed, [0, 6], 21, 60, flags, 64, DESTINATION, STATE, 100).entries == 60


@pytest.mark.parametrize("seed", range(27))
def test_refusals(seed):
    destination = packed_address(*[
        (1, 0x40), (1, 0x2400), (0, 0), (1, 8), (1, (1 << 48) - 1024), (0, 8), (1, 0x2408),
        (7, 0), (1, 0)][seed % 9])
    state = packed_address(*[(2, 0), (2, 0xF80), (3, 0), (2, 2), (2, (1 << 48) - 64)][seed % 5])
    scenario(seed, [0, 1, 3, 4, 5, 6, 2, 31, 1 << 31], 70, 60, GatherFlag.LISTED | GatherFlag.STATE,
             [64, 16, 4096][seed % 3], destination, state, 100, fault_rate=0.05)
    scenario(seed, [0, 1, 4, 5, 6], 30, 40, GatherFlag.STATE, 64, DESTINATION, state, 100)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tables", [[7], [7, 8], [8, 9]], ids=["one", "two", "overlapping"])
def test_scattered_rows_and_state(seed, tables):
    flags = GatherFlag.LISTED | GatherFlag.STATE
    got = scenario(seed, tables, 31, 60, flags, 96, DESTINATION, packed_address(3, 0), 70,
                   opcode=Opcode.SCATTER)
    assert got.status == Status.OK and got.entries == 60


@pytest.mark.parametrize("seed", range(20))
def test_scatter_refusals(seed):
    base = packed_address(*[
        (0, 0x40), (0, 0x2400), (1, 8), (0, (1 << 48) - 1024), (7, 0)][seed % 5])
    state = packed_address(*[(3, 0), (3, 0xF80), (3, 2), (9, 0)][seed % 4])
    scenario(seed, [0, 3, 4, 7, 8, 31], 45, 60, GatherFlag.LISTED | GatherFlag.STATE,
             [64, 16, 4096][seed % 3], base, state, 100, 0.05, opcode=Opcode.SCATTER)
    scenario(seed, [7, 8], 31, 60, GatherFlag.STATE, 96, DESTINATION, packed_address(3, 0), 70,
             hole=range(0x5000 + 0x300 * seed, 0x5010 + 0x300 * seed), opcode=Opcode.SCATTER)


def test_bus_faults_spare_the_other_rows():
    flags = GatherFlag.LISTED | GatherFlag.STATE
    read = scenario(1, [0, 6], 21, 60, flags, 64, DESTINATION, STATE, 100,
                    hole=range(0x910, 0x911))
    written = scenario(2, [0, 6], 21, 60, flags, 64, DESTINATION, STATE, 100,
                       hole=range(0x5800, 0x5900))
    assert read.status == written.status == Status.DECERR
    assert read.error_address >> 48 == 0 and written.error_address >> 48 == 1
