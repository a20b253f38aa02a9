"""Registers of the device, on the model and on the RTL."""

import pytest
from hotrow_rtl.contract.encoding import IDENTITY, VERSION
from hotrow_rtl.contract.registers import GEOMETRY, REGISTERS, Access

UNKNOWN = 4  # bit of FAULT

STAGING = [name for name, register in REGISTERS.items()
           if register.access is Access.READ_WRITE
           and name.startswith(("REGION_", "TABLE_"))] + ["TIMEOUT"]


def test_identity_and_geometry(card):
    assert card.read("IDENTITY") == IDENTITY
    assert card.read("VERSION") == VERSION
    for name, _, parameter in GEOMETRY:
        assert card.read(name) == getattr(card.transport.config, parameter), name


def test_staging_registers_keep_32_bits(card):
    for number, name in enumerate(STAGING):
        card.write(name, 0xFFFF_FF00 + number)
    for number, name in enumerate(STAGING):
        assert card.read(name) == 0xFFFF_FF00 + number, name
    assert card.read("FAULT") == 0


def test_writing_a_read_only_register_does_nothing(card):
    card.write("IDENTITY", 0)
    card.write("LOOKUP_HEAD", 7)
    assert (card.read("IDENTITY"), card.read("LOOKUP_HEAD")) == (IDENTITY, 0)
    assert card.read("FAULT") == 0


def test_reading_a_write_only_register_gives_zero(card):
    card.write("REGION_HANDLE", 3)
    assert card.read("REGION_COMMIT") == 0
    assert card.read("FAULT") == 0


@pytest.mark.parametrize("offset", [0x00C, 0x0AC, 0x200, 0xFFC])
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
