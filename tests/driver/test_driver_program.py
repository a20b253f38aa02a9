"""One program, two transports: every result and every message is the same, cycles apart."""

import dataclasses

import hotrow
import numpy as np
import pytest

from tests.driver.conftest import random_ids, register_tables

pytestmark = pytest.mark.slow


def plain(value):
    """A result as nested tuples and lists, without the cycles."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.compare and field.name not in ("cycles", "end")}
    return value


def bags(samples, seed, dtype, feature_major):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, size=samples * 3)
    table = (np.repeat(np.arange(3), samples) if feature_major else np.tile(np.arange(3), samples))
    ids = (rng.random(lengths.sum()) ** 2 * np.repeat(np.array([40, 7, 23])[table], lengths))
    return hotrow.Batch.jagged(ids.astype(dtype), lengths, samples, feature_major=feature_major)


def program(device, seed):
    """A random mix of calls, right and wrong; what each gave or raised."""
    rng = np.random.default_rng(seed)
    register_tables(device)
    out = hotrow.empty((64, 8), np.float32)
    out[:] = 0

    def ids():
        batch = random_ids(int(rng.integers(1, 80)), int(rng.integers(1 << 30)))
        if rng.random() < 0.3:
            batch[rng.integers(len(batch)), rng.integers(3)] = rng.choice([-1, 23, 40, 1 << 31])
        kind = rng.integers(4)
        if kind == 0:
            return batch.astype(np.int32)
        if kind == 1:
            return hotrow.Batch.dense(batch.T, feature_major=True)
        if kind == 2:
            return bags(len(batch), int(rng.integers(1 << 30)), rng.choice(["<u4", "<i8"]),
                        bool(rng.integers(2)))
        return batch

    def rows():
        count = int(rng.integers(1, 60))
        table = rng.integers(4 if rng.random() < 0.2 else 3, size=count)
        limit = np.array([40, 7, 23, 1])[table] + (rng.random() < 0.2)
        return table, (rng.random(count) * limit).astype(np.int64)

    calls = (
        lambda: device.observe(ids()),
        lambda: device.split(ids()),
        lambda: device.install(rows()),
        lambda: device.remove(rows()),
        lambda: device.gather(rows()),
        lambda: device.gather(rows(), out=out, slots=rng.permutation(64)[:5]),
        lambda: device.scatter(rows(), out),
        lambda: device.fill(out[int(rng.integers(64)):], int(rng.integers(9))),
        lambda: device.copy(out[:10], out[int(rng.integers(20)):][:10]),
        lambda: device.harvest(int(rng.integers(1, 300)), threshold=int(rng.integers(4))),
        lambda: device.decay(int(rng.integers(3))),
        lambda: device.signal(int(rng.integers(10)), int(rng.integers(1 << 32)), queue="move"),
        lambda: device.read_event(int(rng.integers(8))),
        lambda: device.fence(queue="move"),
    )
    for _ in range(120):
        device.check_ids = bool(rng.random() < 0.3)  # else the card finds what is wrong
        call = calls[rng.integers(len(calls))]
        try:
            yield plain(call())
        except hotrow.Error as error:
            yield type(error).__name__, str(error)
    yield plain(out)
    yield {name: commands for name, (commands, _) in device.statistics.items()}


@pytest.mark.parametrize("seed", [1, 2])
def test_sim_equals_model(seed):
    with hotrow.open("model", preset="tiny") as model, hotrow.open("sim", preset="tiny") as sim:
        errors = 0
        for step, (expected, got) in enumerate(zip(program(model, seed), program(sim, seed),
                                                   strict=True)):
            assert got == expected, f"seed {seed}, step {step}"
            errors += isinstance(expected, tuple) and str(expected[0]).endswith("Error")
        assert 10 < errors < 80, "the program must hold right and wrong calls"
