"""The fuzzer detects a hang by cycles, so that a slow simulator is no hang."""

from types import SimpleNamespace

import pytest
from hotrow_rtl.contract.encoding import QUEUES

from tests.support.fuzz import player

NOTHING = SimpleNamespace(halt=dict.fromkeys(QUEUES, False), aborts=dict.fromkeys(QUEUES, ()))


class SlowCard:
    """Two queues with a command each, which completes after a number of cycles."""

    def __init__(self, cycles_per_look, done_after):
        self.tail, self.transport = dict.fromkeys(QUEUES, 1), self
        self.cycle, self.step, self.done_after = 0, cycles_per_look, done_after

    def read(self, register):
        done = self.cycle >= self.done_after
        if register == "CYCLE_LOW":
            self.cycle += self.step
            return self.cycle & 0xFFFF_FFFF
        return int(done) if register.endswith("COMPLETED") else 0 if done else player.State.BUSY

    def wait(self, queue, completed, seconds):
        """No time passes."""


def drain(card):
    player._drain(card, NOTHING, dict.fromkeys(QUEUES, 0), {queue: [] for queue in QUEUES})


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(player, "PATIENCE", 0)


@pytest.mark.parametrize("step", [10, player.STILL // 2])
def test_blocked_queues(step):
    card = SlowCard(step, 1 << 40)
    with pytest.raises(TimeoutError, match=rf"hang for {player.STILL} cycles: .*'move': '0x1'"):
        drain(card)
    assert player.STILL < card.cycle <= player.STILL + 2 * step


def test_the_host_waits_for_a_slow_simulator():
    card = SlowCard(1, player.STILL - 1)
    drain(card)
    assert card.cycle == player.STILL - 1
