"""A short run of random descriptors and register writes, and the faults that it must find."""

import re

import pytest
from hotrow_rtl.contract.encoding import Status
from hotrow_sim.model import Device as Model

from tests.support.fuzz.hostile import LEGAL, Mismatch, hostile, main
from tests.support.fuzz.software import SoftwareCard


class Stub(Model):
    """A model with the interface of the Verilated device."""

    cycles = 1

    def __init__(self, config, behaviour):
        super().__init__(config)

    def restart_trace(self):
        pass

    def violations(self):
        return []


@pytest.mark.slow
@pytest.mark.parametrize("card", ["tiny", "ecp5"])
@pytest.mark.parametrize("device", [Stub, SoftwareCard])
def test_model_and_software_stay_within_bounds(card, device):
    tally = hostile(6000, card=card, open_device=device)
    assert tally.sessions > 1 and tally.doorbells > 100
    assert {"OK", "REGION", "BAD_OPCODE"} <= set(tally.status)


@pytest.mark.slow
def test_the_hardware_stays_within_bounds():
    tally = hostile(450, seed=50, card="tiny")
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

    with pytest.raises(Mismatch, match=r"seed 4: round \d: guarded memory 0 was written\n"
                                       r"repeat.*--seed 4 --card tiny --accesses 1 --waveform"):
        hostile(1, seed=4, open_device=Wrong)


@pytest.mark.long
def test_a_failure_leaves_a_waveform_of_its_round(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tests.support.fuzz.hostile.LEGAL", LEGAL - {Status.BAD_OPCODE})
    path = tmp_path / "hostile.vcd"
    assert main(["--seed", "7", "--card", "tiny", "--accesses", "1", "--waveform", str(path)]) == 1
    assert re.search(r"seed 7: round \d+: \w+, completion \d+: status 1\nrepeat",
                     capsys.readouterr().err)
    text = path.read_text()
    assert "$enddefinitions" in text and text.count("\n#") > 1000
