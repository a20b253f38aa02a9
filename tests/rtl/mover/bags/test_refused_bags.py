"""A refused bag, row or list leaves no unit waiting: the next command is carried out."""

from dataclasses import dataclass, replace

import pytest
from hotrow_rtl.contract.encoding import Status
from hotrow_rtl.float.formats import ElementType
from hotrow_rtl.interfaces.records import FAULT_DECERR, FAULT_SLVERR

from tests.support.benches.bag_bench import ADAGRAD, LISTED, TINY, TYPED, Pool, Update
from tests.support.benches.row_bench import TABLES, RowBench, compare

LENGTHS = [2, 1, 3]
UNKNOWN_TABLE, OUTSIDE = 15, 1 << 20


@dataclass
class Kind:
    """A command with bags of LENGTHS rows of one table; a table whose rows have another size."""

    make: type
    table: int
    other: int
    flags: int = LISTED

    def command(self, seed):
        return self.make(seed, [self.table], LENGTHS, self.flags, rows=12)

    def position(self, bag):
        """Position of a bag's first row in the list of rows."""
        return bag if self.make is Update else sum(LENGTHS[:bag])

    def target(self, bag):
        """Position of a bag's first target."""
        return sum(LENGTHS[:bag]) if self.make is Update else bag


TYPES = {1: "FP16", 3: "BF16", 10: "FP16", 11: "BF16"}
KINDS = {
    "pool fp32": Kind(Pool, 0, 2), "pool fp16": Kind(Pool, 1, 3), "pool bf16": Kind(Pool, 3, 1),
    "update fp32": Kind(Update, 8, 9), "update fp16": Kind(Update, 10, 11),
    "update bf16 of 48 bytes": Kind(Update, 11, 10),
    "typed update fp16": Kind(Update, 10, 11, LISTED | TYPED),
    "adagrad fp16": Kind(Update, 10, 11, LISTED | ADAGRAD),
}
SOUND = [KINDS["update fp16"], KINDS["pool fp32"], KINDS["adagrad fp16"], KINDS["pool fp16"]]


def refused(kind, bag, seed):
    """Commands of which one bag is refused, each for another reason."""
    def command(**changes):
        return replace(kind.command(seed), **changes)

    def with_length(length):
        lengths = [*LENGTHS[:bag], length, *LENGTHS[bag + 1:]]
        return command(lengths=lengths, **(
            {"gradient_count": 6} if kind.make is Update else {"count": 6}))

    def with_entry(name, value):
        changed = command()
        changed.entries[name][kind.position(bag)] = value
        return changed

    outside = command()
    outside.targets[kind.target(bag)] = OUTSIDE
    commands = {
        "too long": with_length(7),
        "row fault": command(faults={"rows": {kind.position(bag): FAULT_SLVERR}}),
        "target fault": command(faults={"targets": {kind.target(bag): FAULT_DECERR}}),
        "unknown table": with_entry("table", UNKNOWN_TABLE),
        "row out of range": with_entry("row", OUTSIDE),
        "other format": with_entry("table", kind.other),
        "slot outside the region": outside,
    }
    if kind.make is Update:
        commands["no gradients"] = with_length(0)
    if bag == 0:  # all lengths lie in one bus word
        commands["length fault"] = command(faults={"lengths": {0: FAULT_SLVERR}})
    if bag == len(LENGTHS) - 1:
        commands["a summand left"] = with_length(2)
    return commands


def check(monkeypatch, commands):
    """Each command is refused with the golden model's outcome, and a sound one follows it."""
    for number, name in TYPES.items():
        monkeypatch.setitem(TABLES, number, replace(
            TABLES[number], type=ElementType[name].value,
            **({"state_bytes": 4} if number in (8, 10) else {})))
    sequence = [each for number, command in enumerate(commands)
                for each in (command, SOUND[number % len(SOUND)].command(100 + number))]
    got, _ = compare(RowBench(TINY), sequence, limit=400 * len(sequence))
    assert all(outcome.status != Status.OK for outcome in got[::2])
    assert all(outcome.status == Status.OK for outcome in got[1::2])


@pytest.mark.slow
def test_first_row_without_gradients(monkeypatch):
    """Widened gradients: the refused bag's summand sets the formats of the row that follows it."""
    check(monkeypatch, [refused(KINDS["update fp16"], 0, 1)["no gradients"],
                        refused(KINDS["update bf16 of 48 bytes"], 0, 2)["length fault"]])


@pytest.mark.slow
def test_an_empty_bag_is_refused_before_a_row_of_the_next(monkeypatch):
    """Both errors have the index of that row."""
    pool = Pool(1, [0], [0, 2, 3], LISTED, rows=12)
    pool.targets[0] = OUTSIDE
    pool.entries["row"][0] = OUTSIDE
    check(monkeypatch, [pool])


@pytest.mark.slow
def test_an_empty_bag_of_a_refused_row_is_not_written(monkeypatch):
    """The row after it gives its table, and has a fault or an unknown table."""
    fault = Pool(1, [0], [0, 2, 0, 3], LISTED, rows=12, faults={"rows": {0: FAULT_SLVERR}})
    unknown = Pool(2, [0], [0, 2, 0, 3], LISTED, rows=12)
    unknown.entries["table"][0] = UNKNOWN_TABLE
    check(monkeypatch, [fault, unknown])


@pytest.mark.long
@pytest.mark.parametrize("kind, bag", [
    pytest.param(kind, bag, id=f"{kind}, {place} bag") for kind in KINDS
    for bag, place in enumerate(("first", "middle", "last"))])
def test_every_refusal(monkeypatch, kind, bag):
    check(monkeypatch, refused(KINDS[kind], bag, bag).values())
