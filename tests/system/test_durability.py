"""Killed at any moment, or without power: a file is of the last step that was saved, or the next.

Tables on disk have tests of their own, `tests/tables/test_kills.py` and `test_crashes.py`.
"""

import os
import random
import signal
import time

import pytest

from tests.support.power_loss import Recorder, on_disk
from tests.system.file_kinds import KINDS

SAVED = [name for name in KINDS if name not in ("tables", "old.table")]
STEPS = 4  # after which the states of a kind repeat


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """What is read from the file of each step, by kind."""
    folder, found = tmp_path_factory.mktemp("states"), {}
    for name in SAVED:
        for step in range(STEPS):
            KINDS[name].save(folder / name, step)
            found[name, step] = KINDS[name].read(folder / name)
    return found


def save_for_ever(path, kind, acknowledge):
    step = 0
    while True:
        kind.save(path, step % STEPS)
        os.write(acknowledge, bytes([step % STEPS]))
        step += 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("kills", [
    2, pytest.param(200, marks=[pytest.mark.long, pytest.mark.nightly])])
def test_killed_at_any_moment(tmp_path, states, name, kills):
    seed = random.randrange(1 << 30)
    draw, path, between = random.Random(seed), tmp_path / name, 0
    for number in range(kills):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                save_for_ever(path, KINDS[name], writing)
            finally:
                os._exit(3)
        os.close(writing)
        last = os.read(reading, 1)[0]  # it saves
        time.sleep(draw.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        while acknowledged := os.read(reading, 4096):
            last = acknowledged[-1]
        os.close(reading)
        found = KINDS[name].read(path)
        assert found in (states[name, last], states[name, (last + 1) % STEPS]), (seed, number)
        between += found != states[name, last]
    KINDS[name].save(path, 0)
    assert os.listdir(tmp_path) == [name], seed


@pytest.mark.parametrize("name", SAVED)
def test_power_lost_at_any_moment(tmp_path, monkeypatch, states, name):
    """After each operation, with what was not forced to the disk kept, lost or torn: 50 times."""
    seed = random.randrange(1 << 30)
    draw, run, after, recorder = random.Random(seed), tmp_path / "run", tmp_path / "after", None
    run.mkdir()
    after.mkdir()
    recorder, saved = Recorder(monkeypatch), []
    for step in range(STEPS):
        KINDS[name].save(run / name, step)
        saved.append(len(recorder.operations))
    recorder.end()
    monkeypatch.undo()
    ways = ["kept", "lost", "torn", *[draw] * 3]
    tried = 0
    for end in range(saved[0], len(recorder.operations) + 1):
        step = max(each for each in range(STEPS) if saved[each] <= end)
        for unsynced in ways:
            for path in after.iterdir():
                path.unlink()
            for file, content in on_disk(recorder.operations[:end], unsynced).items():
                (after / file).write_bytes(content)
            found = KINDS[name].read(after / name)
            possible = [states[name, each] for each in (step, step + 1) if each < STEPS]
            assert found in possible, (seed, end, unsynced)
            tried += 1
    assert tried >= 50, tried
