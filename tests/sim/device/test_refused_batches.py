"""A refused batch changes neither counters nor directory, and the next batch runs."""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import BatchFlag, Opcode, Status
from hotrow_sim.golden.records import HARVEST_RECORD

JAGGED = BatchFlag.JAGGED
TINY = preset("tiny")  # of the card
SAMPLES, LOOKUPS = TINY.batch_samples, TINY.batch_lookups
PLACES = {"slots": 0, "popular": 4096, "nonpopular": 8192, "misses": 12288}
HOT = ((0, 3), (1, 4))  # (table, row)
IDS = (3, 4, 3, 5, 9, 4)  # of 3 samples of tables 0 and 1


def run(card, opcode, lengths=(1, 1, 1, 1, 1, 1), **changed):
    """Run a valid batch with changes."""
    operands = {"source": card.put(np.array(IDS, np.uint32)), "count": len(IDS), "samples": 3,
                "table_count": 2, "lengths": card.put(np.array(lengths, np.uint16), 4096)}
    if opcode == Opcode.SPLIT:
        operands |= {name: card.address("results", at) for name, at in PLACES.items()}
    return card.run("lookup", opcode=opcode, **operands | changed)


def contents(card):
    """The counts, and the slots of resident rows."""
    done = card.run("lookup", opcode=Opcode.HARVEST, count=64, threshold=1,
                    destination=card.address("results"))
    found = card.result(done["entries"], dtype=HARVEST_RECORD)
    counted = sorted(found[["row", "table", "count"]].tolist())
    done = run(card, Opcode.SPLIT)
    assert done["status"] == Status.OK
    return counted, card.result(len(IDS)).tolist(), done["hits"], done["popular"]


@pytest.fixture
def taught(card):
    """A card that has counted a batch and installed two rows."""
    assert run(card, Opcode.OBSERVE)["status"] == Status.OK
    done = card.run("lookup", opcode=Opcode.INSTALL, count=len(HOT), source=card.put_rows(HOT),
                    slots=card.address("results"))
    assert done["entries"] == len(HOT)
    return card


@pytest.mark.parametrize("opcode, flags", [
    (Opcode.OBSERVE, 0), (Opcode.SPLIT, 0), (Opcode.SPLIT, BatchFlag.COUNT)])
@pytest.mark.parametrize("changed, expected", [
    pytest.param({"count": 0}, (Status.EMPTY, 0), id="no-lookups"),
    pytest.param({"count": 0, "flags": JAGGED, "lengths": [0] * 6}, (Status.EMPTY, 0),
                 id="only-empty-bags"),
    pytest.param({"samples": 0}, (Status.EMPTY, 0), id="no-samples"),
    pytest.param({"samples": 1}, (Status.LOOKUPS, 2), id="one-sample-of-too-many-lookups"),
    pytest.param({"samples": 1, "count": 1}, (Status.LOOKUPS, 2),
                 id="one-sample-of-too-few-lookups"),
    pytest.param({"flags": JAGGED, "lengths": [1, 1, 1, 1, 1, 0]}, (Status.LOOKUPS, 5),
                 id="lengths-of-too-few"),
    pytest.param({"flags": JAGGED, "lengths": [0, 2, 1, 1, 3, 0]}, (Status.LOOKUPS, 7),
                 id="lengths-of-too-many"),
    pytest.param({"flags": JAGGED, "lengths": [0xFFFF] * 6}, (Status.LOOKUPS, 6 * 0xFFFF),
                 id="lengths-of-the-greatest"),
    pytest.param({"samples": SAMPLES + 1, "count": 2 * (SAMPLES + 1)},
                 (Status.TOO_LARGE, SAMPLES + 1), id="samples"),
    pytest.param({"count": LOOKUPS + 1, "flags": JAGGED}, (Status.TOO_LARGE, LOOKUPS + 1),
                 id="lookups"),
    pytest.param({"first_table": 2}, (Status.TABLE_UNKNOWN, 3), id="table-unknown"),
])
def test_nothing_of_a_refused_batch_is_counted(taught, opcode, flags, changed, expected):
    before = contents(taught)
    done = run(taught, opcode, **changed | {"flags": flags | changed.get("flags", 0)})
    assert (done["status"], done["error_index"]) == expected
    assert contents(taught) == before


def test_a_batch_of_one_sample_is_served(taught):
    before, *_ = contents(taught)
    done = run(taught, Opcode.OBSERVE, samples=1, count=2)
    assert (done["status"], done["lookups"], done["hits"]) == (Status.OK, 2, 2)
    after, *_ = contents(taught)
    assert after == sorted((row, table, count + ((table, row) in HOT))
                           for row, table, count in before)
    done = run(taught, Opcode.SPLIT, samples=1, count=2)
    assert (done["status"], done["hits"], done["popular"]) == (Status.OK, 2, 1)
