"""The command validator against its golden model: every refusal, and their priority."""

from dataclasses import replace
from itertools import combinations, cycle

import numpy as np
import pytest
from amaranth import Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import LIST_ALIGNMENT, preset
from hotrow_rtl.contract.command_rules import ARITHMETIC, PLANNING
from hotrow_rtl.contract.commands import COMMANDS
from hotrow_rtl.contract.encoding import (
    COMMAND_BYTES,
    OPERANDS,
    QUEUES,
    AllFlag,
    BatchFlag,
    GatherFlag,
    Opcode,
    PlanFlag,
    PoolFlag,
    Status,
    packed_address,
)
from hotrow_rtl.host.command_validator import CommandValidator
from hotrow_rtl.host.region_arbiter import RegionArbiter
from hotrow_rtl.host.table_range_check import TableRangeCheck
from hotrow_rtl.interfaces.command_assembler import CommandAssembler
from hotrow_rtl.interfaces.records import (
    COMMAND_PARTS,
    check_result,
    region_update,
    table_update,
)
from hotrow_rtl.interfaces.records import command as command_layout
from hotrow_rtl.memory.region_check import RegionCheck
from hotrow_sim.golden.command_validator import lists, validate
from hotrow_sim.golden.outcome import Outcome
from hotrow_sim.golden.records import COMMAND_RECORD, decode, encode
from hotrow_sim.golden.region_check import Region, Table

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

CONFIG = replace(preset("tiny"), batch_lookups=1 << 16)
SIZE = 1000
RW, RO, SKEWED, TINY, ABSENT, BEYOND = 1, 2, 3, CONFIG.handles - 1, 9, CONFIG.handles + 1
REGIONS = {
    RW: Region(0x1_0000, 1 << 16, True),
    RO: Region(0x3_0000, 1 << 16, False),
    SKEWED: Region(0x5_0010, 1 << 16, True),  # aligned for lists at offset 48
    TINY: Region((1 << 63) + 0x40, SIZE, True),
}
TABLES = {number: Table(last_row=9, weights=0, row_bytes=64, stride=64)
          for number in range(CONFIG.tables) if number != 7}
ADDRESSES = [field.name for field in OPERANDS.values() if field.is_address]


class Harness(wiring.Component):
    """The validator with the units that it uses, and an assembler of the commands that pass."""

    def __init__(self, config, queue):
        self.config, self.validator = config, CommandValidator(config, queue)
        super().__init__({
            "words": In(self.validator.words.signature.flip()),
            "checked": Out(stream.Signature(data.StructLayout({
                "command": command_layout, "check": check_result}))),
            "ranges": Out(self.validator.ranges.signature),
            "region_update": In(region_update(config)),
            "table_update": In(table_update(config)),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.validator = validator = self.validator
        m.submodules.span = span = TableRangeCheck(self.config)
        m.submodules.regions = regions = RegionCheck(self.config)
        m.submodules.arbiter = arbiter = RegionArbiter(self.config, clients=1)
        flipped, connect = wiring.flipped, wiring.connect
        connect(m, harness=flipped(self.words), validator=validator.words)
        m.submodules.assembler = assembler = CommandAssembler()
        connect(m, validator=validator.parts, assembler=assembler.parts)
        checked, passed, fire = self.checked, assembler.command, Signal()
        m.d.comb += [
            checked.p.command.eq(passed.p),
            checked.p.check.eq(validator.checked.p.check),
            checked.valid.eq(validator.checked.valid & (
                (validator.checked.p.check.status != Status.OK) | passed.valid)),
            fire.eq(checked.valid & checked.ready),
            validator.checked.ready.eq(fire),
            passed.ready.eq(fire),
        ]
        connect(m, validator=validator.ranges, harness=flipped(self.ranges))
        connect(m, validator=validator.tables, span=span.client)
        connect(m, validator=validator.region, arbiter=arbiter.clients[0])
        connect(m, arbiter=arbiter.check.accesses, regions=regions.accesses)
        connect(m, arbiter=arbiter.check.verdicts, regions=regions.verdicts)
        connect(m, harness=flipped(self.region_update), regions=regions.update)
        connect(m, harness=flipped(self.table_update), span=span.table_update)
        m.d.comb += [
            self.ready.eq(regions.ready & span.ready),
            arbiter.enable.eq(regions.ready),
            validator.commands.ready.eq(1),
        ]
        return m


async def register(ctx, dut):
    """Register the regions and tables, as the host does."""
    await ctx.tick().until(dut.ready)
    region, table = dut.region_update, dut.table_update
    ctx.set(region.enable, 1)
    for handle, each in REGIONS.items():
        ctx.set(region.index, handle)
        ctx.set(region.entry, {"valid": 1, "writable": each.writable, "base16": each.base >> 4,
                               "size": each.size})
        await ctx.tick()
    ctx.set(region.enable, 0)
    ctx.set(table.enable, 1)
    ctx.set(table.entry, {"valid": 1})
    for number in TABLES:
        ctx.set(table.index, number)
        await ctx.tick()
    ctx.set(table.enable, 0)


def check(commands, queue, gaps=STEADY, pauses=STEADY, config=CONFIG, ranges=None):
    """Return (status, index, address, resulting command) of each command, and the cycles.

    `ranges`, a list, receives (address, bytes, write) of each list.
    """
    dut = built(Harness, config, queue)
    bench = StreamBench(dut)
    verdicts = []

    async def source(ctx):
        await register(ctx, dut)
        for command, gap in zip(commands, cycle(gaps), strict=False):
            for _ in range(gap):
                await ctx.tick()
            bits = Const.cast(command_layout.const(command)).value
            for at in range(0, 8 * COMMAND_BYTES, config.bus_width):
                ctx.set(dut.words.p, {"data": bits >> at & (1 << config.bus_width) - 1,
                                      "last": at + config.bus_width == 8 * COMMAND_BYTES})
                ctx.set(dut.words.valid, 1)
                await ctx.tick().until(dut.words.ready)
                ctx.set(dut.words.valid, 0)
                ctx.set(dut.words.p, {"data": 0xAA})
                if gap:
                    await ctx.tick().repeat(gap)

    async def collect(ctx):
        ctx.set(dut.ranges.ready, 1)
        async for _, _, valid, each in ctx.tick().sample(dut.ranges.valid, dut.ranges.p):
            if valid and ranges is not None:
                ranges.append((each.first * LIST_ALIGNMENT, each.bytes, bool(each.write)))

    bench.process("source", source)
    bench.background(collect)
    verdicts = bench.sink(dut.checked, len(commands), pauses, "checked", read=lambda payload: (
        Status(payload.check.status), payload.check.error_index, payload.check.error_address,
        {name: payload.command[name] for name in OPERANDS}))
    cycles = bench.run(limit=400 + len(commands) * 200)
    return verdicts, cycles


def expected(command, queue, config=CONFIG):
    verdict = validate(command, queue, config, REGIONS, TABLES)
    if isinstance(verdict, Outcome):
        return verdict.status, verdict.error_index, verdict.error_address, command
    return Status.OK, 0, 0, changed(command, **verdict)


def agree(commands, queue, verdicts, config=CONFIG):
    """Compare with the golden model; the result of a refused command is not compared."""
    for command, (status, index, address, after) in zip(commands, verdicts, strict=True):
        want = expected(command, queue, config)
        assert (status, index, address) == want[:3], f"{queue}: {command}"
        if status is Status.OK:
            assert after == want[3], f"{queue}: {command}"


def changed(command, **fields):
    """The command with other fields; fields that share their bytes change together."""
    record = encode(COMMAND_RECORD, **command).view(COMMAND_RECORD)
    for name, value in fields.items():
        record[name] = value
    return decode(COMMAND_RECORD, record)


def legal(opcode, flags=0, **fields):
    """A command that passes all checks; its lists do not overlap."""
    addresses = {name: packed_address(RW, 0x400 * idx) for idx, name in enumerate(ADDRESSES)}
    return changed({}, **addresses | {
        "opcode": int(opcode), "flags": int(flags), "tag": 0x1234_5678, "count": 12,
        "samples": 4, "first_table": 1, "table_count": 3, "stride": 64, "event": 3} | fields)


def defined_flags(opcode):
    """All flags of a command except ALL, with which no operand is checked."""
    kind = COMMANDS[opcode].flags
    return 0 if kind in (None, AllFlag) else int(sum(kind))


LEGAL = [
    *(legal(opcode) for opcode in Opcode),
    *(legal(opcode, flags) for opcode in (Opcode.OBSERVE, Opcode.SPLIT)
      for flags in (BatchFlag.ID64, BatchFlag.FEATURE_MAJOR, BatchFlag.JAGGED, 7)),
    legal(Opcode.SPLIT, BatchFlag.JAGGED, count=1),
    legal(Opcode.DECAY, AllFlag.ALL), legal(Opcode.REMOVE, AllFlag.ALL),
    legal(Opcode.REMOVE, AllFlag.ALL, count=0, source=0, slots=0),
    legal(Opcode.GATHER, GatherFlag.LISTED), legal(Opcode.GATHER, GatherFlag.STATE),
    legal(Opcode.GATHER, 3, destination=packed_address(ABSENT, 3), stride=65520),
    *(legal(opcode, flags) for opcode in ARITHMETIC for flags in range(1, 16)),
    legal(Opcode.POOL, destination=packed_address(ABSENT, 3), bags=CONFIG.batch_samples + 1),
    legal(Opcode.UPDATE, gradients=packed_address(ABSENT, 3), stride=65520),
    legal(Opcode.OBSERVE, samples=CONFIG.batch_samples, count=3 * CONFIG.batch_samples),
    legal(Opcode.OBSERVE, count=4, samples=4, table_count=1, first_table=CONFIG.tables - 1),
]
WRONG_FIELDS = [
    {"opcode": 0x7F}, {"flags": 0x80}, {"flags": 0x0F}, {"count": 0}, {"count": 13},
    {"count": 0xFFFF_FFFF}, {"count": CONFIG.batch_lookups}, {"count": CONFIG.batch_lookups + 1},
    {"samples": 0}, {"samples": CONFIG.batch_samples + 1},
    {"samples": 1 << 31 | 4}, {"table_count": 0}, {"table_count": 0xFFFF}, {"first_table": 6},
    {"first_table": 7}, {"first_table": CONFIG.tables - 1}, {"first_table": 0xFFFF},
    {"event": CONFIG.events}, {"event": 1 << 31}, {"stride": 0}, {"stride": 24},
    {"stride": 65536}, {"stride": 1 << 31}, {"flags": int(BatchFlag.JAGGED), "count": 13},
]
WRONG_ADDRESSES = [packed_address(*address) for address in (
    (ABSENT, 0), (BEYOND, 0), (RO, 0), (RW, 16), (RW, 2), (SKEWED, 0), (SKEWED, 48),
    (RW, (1 << 16) - 4), (RW, 1 << 16), (RW, (1 << 48) - 64), (TINY, 960))]
WRONG = [*WRONG_FIELDS, *({name: address} for name in ADDRESSES for address in WRONG_ADDRESSES)]
MOVE_STATUSES = {Status.OK, Status.BAD_OPCODE, Status.BAD_FLAGS, Status.BAD_EVENT, Status.EMPTY,
                 Status.TOO_LARGE, Status.TABLE_UNKNOWN, Status.REGION, Status.READ_ONLY,
                 Status.MISALIGNED}
STATUSES = {"move": MOVE_STATUSES, "lookup": MOVE_STATUSES | {Status.LOOKUPS}}


def faults_of(opcode):
    """Every wrong field, every wrong address of an operand, and one of each unused operand."""
    used = COMMANDS[opcode].operands
    return [*WRONG_FIELDS, *({name: address} for name in ADDRESSES for address in (
        WRONG_ADDRESSES if name in used else WRONG_ADDRESSES[:1]))]


@pytest.mark.long
@pytest.mark.parametrize("queue", QUEUES)
def test_each_refusal(queue):
    """All legal commands, and each fault in commands of different shapes."""
    kinds = ((Opcode.SPLIT, Opcode.HARVEST, Opcode.WAIT) if queue == "lookup" else
             (Opcode.GATHER, Opcode.COPY, Opcode.WAIT))
    commands = [*LEGAL, *(changed(legal(opcode), **fault)
                          for opcode in kinds for fault in faults_of(opcode))]
    commands += [changed(legal(Opcode.POOL, PoolFlag.BATCH), **fault)
                 for fault in faults_of(Opcode.POOL)]
    verdicts, _ = check(commands, queue)
    agree(commands, queue, verdicts)
    assert {status for status, *_ in verdicts} == STATUSES[queue]


@pytest.mark.parametrize("queue", [pytest.param(queue, marks=pytest.mark.slow)
                                   for queue in QUEUES])
def test_every_refusal(queue):
    """Each command, legal and with every third fault; of another queue, with few."""
    bases = [legal(opcode, PoolFlag.BATCH if opcode is Opcode.POOL else 0) for opcode in Opcode]
    commands = [*LEGAL, *(changed(command, **fault) for number, command in enumerate(
        bases) for fault in faults_of(Opcode(command["opcode"]))[
            number % 3::3 if COMMANDS[command["opcode"]].queue in (queue, "both") else 24])]
    verdicts, _ = check(commands, queue)
    agree(commands, queue, verdicts)
    accepted = {command["opcode"] for command, (status, *_) in zip(commands, verdicts, strict=True)
                if status is Status.OK}
    assert queue == "lookup" or accepted.issuperset(ARITHMETIC)
    assert {status for status, *_ in verdicts} == STATUSES[queue]


@pytest.mark.slow
@pytest.mark.parametrize("queue, opcode", [
    pytest.param(COMMANDS[opcode].queue, opcode, marks=() if number < 2 else pytest.mark.long)
    for number, opcode in enumerate((Opcode.SPLIT, Opcode.GATHER, Opcode.POOL, Opcode.REMOVE,
                                     Opcode.HARVEST, Opcode.UPDATE, Opcode.COPY))])
@pytest.mark.parametrize("gaps, pauses", [
    pytest.param(STEADY, STEADY, marks=pytest.mark.long), (RAGGED, RAGGED)],
    ids=["steady", "ragged"])
def test_the_first_check_that_fails_decides(queue, opcode, gaps, pauses):
    rng = np.random.default_rng(5)
    pairs = list(combinations(WRONG, 2))
    selected = [pairs[i] for i in rng.choice(len(pairs), 70, replace=False)]
    base = legal(opcode, defined_flags(opcode), count=12)
    commands = [changed(base, **first, **{
        name: value for name, value in second.items() if name not in first})
        for first, second in selected]
    verdicts, _ = check(commands, queue, gaps, pauses)
    agree(commands, queue, verdicts)
    assert len({status for status, *_ in verdicts}) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("queue", QUEUES)
def test_random_extents(queue, seed):
    """Lists that fit their region exactly, or exceed it, for every element size."""
    rng = np.random.default_rng(seed)
    commands = []
    for _ in range(100):
        opcode = rng.choice([opcode for opcode, command in COMMANDS.items()
                             if command.queue == queue])
        defined = defined_flags(opcode)
        samples, tables = int(rng.integers(1, 8)), int(rng.integers(1, 5))
        command = legal(opcode, rng.integers(16) & defined, samples=samples,
                        table_count=tables, count=samples * tables)
        for name in ADDRESSES:
            if rng.random() < 0.7:
                address = packed_address(TINY, 64 * int(rng.integers(12, 17)))
                command = changed(command, **{name: address})
        commands.append(command)
    verdicts, _ = check(commands, queue)
    agree(commands, queue, verdicts)
    accepted = np.mean([status is Status.OK for status, *_ in verdicts])
    assert 0.03 < accepted < 0.97, f"seed {seed}: {accepted}"


@pytest.mark.parametrize("config", [
    replace(CONFIG, name="wide", bus_bytes=64, tables=1024, handles=8, batch_samples=64,
            counter_sets=256, directory_sets=256, miss_entries=1024),
    replace(CONFIG, name="narrow", address_width=32, tables=2, events=2),
], ids=lambda config: config.name)
def test_other_geometries(config):
    regions = {handle: region for handle, region in REGIONS.items()
                      if handle < config.handles and region.base < 1 << config.address_width}
    tables = {number: table for number, table in TABLES.items() if number < config.tables}
    commands = [legal(Opcode.OBSERVE, first_table=first, table_count=1, count=4)
                for first in (0, 1, 2, 7, 1023, 1024)]
    commands += [legal(Opcode.OBSERVE, samples=64, count=64 * 3), legal(Opcode.WAIT, event=2)]
    dut_verdicts, _ = check(commands, "lookup", config=config)
    for command, (status, index, address, _) in zip(commands, dut_verdicts, strict=True):
        verdict = validate(command, "lookup", config, regions, tables)
        want = ((verdict.status, verdict.error_index, verdict.error_address)
                if isinstance(verdict, Outcome) else (Status.OK, 0, 0))
        assert (status, index, address) == want, command


def test_a_card_without_arithmetic():
    config = replace(CONFIG, arithmetic=0)
    commands = [legal(opcode) for opcode in Opcode]
    verdicts, _ = check(commands, "move", config=config)
    agree(commands, "move", verdicts, config)
    refused = {command["opcode"] for command, (status, *_) in zip(commands, verdicts, strict=True)
               if status is Status.BAD_OPCODE and COMMANDS[command["opcode"]].queue == "move"}
    assert refused == set(ARITHMETIC)


def test_a_card_that_pools_no_batches():
    config = replace(CONFIG, arithmetic=1)
    commands = [legal(Opcode.POOL, flags) for flags in (7, 8, 15, 0x82)]
    verdicts, _ = check(commands, "move", config=config)
    agree(commands, "move", verdicts, config)
    assert [status for status, *_ in verdicts] == [Status.OK, *[Status.BAD_FLAGS] * 3]


@pytest.mark.slow
@pytest.mark.parametrize("opcode", [
    *PLANNING, *(pytest.param(each, marks=pytest.mark.long)
                 for each in (Opcode.INSTALL, Opcode.HARVEST))])
def test_a_card_with_a_planner(opcode):
    """Each flag and fault, and lists that fit their region exactly, or exceed it."""
    config, rng = replace(CONFIG, planner=True), np.random.default_rng(4)
    commands = [legal(opcode, 1 << bit) for bit in range(8)]
    commands += [legal(opcode, flags) for flags in (PlanFlag.COUNT, PlanFlag.ADMIT,
                                                    PlanFlag.COUNT | PlanFlag.ADMIT)]
    commands += [changed(legal(opcode), **fault) for fault in faults_of(opcode)]
    for name in rng.choice([name for name in COMMANDS[opcode].operands if name in ADDRESSES], 40):
        address = packed_address(TINY, 64 * int(rng.integers(12, 17)))
        commands.append(changed(legal(opcode, int(rng.integers(8)) & defined_flags(opcode)),
                                **{name: address}))
    verdicts, _ = check(commands, "lookup", config=config)
    agree(commands, "lookup", verdicts, config)
    assert len({status for status, *_ in verdicts}) >= 5


def test_lists_of_commands():
    ranges, wanted = [], []
    batches = [command for command in LEGAL
               if command["opcode"] in (Opcode.OBSERVE, Opcode.SPLIT, Opcode.INSTALL)]
    check(batches, "lookup", ranges=ranges)
    for command in batches:
        addresses = validate(command, "lookup", CONFIG, REGIONS, TABLES)
        if not isinstance(addresses, Outcome):
            wanted += [(addresses[name], size, write) for name, size, write in lists(command)]
    assert ranges == wanted and len(ranges) > 20


@pytest.mark.parametrize("tables", [1, 6, 24])
def test_cycles_of_a_check(tables):
    """The formula of the docstring, a region check of 4 cycles, and a cycle per part sent."""
    command = legal(Opcode.OBSERVE, first_table=8, table_count=tables, count=4 * tables)
    _, one = check([command], "lookup")
    _, nine = check([command] * 9, "lookup")
    assert nine - one == 8 * (2 * COMMAND_PARTS + 6 + 1 + (tables + 4) + 2 + 4)
