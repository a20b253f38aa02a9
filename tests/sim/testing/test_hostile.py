"""A short run of random descriptors and register writes, and the faults that it must find."""

import pytest
from hotrow_sim.model import Device as Model
from hotrow_sim.testing.fuzz.hostile import Mismatch, hostile


class Stub(Model):
    """A model with the interface of the Verilated device."""

    cycles = 1

    def __init__(self, config, behaviours):
        super().__init__(config)

    def violations(self):
        return []


def test_the_model_stays_within_bounds():
    tally = hostile(1500, open_device=Stub)
    assert tally.sessions > 1 and {"OK", "REGION", "BAD_OPCODE"} <= set(tally.status)


@pytest.mark.slow
def test_the_hardware_stays_within_bounds():
    tally = hostile(1500, seed=50)
    assert {"OK", "REGION", "BAD_OPCODE", "ROW_OUT_OF_RANGE"} <= set(tally.status)


def test_a_write_out_of_bounds_is_reported():
    class Wrong(Stub):
        arrays = ()

        def attach(self, array, writable):
            self.arrays = (*self.arrays, array)
            return super().attach(array, writable)

        def write_register(self, offset, value):
            super().write_register(offset, value)
            self.arrays[-1][3] ^= 1

    with pytest.raises(Mismatch, match=r"seed 4, round 0: guarded memory 0 was written\n"
                                       r"repeat with: .*--seed 4 --accesses 1"):
        hostile(1, seed=4, open_device=Wrong)
