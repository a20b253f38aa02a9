"""A flipped bit in any file is an error or changes nothing, and destroys nothing."""

import random

import pytest
from hotrow.contract.errors import Error

from tests.system.file_kinds import KINDS

HEADER = 512  # bytes at the beginning and at the end of a file whose bits are all flipped
SIGNATURE = 8  # bytes at the beginning by which each kind of file is recognised


def contents(path):
    """Content of each file by its path, without files that hold space alone."""
    files = [path] if path.is_file() else sorted(path.iterdir())
    return {each: each.read_bytes() for each in files if not each.name.startswith("spare-")}


def bits_of(size, draw, sample):
    """All bits of a header and an end, or a sample of them with some of its signature; and a
    sample of the others."""
    ends = [bit for bit in range(8 * size)
            if bit < 8 * HEADER or bit >= 8 * max(0, size - HEADER)]
    between = range(8 * HEADER, 8 * max(HEADER, size - HEADER))
    if sample:
        ends = [*draw.sample(ends[:8 * SIGNATURE], min(8, len(ends))),
                *draw.sample(ends, min(sample, len(ends)))]
    return ends + draw.sample(between, min(sample or 1000, len(between)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("sample", [
    25, pytest.param(None, marks=[pytest.mark.long, pytest.mark.nightly])])
def test_a_flipped_bit(tmp_path, name, sample, capsys):
    seed = random.randrange(1 << 30)
    draw, path, kind = random.Random(seed), tmp_path / name, KINDS[name]
    kind.save(path, 1)
    whole, files = kind.read(path), contents(path)
    tried = refused = 0
    for file, content in files.items():
        for bit in bits_of(len(content), draw, sample):
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            message = f"seed {seed}: bit {bit % 8} of byte {bit // 8} of {file.name}"
            try:
                assert kind.read(path) == whole, f"{message} is silent"
            except Error:
                refused += 1
            except UserWarning:
                refused += 1  # of an old table: it was not closed
            assert contents(path) == {**files, file: bytes(damaged)}, f"{message} changes files"
            tried += 1
        file.write_bytes(content)
    assert kind.read(path) == whole and refused > tried // 20, (seed, tried, refused)
    with capsys.disabled():
        print(f"\n{name}: {tried} flips, {refused} refused, the others changed nothing")
