"""The soak of the planner: its comparison, and a card without holds."""

import pytest
from hotrow_sim.golden.lookup.slot_table import Slots
from hotrow_sim.model import open_transport

from tests.support.fuzz.plan_soak import Mismatch, main, soak
from tests.support.fuzz.software import SoftwareCard


class Forgetful(Slots):
    """Slots that no MARK holds."""

    def mark(self, batch, key):
        return self.slot_of.get(key)


def forgetful(config):
    device = open_transport(config=config)
    device.planning.planner.state = Forgetful(config)
    return device


@pytest.mark.slow
def test_sessions_add_up():
    lines = []
    tally = soak(20_000, seed=3, batches=25, open_device=open_transport, say=lines.append)
    assert tally.sessions == len(lines) and tally.batches == 25 * tally.sessions
    assert tally.lookups >= 20_000 and tally.held_evictions == 0
    assert min(tally.evictions, tally.bypasses, tally.waits, tally.marked, tally.cycles) > 0, tally


@pytest.mark.slow
@pytest.mark.parametrize("card", ["tiny", "starved", "ecp5"])
def test_the_software(card):
    tally = soak(5_000, seed=7, batches=25, card=card, open_device=SoftwareCard)
    assert tally.batches == 25 * tally.sessions and tally.held_evictions == 0


def test_a_failure_of_the_software_is_repeated_with_it(monkeypatch, capsys):
    class Wrong(SoftwareCard):
        def read_register(self, offset):
            for array in self._arrays.values():
                array[-1] ^= 1
            return super().read_register(offset)

    monkeypatch.setattr("tests.support.fuzz.software.SoftwareCard", Wrong)
    assert main(["--transport", "cpu", "--card", "ecp5", "--seed", "3", "--lookups", "1"]) == 1
    assert "--card ecp5 --seed 3 --lookups 1 --transport cpu" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--transport", "cpu", "--waveform", "x.vcd"])


def test_a_card_that_drops_holds_is_detected():
    with pytest.raises(Mismatch, match=r"seed \d+: .*(?s:.*)--seed \d+ --lookups 1"):
        soak(500_000, batches=25, open_device=forgetful)


def test_holds_are_tracked_without_the_model(monkeypatch):
    """The host detects missing holds from the results, even if card and model agree."""
    monkeypatch.setattr(Slots, "mark", Forgetful.mark)
    with pytest.raises(Mismatch, match="evicted a held row"):
        soak(500_000, batches=25, open_device=open_transport)


@pytest.mark.slow
@pytest.mark.long
def test_the_hardware(capsys):
    assert main(["--lookups", "100000"]) == 0
    assert "held_evictions=0" in capsys.readouterr().out
