"""Registers of the device, on the model, in software and on the RTL."""

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import IDENTITY, VERSION, Opcode, Status, packed_address
from hotrow_rtl.contract.registers import (
    GEOMETRY,
    REGISTER_SPACE,
    REGISTERS,
    Access,
    registers_of,
    reset_value,
)
from hotrow_sim.golden.region_check import Table

from tests.sim.device.conftest import CARDS, TINY, open_tiny

UNKNOWN = 4  # bit of FAULT

# Registers that keep what is written.
STAGING = [name for name, register in REGISTERS.items()
           if register.access is Access.READ_WRITE and not name.endswith(
               ("CONTROL", "FAULT", "INTERRUPT", "EVENT_VALUE", "PLAN_RETIRED", "_TAIL"))]
UNUSED = sorted(set(range(0, REGISTER_SPACE, 4)) - {each.offset for each in REGISTERS.values()})


def test_identity_and_geometry(card):
    assert card.read("IDENTITY") == IDENTITY
    assert card.read("VERSION") == VERSION
    for name, _, parameter in GEOMETRY:
        assert card.read(name) == getattr(TINY, parameter), name


@pytest.mark.parametrize("kind", CARDS)
def test_values_after_a_reset(kind):
    """Bits that act once read 0 after a 1 was written, too."""
    transport = open_tiny(kind)
    for name, register in registers_of(TINY).items():
        if register.access is not Access.WRITE_ONLY and register.reset is not None:
            assert transport.read_register(register.offset) == reset_value(register, TINY), name
    for name, register in REGISTERS.items():
        if register.pulses:
            transport.write_register(register.offset, register.pulses)
            assert transport.read_register(register.offset) == 0, name
    transport.close()


def test_staging_registers_keep_32_bits(card):
    for queue in ("LOOKUP", "MOVE"):
        card.write(f"{queue}_CONTROL", 0)
    for pattern in (0xFFFF_FF00, 0, 0x5A5A_5A00, 0xA5A5_A500):
        for number, name in enumerate(STAGING):
            card.write(name, pattern + number)
        for number, name in enumerate(STAGING):
            assert card.read(name) == pattern + number, name
    assert card.read("FAULT") == 0


def test_registrations_of_any_value(card):
    """Regions and tables beyond memory are refused or fault, and no other is affected."""
    rng = np.random.default_rng(5)
    config = TINY
    memory = 1 << config.address_width
    for handle in range(12, config.handles):
        base = int(rng.integers(memory >> 6, dtype=np.uint64)) << 6
        card.region(handle, base, int(rng.integers(1 << 15, 1 << 48)), bool(rng.integers(2)))
    for number in range(3, config.tables):
        octets = int.from_bytes(rng.bytes(24), "little")
        card.table(number, Table(
            octets & 0xFFFF_FFFF, packed_address(12 + number, octets >> 32 & 0xFFFF_FFF0),
            int(rng.integers(1 << 16)), int(rng.integers(1 << 16)),
            packed_address(config.handles - 1 - number, octets >> 64 & 0xFFFF_FFFF),
            int(rng.integers(256)), part=int(rng.integers(256)), type=int(rng.integers(256))))
    results = card.results.copy()
    for number in range(3, config.tables):
        rows = card.put_rows([(number, int(row)) for row in rng.integers(1 << 32, size=4)])
        done = card.run("move", opcode=Opcode.GATHER, source=rows, count=4, stride=512,
                        destination=card.address("results"))
        assert done["status"] != Status.OK and done["entries"] == 0
        source = packed_address(12 + number, int(rng.integers(1 << 20)) << 6)
        done = card.run("lookup", opcode=Opcode.OBSERVE, source=source, count=4, samples=4,
                        table_count=1)
        assert done["status"] in (Status.DECERR, Status.REGION), done
    assert (card.results == results).all()
    rows = card.put_rows([(0, 99)])
    done = card.run("move", opcode=Opcode.GATHER, source=rows, count=1, stride=64,
                    destination=card.address("results"))
    assert done["status"] == Status.OK
    assert (card.results[:64] == card.weights[99 * 64:100 * 64]).all()


def test_writing_a_read_only_register_does_nothing(card):
    card.write("IDENTITY", 0)
    card.write("LOOKUP_HEAD", 7)
    assert (card.read("IDENTITY"), card.read("LOOKUP_HEAD")) == (IDENTITY, 0)
    assert card.read("FAULT") == 0


def test_reading_a_write_only_register_gives_zero(card):
    card.write("REGION_HANDLE", 3)
    assert card.read("REGION_COMMIT") == 0
    assert card.read("FAULT") == 0


@pytest.mark.parametrize("offset", [*UNUSED[::12], REGISTER_SPACE, 0xFFC])
def test_an_unknown_register_sets_a_sticky_fault(card, offset):
    assert card.transport.read_register(offset) == 0
    assert card.read("FAULT") == UNKNOWN
    card.write("FAULT", 3)
    assert card.read("FAULT") == UNKNOWN, "other bits clear nothing"
    card.write("FAULT", UNKNOWN)
    assert card.read("FAULT") == 0
    card.transport.write_register(offset, 1)
    assert card.read("FAULT") == UNKNOWN


@pytest.mark.parametrize("selector, beyond, action", [
    ("REGION_HANDLE", 64, "REGION_COMMIT"),
    ("TABLE_NUMBER", 32, "TABLE_COMMIT"),
    ("EVENT_SELECT", 8, "EVENT_VALUE"),
])
def test_an_entry_beyond_the_last_is_refused(card, selector, beyond, action):
    card.write(selector, beyond)
    card.write(action, 0)
    assert card.read("FAULT") == UNKNOWN
    card.write("FAULT", UNKNOWN)
    card.write(selector, beyond - 1)
    card.write(action, 0)
    assert card.read("FAULT") == 0


def test_the_cycle_counter_runs(card):
    first = card.read("CYCLE_LOW") | card.read("CYCLE_HIGH") << 32
    assert 0 < first < card.read("CYCLE_LOW")


def test_event_counters_keep_what_the_host_writes(card):
    for event in range(8):
        card.write("EVENT_SELECT", event)
        card.write("EVENT_VALUE", 0x1234_5678 * event & 0xFFFF_FFFF)
    for event in range(8):
        card.write("EVENT_SELECT", event)
        assert card.read("EVENT_VALUE") == 0x1234_5678 * event & 0xFFFF_FFFF
