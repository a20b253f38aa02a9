"""BagReadRequests: the reads of every bag, and the one that reports a list error."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Status
from hotrow_rtl.mover.bags.payloads import ReadKind
from hotrow_rtl.mover.bags.read_requests import BagReadRequests

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
ONE = 0x3F800000
SUMMAND, ROW, STATE = ReadKind
SLVERR, DECERR = 1, 2


@dataclass
class Command:
    """The lists of a POOL, or with `updates` of an UPDATE, drawn at random."""

    lengths: list
    updates: bool = False
    adagrad: bool = False
    listed: bool = False
    weighted: bool = False
    summands: int = None  # default the sum of the lengths
    length_faults: dict = field(default_factory=dict)

    def __post_init__(self):
        rng = np.random.default_rng(len(self.lengths))
        if self.summands is None:
            self.summands = sum(self.lengths)
        count = len(self.lengths) if self.updates else self.summands
        self.rows = [{"table": int(rng.integers(TINY.tables)), "row": int(rng.integers(1 << 20))}
                     for _ in range(count)]
        self.targets = rng.integers(
            0, 1 << 20, self.summands if self.updates else len(self.lengths)).tolist()
        self.weights = rng.integers(0, 1 << 32, self.summands).tolist()

    def lists(self):
        """The lists of the command by name, as payloads of the unpackers."""
        def elements(values, faults=()):
            return [{"value": value, "fault": dict(faults).get(at, 0),
                     "last": at == len(values) - 1} for at, value in enumerate(values)]
        return {"rows": elements(self.rows),
                "lengths": elements(self.lengths, self.length_faults),
                "targets": elements(self.targets) if self.listed else [],
                "weights": elements(self.weights) if self.weighted else []}

    def expected(self):
        """Fields of every request and info, and the number of bags."""
        reads, requested, bags, left = [], 0, 0, self.summands
        error = None

        def add(row, slot=None, error=Status.OK, **info):
            kind = info["kind"]
            gradient = self.updates and kind is SUMMAND
            reads.append(({"table": row["table"], "is_state": kind is STATE,
                           "write_only": (info["empty"] and not gradient) or kind is not SUMMAND,
                           **({} if info["empty"] or error else {"row": row["row"]}),
                           **({} if slot is None else {"slot": slot})},
                          info | {"list_error": error}))

        def finish(row, index, error=Status.OK):
            """The row and state of an UPDATE."""
            for kind in (ROW, STATE)[:1 + self.adagrad]:
                add(row, error=error, kind=kind, index=index, empty=False, last_summand=False,
                    last=kind is (STATE if self.adagrad else ROW))

        for bag, length in enumerate(self.lengths):
            fault = self.length_faults.get(bag, 0)
            if fault or length > left or (self.updates and not length):
                error = ((Status.SLVERR - 1 + fault, requested) if fault
                         else (Status.LOOKUPS, requested + length))
                break
            for at in range(max(length, 1)):
                row = self.rows[bag if self.updates else requested if length else 0]
                slot = (requested if self.updates else bag)
                add(row, self.targets[slot] if self.listed else slot, kind=SUMMAND,
                    last=not self.updates and at == max(length, 1) - 1,
                    last_summand=at == max(length, 1) - 1, empty=not length,
                    index=bag if self.updates else requested,
                    **({"weight": self.weights[requested] if self.weighted else ONE}
                       if length else {}))
                requested, left = requested + bool(length), left - bool(length)
            if self.updates:
                finish(self.rows[bag], bag)
            bags += 1
        if error is None and left:
            error = Status.LOOKUPS, requested
        if error is not None:
            status, index = error
            add(self.rows[0], error=status, kind=SUMMAND, index=index, empty=True,
                last_summand=True, last=not self.updates)
            if self.updates:
                finish(self.rows[0], index, status)
            bags += 1
        return reads, bags


POOL, UPDATE = Command([2, 0, 3, 1]), Command([2, 1, 3, 1], updates=True)
ADAGRAD = replace(UPDATE, adagrad=True)
# Refused: the first, a middle or the last length; too few or too many summands in all.
COMMANDS = [
    POOL, Command([0, 0, 1, 17], listed=True, weighted=True), UPDATE,
    Command([1, 9], updates=True, adagrad=True, listed=True),
    *(replace(POOL, length_faults={bag: DECERR}) for bag in (0, 2, 3)),
    *(replace(command, length_faults={bag: SLVERR})
      for command in (UPDATE, ADAGRAD) for bag in (0, 1, 3)),
    *(replace(command, lengths=[*UPDATE.lengths[:bag], 0, *UPDATE.lengths[bag + 1:]])
      for command in (UPDATE, ADAGRAD) for bag in (0, 1, 3)),
    *(replace(command, summands=summands, listed=True)
      for command in (POOL, UPDATE) for summands in (1, 4, 6, 9)),
]


@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, RAGGED)],
                         ids=["steady", "ragged"])
def test_requests_equal_the_lists(gaps, pauses):
    """Commands in a row: each list is read to its end, whatever bag has an error."""
    bench = StreamBench(dut := built(BagReadRequests, TINY))
    expected = [command.expected() for command in COMMANDS]
    reads = [read for reads, _ in expected for read in reads]
    for name in ("rows", "lengths", "targets", "weights"):
        bench.source(getattr(dut, name), [
            element for command in COMMANDS for element in command.lists()[name]], gaps)
    requests = bench.sink(dut.requests, len(reads), pauses, "requests")
    infos = bench.sink(dut.infos, len(reads), pauses, "infos")

    async def commands(ctx):
        for command, (_, bags) in zip(COMMANDS, expected, strict=True):
            ctx.set(dut.setting, {
                "updates": command.updates, "listed": command.listed,
                "weighted": command.weighted, "adagrad": command.adagrad,
                "summands": command.summands})
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            await ctx.tick().until(dut.done)
            assert ctx.get(dut.bag_count) == bags
    bench.process("commands", commands)
    bench.run(5000)
    for number, (request, info, (wanted_request, wanted_info)) in enumerate(
            zip(requests, infos, reads, strict=True)):
        for got, wanted in ((request, wanted_request), (info, wanted_info)):
            assert {name: got[name] for name in wanted} == wanted, f"read {number}"
