"""Long lists of the move queue, which several threads share, against the golden model."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow.transports.cpu import open_transport as open_cpu
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import (
    Element,
    GatherFlag,
    Opcode,
    PoolFlag,
    Status,
    UpdateFlag,
    packed_address,
)
from hotrow_sim.golden.records import ROW_RECORD
from hotrow_sim.golden.region_check import Table
from hotrow_sim.model import open_transport as open_model

from tests.support.bare_host import BareHost, aligned

CONFIG = replace(preset("tiny"), name="moves", row_bytes=1024)
ROWS, COUNT, SLOTS = 3000, 12_000, 5000
ROW_BYTES, STRIDE = 64, 80
LISTS, WEIGHTS, STATES, SLOT_ROWS, SLOT_STATES = range(8, 13)
SOURCE, LENGTHS, TARGETS, FACTORS = 0, 1 << 17, 1 << 18, 1 << 19
SIZES = {LISTS: 1 << 20, WEIGHTS: 2 * ROWS * STRIDE, STATES: 2 * ROWS * 4,
         SLOT_ROWS: COUNT * STRIDE, SLOT_STATES: COUNT * 4}


def draw(seed, kind, bags):
    """Contents of every buffer: finite numbers, and lists with repeated rows and slots."""
    rng = np.random.default_rng(seed)
    buffers = {handle: aligned(size) for handle, size in SIZES.items()}
    for handle in (WEIGHTS, SLOT_ROWS):
        numbers = rng.standard_normal(SIZES[handle] // 4).astype(np.float32)
        octets = numbers if kind is Element.FP32 else numbers.astype(np.float16)
        buffers[handle][:octets.nbytes] = octets.view(np.uint8)
    for handle in (STATES, SLOT_STATES):
        buffers[handle][:] = rng.random(SIZES[handle] // 4, np.float32).view(np.uint8)
    lists = buffers[LISTS]
    entries = lists[SOURCE:SOURCE + 8 * COUNT].view(ROW_RECORD)
    entries["table"], entries["row"] = rng.integers(2, size=COUNT), rng.integers(ROWS, size=COUNT)
    lengths = np.bincount(rng.integers(bags, size=COUNT), minlength=bags).astype(np.uint16)
    lists[LENGTHS:LENGTHS + 2 * bags] = lengths.view(np.uint8)
    lists[TARGETS:TARGETS + 4 * COUNT] = rng.integers(
        SLOTS, size=COUNT).astype(np.uint32).view(np.uint8)
    lists[FACTORS:FACTORS + 4 * COUNT] = rng.standard_normal(
        COUNT).astype(np.float32).view(np.uint8)
    return buffers


def each_once(buffers, seed):
    """Let the first 2 * ROWS entries list each row once, with two gradients."""
    order = np.random.default_rng(seed).permutation(2 * ROWS)
    entries = buffers[LISTS][:16 * ROWS].view(ROW_RECORD)
    entries["table"], entries["row"] = order // ROWS, order % ROWS
    buffers[LISTS][LENGTHS:LENGTHS + 4 * ROWS] = np.full(2 * ROWS, 2, np.uint16).view(np.uint8)


def commands(name, bags):
    """Operands of one command."""
    lists = {operand: packed_address(LISTS, offset) for operand, offset in (
        ("source", SOURCE), ("lengths", LENGTHS), ("targets", TARGETS))}
    slots = packed_address(SLOT_ROWS, 0)
    both = GatherFlag.LISTED | GatherFlag.STATE
    step = {"opcode": Opcode.UPDATE, "count": 2 * ROWS, "gradient_count": 4 * ROWS,
            "gradients": slots, "lr": int(np.float32(0.1).view(np.uint32)),
            "eps": int(np.float32(1e-8).view(np.uint32))}
    return {"count": COUNT, "stride": STRIDE} | lists | {
        "gather": {"opcode": Opcode.GATHER, "destination": slots},
        "gather listed": {"opcode": Opcode.GATHER, "flags": both, "destination": slots,
                          "state_destination": packed_address(SLOT_STATES, 0)},
        "scatter": {"opcode": Opcode.SCATTER, "flags": both, "rows": slots,
                    "state_rows": packed_address(SLOT_STATES, 0)},
        "pool": {"opcode": Opcode.POOL, "bags": bags, "destination": slots},
        "pool listed": {"opcode": Opcode.POOL, "bags": bags, "destination": slots,
                        "flags": PoolFlag.LISTED | PoolFlag.MEAN | PoolFlag.WEIGHTED,
                        "weights": packed_address(LISTS, FACTORS)},
        "update": step | {"flags": UpdateFlag.LISTED | UpdateFlag.TYPED},
        "adagrad": step | {"flags": UpdateFlag.ADAGRAD | UpdateFlag.TYPED},
    }[name]


def run(transport, buffers, name, kind, bags):
    """Completion without cycles, and every buffer, of one command."""
    host = BareHost(transport)
    for handle, octets in buffers.items():
        host.register(handle, octets)
    for number in range(2):
        host.table(number, Table(
            last_row=ROWS - 1, weights=packed_address(WEIGHTS, number * ROWS * STRIDE),
            row_bytes=ROW_BYTES, stride=STRIDE, state=packed_address(STATES, number * ROWS * 4),
            state_bytes=4, type=kind))
    done = host.run("move", **commands(name, bags))
    transport.close()
    del done["start"], done["end"]
    return done, buffers


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", ["gather", "gather listed", "scatter", "pool", "pool listed",
                                  "update", "adagrad"])
@pytest.mark.parametrize("kind", [Element.FP32, Element.BF16])
def test_threads_change_no_answer(name, kind, wrong):
    bags, seed = 4000, [int(kind), len(name)]
    results = []
    for threads in (None, 1, 2, 7):
        buffers = draw(seed, kind, bags)
        if name in ("update", "adagrad"):
            each_once(buffers, seed)
        if wrong:  # late and early rows are refused; the first one is reported
            entries = buffers[LISTS][:16 * ROWS].view(ROW_RECORD)
            entries["row"][[4000, 4001, 300, 5999]] = ROWS
        transport = open_model(config=CONFIG) if threads is None else open_cpu(
            CONFIG, threads=threads)
        results.append(run(transport, buffers, name, kind, bags))
    expected, memory = results[0]
    assert expected["status"] == (Status.ROW_OUT_OF_RANGE if wrong else Status.OK)
    assert expected["error_index"] == (300 if wrong else 0) and expected["entries"] > 1000
    for threads, (done, buffers) in zip((1, 2, 7), results[1:], strict=True):
        assert done == expected, f"{threads} threads"
        for handle, octets in buffers.items():
            unequal = np.flatnonzero(octets != memory[handle])
            assert not len(unequal), f"{threads} threads, handle {handle}, bytes {unequal[:8]}"
