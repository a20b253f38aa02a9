"""Files with flipped bits, and files that end early: refused in words, never read as others."""

import gzip
import random

import pytest
import torch
from hotrow import Error
from hotrow.torch import Checkpoint
from hotrow.traces import TraceError, open_trace
from hotrow_explore.end_to_end import _measured_seconds

SEED = random.SystemRandom().randrange(1 << 30)
DRAWN = random.Random(5)
LOG = b"item\tuser\tprice\n" + b"".join(
    b"%d\t%d\t%.2f\n" % (DRAWN.randrange(99), DRAWN.randrange(50), DRAWN.random())
    for _ in range(40))
CRITEO = b"".join(b"\t".join([
    b"1", *(b"%d" % DRAWN.randrange(100) for _ in range(13)),
    *(b"%08x" % DRAWN.getrandbits(32) for _ in range(26))]) + b"\n" for _ in range(3))


def damaged(content, count, seed):
    """Copies of a file with one to three flipped bits; a quarter of them end early."""
    rng = random.Random(seed)
    for number in range(count):
        octets = bytearray(content)
        if number % 4 == 0:
            del octets[rng.randrange(len(octets)):]
        else:
            for bit in rng.sample(range(8 * len(octets)), rng.choice((1, 1, 3))):
                octets[bit // 8] ^= 1 << bit % 8
        yield number, bytes(octets)


def same(one, other):
    """Whether two checkpoints have the same parts, bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return one == other


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_checkpoint(tmp_path):
    path = tmp_path / "run.pt"
    parts = {"batch": 3, "settings": {"lr": 0.1, "trace": "zipf"}, "rows": torch.randn(40, 8),
             "side": None, "random": torch.get_rng_state()}
    Checkpoint(path).save(**parts)
    refused = 0
    for number, octets in damaged(path.read_bytes(), 200, SEED):
        path.write_bytes(octets)
        try:
            found = Checkpoint(path).load()
        except Error:
            refused += 1
        else:
            assert same(parts, found), f"copy {number}, seed {SEED}: other values"
    assert refused > 150


@pytest.mark.parametrize("content", [[1, 2], torch.zeros(3), {"batch": 3}, {"format": 0}])
def test_a_file_of_torch_that_is_no_checkpoint(tmp_path, content):
    torch.save(content, tmp_path / "run.pt")
    with pytest.raises(Error, match="is no checkpoint of this format"):
        Checkpoint(tmp_path / "run.pt").load()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log", "log.gz", "criteo", "criteo.gz"])
def test_a_trace(tmp_path, name):
    content = LOG if "log" in name else CRITEO
    packed = name.endswith("gz")

    def read():
        if "log" in name:
            trace = open_trace(str(path), ids=("item", "user"), dense=("price",))
        else:
            trace = open_trace(f"criteo:{path}")
        return trace.batch(0, trace.samples).ids.tolist()

    path = tmp_path / name
    content = gzip.compress(content, mtime=0) if packed else content
    path.write_bytes(content)
    sound = read()
    for number, octets in damaged(content, 200, SEED):
        path.write_bytes(octets)
        try:
            found = read()
        except TraceError as error:
            assert str(path) in str(error) or "column" in str(error)
        else:
            assert not packed or found == sound, f"copy {number}, seed {SEED}: other ids"


@pytest.mark.slow
def test_a_measurement(tmp_path):
    path = tmp_path / "step.json"
    for number, octets in damaged(b'{"step_ms": 3.5, "batch": 64}', 200, SEED):
        path.write_bytes(octets)
        try:
            assert isinstance(_measured_seconds(path, 64), float), f"copy {number}, seed {SEED}"
        except Error as error:
            assert "expected a JSON object" in str(error)
