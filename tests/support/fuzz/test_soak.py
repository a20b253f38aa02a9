"""A short soak, and the faults that it must find."""

import numpy as np
import pytest
from hotrow_rtl.contract.registers import REGISTERS
from hotrow_sim.memory import Statistics
from hotrow_sim.model import Device as Model

from tests.support.fuzz import sessions
from tests.support.fuzz.setup import RESULTS, SIZES, WEIGHTS
from tests.support.fuzz.soak import Mismatch, soak
from tests.support.fuzz.software import SoftwareCard

ROWS = 15_000


@pytest.mark.long
def test_rows_moved_at_random_through_rough_memory():
    tally = soak(ROWS, seed=100, card="tiny")
    assert tally.rows >= ROWS and tally.bytes > 100_000 and tally.bursts > tally.rows
    assert {"OK", "DECERR", "ROW_OUT_OF_RANGE", "REGION", "TABLE_UNKNOWN"} <= set(tally.status)


@pytest.mark.nightly
@pytest.mark.parametrize("card", ["2x4", "4x4", "8x8"])
def test_bags_on_several_units(card):
    tally = soak(ROWS, seed=200, card=card)
    assert tally.rows >= ROWS and tally.resets
    assert {"OK", "LOOKUPS", "ROW_OUT_OF_RANGE", "ROW_SHAPE", "REGION"} <= set(tally.status)


class Stub(Model):
    """A model with the interface of the Verilated device."""

    ports, broken, cycles = (), (), 1

    def __init__(self, config, behaviour):
        super().__init__(config)

    def restart_trace(self):
        pass

    def run(self, cycles):
        pass

    def violations(self):
        return list(self.broken)

    def statistics(self, name):
        return Statistics()

    def close(self):
        pass


def test_a_correct_device_passes():
    assert soak(500, rounds=2, open_device=Stub).rows >= 500


@pytest.mark.parametrize("card", ["tiny", "wide", "ecp5", "4x4"])
def test_the_software(card):
    assert soak(500, rounds=2, card=card, open_device=SoftwareCard).rows >= 500


def test_a_seed_repeats_its_soak():
    assert soak(1, seed=3, rounds=1, open_device=Stub) == soak(
        1, seed=3, rounds=1, open_device=Stub)


@pytest.mark.parametrize("handle", [WEIGHTS, RESULTS])
def test_one_wrong_bit_is_reported(handle):
    class Wrong(Stub):
        spoiled = np.zeros(1, np.uint8)

        def attach(self, array, writable):
            if array.size == SIZES[handle]:
                self.spoiled = array
            return super().attach(array, writable)

        def read_register(self, offset):
            self.spoiled[-1] = 0x10
            return super().read_register(offset)

    with pytest.raises(Mismatch, match=rf"seed 8: round.*\n.*handle {handle}: 1 bytes.*\n"
                                       r".*--card tiny --seed 8 --rows 1"):
        soak(500, seed=8, rounds=2, open_device=Wrong)


def test_a_violation_of_the_rules_is_reported():
    class Violating(Stub):
        broken = ("row_read0: burst crosses a 4 KiB boundary",)

    with pytest.raises(Mismatch, match=r"seed 6(.|\n)*4 KiB"):
        soak(500, seed=6, rounds=2, open_device=Violating)


def test_a_write_after_a_reset_is_reported(monkeypatch):
    class Late(Stub):
        written, running = np.zeros(1, np.uint8), False

        def attach(self, array, writable):
            if array.size == SIZES[WEIGHTS]:
                self.written = array
            return super().attach(array, writable)

        def run(self, cycles):
            self.running = True

        def write_register(self, offset, value):
            super().write_register(offset, value)
            if self.running and offset == REGISTERS["MOVE_TAIL"].offset:
                self.written[0] ^= 1

    monkeypatch.setattr("tests.support.fuzz.soak.RESETS", 1)
    with pytest.raises(Mismatch, match=r"seed 9: round [01](.|\n)*handle 4: 1 bytes, the first"):
        soak(500, seed=9, rounds=2, card="2x4", open_device=Late)


@pytest.mark.slow
def test_memory_that_grows_is_reported(monkeypatch):
    assert sessions.resident_bytes() > 1 << 20
    sizes = iter(range(1, 1 << 40, sessions.GROWTH // 2))
    monkeypatch.setattr(sessions, "resident_bytes", lambda: next(sizes))
    with pytest.raises(MemoryError, match=r"^7 sessions: 768 MB are .* the first 4 384"):
        soak(50_000, rounds=1, open_device=Stub)
