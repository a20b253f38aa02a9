"""Rows and pages that a step fetches, against caches that evict what was used longest ago."""

from collections import OrderedDict

import numpy as np
import pytest
from hotrow.traces.synthetic import ranks
from hotrow_explore import constants, systems, workloads
from hotrow_explore.placements import PLACEMENTS, DoesNotFit, Question
from hotrow_explore.replacement import PAGE, fetched_pages, fetched_rows
from hotrow_explore.workloads import Workload

KNOWN = constants.load()
KAGGLE = workloads.find("criteo-kaggle")


def work(rows=30_000, slope=1.0, dim=16):
    return Workload("w", (rows,), (4,), 0, dim, 100, (8,), (8,), slope)


def fetched(keys, held, warm):
    """Misses a batch of an LRU cache of `held` keys after `warm` batches."""
    cache, misses = OrderedDict(), 0
    for number, batch in enumerate(keys):
        for key in dict.fromkeys(batch.tolist()):
            if key in cache:
                cache.move_to_end(key)
                continue
            misses += number >= warm
            cache[key] = None
            if len(cache) > held:
                cache.popitem(last=False)
    return misses / (len(keys) - warm)


def accesses(model, batches, seed):
    draw = np.random.default_rng(seed)
    return [ranks(draw.random(400), model.rows[0], model.slope) for _ in range(batches)]


@pytest.mark.parametrize("slope", [0.8, 1.0, 1.15])
@pytest.mark.parametrize("share", [0.025, 0.1])
def test_rows_of_a_cache(slope, share):
    model = work(slope=slope)
    held = int(share * 30_000)
    counted = fetched(accesses(model, 400, 1), held, 200)
    assert fetched_rows(model, held) == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_pages_of_a_cache(share):
    """Popular rows lie anywhere: a page of 64 rows is as hot as its hottest."""
    model = work(rows=64 * 6000)
    place = np.random.default_rng(2).permutation(model.rows[0])
    pages = [place[batch] // 64 for batch in accesses(model, 150, 3)]
    counted = fetched(pages, int(share * 6000), 100)
    assert fetched_pages(model, int(share * 6000)) == pytest.approx(counted, rel=0.1)
    wide = work(dim=2048)
    assert fetched_pages(wide, 100) == pytest.approx(2 * fetched_rows(wide, 50), rel=0.01)


def test_what_fits_is_not_fetched():
    assert fetched_rows(work(), 30_000) == fetched_pages(work(), 30_000 * 64 // PAGE + 1) == 0.0


def question(model=KAGGLE, **values):
    return Question(model, systems.find("cloud-small").changed(**values), KNOWN)


def test_a_disk_serves_what_memory_does_not():
    few = question(host_memory_gb=0.5)
    with pytest.raises(DoesNotFit, match="host memory"):
        PLACEMENTS["resident"](few)
    parts, more = (PLACEMENTS["disk"](each).parts for each in (few, question(host_memory_gb=1)))
    assert parts["disk"] > 1.5 * more["disk"] > 0 and parts["log"] > more["log"]
    slow = question(host_memory_gb=0.5, disk_kreads=0.1)
    assert PLACEMENTS["disk"](slow).seconds == pytest.approx(
        500 * parts["disk"]) == PLACEMENTS["disk"](slow).parts["disk"]
    mapped = PLACEMENTS["mapped"](few)
    assert mapped.seconds > PLACEMENTS["disk"](few).seconds
    assert PLACEMENTS["mapped"](question()).parts["faults"] == 0


@pytest.mark.parametrize("values, message", [
    ({"disk_gb": 0}, "a disk of this system: needs"),
    ({"disk_gb": 3}, "a disk of this system: needs 4.9 GB, 2.5 usable"),
    ({"host_memory_gb": 0.1}, "too little for tables of 33,762,577 rows: give"),
])
def test_what_a_disk_does_not_serve(values, message):
    with pytest.raises(DoesNotFit, match=message):
        PLACEMENTS["disk"](question(**values))
