"""Refused commands: every status of a completion, on the model and on the RTL."""

import numpy as np
import pytest
from hotrow_rtl.contract.commands import COMMANDS
from hotrow_rtl.contract.encoding import (
    AllFlag,
    BatchFlag,
    GatherFlag,
    Opcode,
    Status,
    packed_address,
)
from hotrow_sim.golden.region_check import Table

COUNTS = ("lookups", "hits", "misses", "unique", "popular", "entries", "refused", "bytes")
NOWHERE = packed_address(60, 0)


def batch(card, opcode, ids=range(8), dtype=np.uint32, **changed):
    """A valid batch of 4 samples of tables 0 and 1, with changes."""
    operands = {"opcode": opcode, "source": card.put(np.array(ids, dtype)), "count": 8,
                "samples": 4, "table_count": 2, "lengths": card.put(np.ones(8, np.uint16), 1024)}
    if opcode == Opcode.SPLIT:
        operands |= {name: card.address("results", 1024 * place) for place, name in enumerate(
            ("slots", "popular", "nonpopular", "misses"))}
    if opcode == Opcode.PLAN:
        operands |= {name: card.address("results", 1024 * place) for place, name in enumerate(
            ("slots", "fill_slots", "victim_slots", "fills", "victims"))}
    return operands | changed


def row_list(card, opcode, rows=((0, 1), (1, 2), (2, 3), (0, 4)), **changed):
    """A valid list of rows, with changes."""
    operands = {"opcode": opcode, "count": len(rows), "source": card.put_rows(rows),
                "targets": card.put(np.arange(4, dtype=np.uint32), 1024), "stride": 128,
                "slots": card.address("results"), "destination": card.address("results"),
                "state_destination": card.address("results", 8192),
                "rows": card.address("results"), "state_rows": card.address("results", 8192)}
    return operands | changed


def queue_of(opcode):
    return "move" if opcode >= Opcode.GATHER else "lookup"


def refusal(card, operands):
    """Run a command that must not have an effect; return its status, index and address."""
    before = card.results.copy()
    tables = card.weights.copy(), card.state.copy()
    done = card.run(queue_of(operands["opcode"]), **operands)
    assert not any(done[name] for name in COUNTS), done
    assert (card.results == before).all(), "a refused command wrote something"
    assert (card.weights == tables[0]).all() and (card.state == tables[1]).all()
    return done["status"], done["error_index"], done["error_address"]


@pytest.mark.parametrize("queue, opcode", [
    ("lookup", 0x7F), ("move", 0x04), ("move", Opcode.OBSERVE), ("lookup", Opcode.GATHER),
    ("lookup", Opcode.SCATTER),
])
def test_opcode_unknown_or_of_the_other_queue(card, queue, opcode):
    done = card.run(queue, opcode=opcode, flags=0xFF, tag=0xDEAD_BEEF)
    assert (done["status"], done["error_index"]) == (Status.BAD_OPCODE, opcode)
    assert (done["tag"], done["opcode"]) == (0xDEAD_BEEF, opcode)


@pytest.mark.parametrize("opcode", [
    each for each, command in COMMANDS.items() if command.queue != "both"])
def test_a_command_in_the_other_queue(card, opcode):
    done = card.run({"lookup": "move", "move": "lookup"}[queue_of(opcode)], opcode=opcode)
    assert (done["status"], done["error_index"]) == (Status.BAD_OPCODE, opcode)


@pytest.mark.parametrize("opcode, flags", [
    (Opcode.NOP, 1), (Opcode.WAIT, 1), (Opcode.OBSERVE, 16), (Opcode.SPLIT, 0x81),
    (Opcode.DECAY, 2), (Opcode.HARVEST, 1), (Opcode.INSTALL, 1), (Opcode.REMOVE, 2),
    (Opcode.FENCE, 1), (Opcode.SIGNAL, 1), (Opcode.UPDATE, 8),
])
def test_undefined_flags(card, opcode, flags):
    assert refusal(card, {"opcode": opcode, "flags": flags}) == (Status.BAD_FLAGS, flags, 0)


@pytest.mark.parametrize("opcode", [Opcode.WAIT, Opcode.SIGNAL])
@pytest.mark.parametrize("event", [8, 0xFFFF_FFFF])
def test_undefined_events(card, opcode, event):
    assert refusal(card, {"opcode": opcode, "event": event}) == (Status.BAD_EVENT, event, 0)


@pytest.mark.parametrize("opcode", [Opcode.OBSERVE, Opcode.SPLIT, Opcode.PLAN, Opcode.MARK])
@pytest.mark.parametrize("changed, expected", [
    ({"samples": 0}, (Status.EMPTY, 0, 0)),
    ({"table_count": 0}, (Status.EMPTY, 0, 0)),
    ({"count": 0}, (Status.EMPTY, 0, 0)),
    ({"samples": 1025, "count": 2050}, (Status.TOO_LARGE, 1025, 0)),
    ({"count": (1 << 31) + 1}, (Status.TOO_LARGE, (1 << 31) + 1, 0)),
    ({"count": 9}, (Status.LOOKUPS, 8, 0)),
    ({"samples": 1024, "table_count": 65535, "count": 8}, (Status.LOOKUPS, 1024 * 65535, 0)),
    ({"table_count": 4, "count": 16}, (Status.TABLE_UNKNOWN, 3, 0)),
    ({"first_table": 65535}, (Status.TABLE_UNKNOWN, 65535, 0)),
    ({"first_table": 31}, (Status.TABLE_UNKNOWN, 31, 0)),
    ({"source": NOWHERE}, (Status.REGION, 0, NOWHERE)),
    ({"source": packed_address(0xFFFF, 0)}, (Status.REGION, 0, packed_address(0xFFFF, 0))),
    ({"source": packed_address(10, (1 << 15) - 16)},
     (Status.REGION, 0, packed_address(10, (1 << 15) - 16))),
    ({"source": packed_address(10, (1 << 48) - 64)},
     (Status.REGION, 0, packed_address(10, (1 << 48) - 64))),
    ({"source": packed_address(10, 4)}, (Status.MISALIGNED, 0, packed_address(10, 4))),
    ({"lengths": NOWHERE, "flags": BatchFlag.JAGGED}, (Status.REGION, 0, NOWHERE)),
    ({"count": 9, "flags": BatchFlag.JAGGED}, (Status.LOOKUPS, 8, 0)),
    ({"flags": BatchFlag.ID64, "source": packed_address(10, (1 << 15) - 64), "samples": 5,
      "count": 10}, (Status.REGION, 0, packed_address(10, (1 << 15) - 64))),
])
def test_batches(card, opcode, changed, expected):
    assert refusal(card, batch(card, opcode, **changed)) == expected


@pytest.mark.parametrize("operand", ["slots", "popular", "nonpopular", "misses"])
def test_results_of_split(card, operand):
    last = {"slots": 32, "popular": 16, "nonpopular": 16, "misses": 64}[operand]
    for address, status in (
            (NOWHERE, Status.REGION),
            (card.address("lists"), Status.READ_ONLY),
            (card.address("results", 48), Status.MISALIGNED),
            (card.address("results", (1 << 15) - last + 16), Status.REGION)):
        operands = batch(card, Opcode.SPLIT, **{operand: address})
        assert refusal(card, operands) == (status, 0, address)


@pytest.mark.parametrize("opcode", [
    Opcode.INSTALL, Opcode.REMOVE, Opcode.HARVEST, Opcode.GATHER, Opcode.SCATTER])
def test_empty_lists(card, opcode):
    assert refusal(card, row_list(card, opcode, count=0)) == (Status.EMPTY, 0, 0)


@pytest.mark.parametrize("opcode", [Opcode.INSTALL, Opcode.REMOVE])
def test_slots_of_a_list(card, opcode):
    for address, status in ((NOWHERE, Status.REGION), (card.address("lists"), Status.READ_ONLY),
                            (card.address("results", 48), Status.MISALIGNED)):
        assert refusal(card, row_list(card, opcode, slots=address)) == (status, 0, address)


def test_results_of_plan(card):
    for address, status in ((card.address("lists"), Status.READ_ONLY),
                            (card.address("results", 48), Status.MISALIGNED)):
        assert refusal(card, batch(card, Opcode.PLAN, fills=address)) == (status, 0, address)


def test_the_window_of_planned_batches(card):
    window = card.read("PLAN_WINDOW")
    for number in range(window):
        assert card.run("lookup", **batch(card, Opcode.PLAN, value=number))["status"] == Status.OK
    done = card.run("lookup", **batch(card, Opcode.PLAN, value=window))
    assert done["status"] == Status.WINDOW
    done = card.run("lookup", **batch(card, Opcode.MARK, value=0))
    assert (done["status"], done["error_index"]) == (Status.BATCH_ORDER, window)
    for _ in range(8):  # as many as the ring holds, at once
        card.submit("lookup", **batch(card, Opcode.OBSERVE))
    card.ring("lookup")
    card.wait("lookup")


def test_a_pool_without_bags(card):
    operands = row_list(card, Opcode.POOL, bags=0)
    assert refusal(card, operands)[0] == Status.EMPTY


def test_the_first_bad_operand_is_reported(card):
    operands = row_list(card, Opcode.INSTALL, source=NOWHERE, slots=packed_address(61, 0))
    assert refusal(card, operands) == (Status.REGION, 0, NOWHERE)
    operands = row_list(card, Opcode.INSTALL, slots=packed_address(61, 0))
    assert refusal(card, operands) == (Status.REGION, 0, packed_address(61, 0))


def test_remove_all_reads_no_list(card):
    done = card.run("lookup", opcode=Opcode.REMOVE, flags=AllFlag.ALL, source=NOWHERE)
    assert done["status"] == Status.OK


def test_harvest_destination(card):
    for offset, count, status in ((0, 2049, Status.REGION), (16, 4, Status.MISALIGNED)):
        address = card.address("results", offset)
        operands = row_list(card, Opcode.HARVEST, destination=address, count=count)
        assert refusal(card, operands) == (status, 0, address)
    address = card.address("lists")
    operands = row_list(card, Opcode.HARVEST, destination=address)
    assert refusal(card, operands) == (Status.READ_ONLY, 0, address)


@pytest.mark.parametrize("opcode", [Opcode.GATHER, Opcode.SCATTER])
@pytest.mark.parametrize("stride", [0, 8, 65536, 0xFFFF_FFF0])
def test_strides_of_slots(card, opcode, stride):
    assert refusal(card, row_list(card, opcode, stride=stride)) == (
        Status.MISALIGNED, stride, 0)


@pytest.mark.parametrize("opcode", [Opcode.GATHER, Opcode.SCATTER])
def test_targets(card, opcode):
    operands = row_list(card, opcode, targets=NOWHERE, flags=GatherFlag.LISTED)
    assert refusal(card, operands) == (Status.REGION, 0, NOWHERE)
    assert card.run("move", **row_list(card, opcode, targets=NOWHERE))["entries"] == 4


@pytest.mark.parametrize("id64", [False, True])
def test_ids_out_of_range_are_skipped_and_the_first_is_reported(card, id64):
    beyond = [100, 0xFFFF_FFFF] + ([1 << 32, (1 << 63) + 5] if id64 else [])
    ids = [5, 99, *beyond, 5]
    operands = batch(card, Opcode.SPLIT, ids, np.uint64 if id64 else np.uint32, count=len(ids),
                     samples=len(ids), table_count=1, flags=BatchFlag.ID64 if id64 else 0)
    done = card.run("lookup", **operands)
    assert (done["status"], done["error_index"]) == (Status.ROW_OUT_OF_RANGE, 2)
    assert (done["lookups"], done["misses"], done["unique"]) == (3, 3, 2)
    slots = card.result(len(ids))
    assert slots.tolist() == [0x8000_0000, 0x8000_0001, *[0xFFFF_FFFF] * len(beyond), 0x8000_0000]
    assert card.result(len(ids), 2048).tolist() == list(range(len(ids)))


@pytest.mark.parametrize("opcode", [
    Opcode.INSTALL, Opcode.REMOVE, Opcode.GATHER, Opcode.SCATTER])
@pytest.mark.parametrize("bad, status", [
    ((3, 0), Status.TABLE_UNKNOWN), ((32, 0), Status.TABLE_UNKNOWN),
    ((0x1_0000, 0), Status.TABLE_UNKNOWN), ((0, 100), Status.ROW_OUT_OF_RANGE),
])
def test_bad_entries_of_lists_are_skipped(card, opcode, bad, status):
    rows = [(0, 1), (0, 2), bad, (0, 3), (9, 9)]
    operands = row_list(card, opcode, rows)
    done = card.run(queue_of(opcode), **operands)
    assert (done["status"], done["error_index"], done["error_address"]) == (status, 2, 0)
    assert done["entries"] == (0 if opcode == Opcode.REMOVE else 3)
    assert done["refused"] == 0
    if queue_of(opcode) == "lookup":
        assert card.result(5)[[2, 4]].tolist() == [0xFFFF_FFFF] * 2


@pytest.mark.parametrize("changed, table, status, address", [
    ({"stride": 80}, {}, Status.STRIDE, 0),
    ({"stride": 512}, {"row_bytes": 528}, Status.STRIDE, 0),
    ({"stride": 1024}, {"row_bytes": 1008, "stride": 1008}, Status.STRIDE, 0),  # tiny carries 512
    ({}, {"weights": NOWHERE}, Status.REGION, packed_address(60, 2 * 128)),
    ({}, {"weights": packed_address(8, (1 << 48) - 128)}, Status.REGION, packed_address(8, 128)),
    ({"flags": GatherFlag.STATE}, {"state": NOWHERE}, Status.REGION, packed_address(60, 2 * 8)),
    ({"flags": GatherFlag.STATE}, {"state": packed_address(9, 4096 - 16)}, Status.REGION,
     packed_address(9, 4096)),
])
def test_rows_that_gather_cannot_read(card, changed, table, status, address):
    card.table(5, Table(**{**vars(card.tables[1]), "state_bytes": 8,
                           "state": card.address("state"), **table}))
    operands = row_list(card, Opcode.GATHER, rows=[(0, 1), (5, 2), (0, 3)], **changed)
    before = card.results.copy()
    done = card.run("move", **operands)
    assert (done["status"], done["error_index"], done["error_address"]) == (status, 1, address)
    assert (done["entries"], done["bytes"]) == (2, 2 * (64 + 8 * ("flags" in changed)))
    stride = operands["stride"]
    assert (card.results[stride:stride + 16] == before[stride:stride + 16]).all()
    assert (card.results[8200:8208] == before[8200:8208]).all(), "its state must stay too"


@pytest.mark.parametrize("changed, status, address", [
    ({"destination": NOWHERE}, Status.REGION, packed_address(60, 3 * 128)),
    ({"destination": packed_address(11, (1 << 15) - 3 * 128 - 48)}, Status.REGION,
     packed_address(11, (1 << 15) - 48)),
    ({"destination": packed_address(11, (1 << 48) - 3 * 128)}, Status.REGION,
     packed_address(11, 0)),
    ({"destination": packed_address(10, 0)}, Status.READ_ONLY, packed_address(10, 3 * 128)),
    ({"destination": packed_address(11, 8)}, Status.MISALIGNED, packed_address(11, 3 * 128 + 8)),
    ({"state_destination": NOWHERE}, Status.REGION, packed_address(60, 3 * 8)),
    ({"state_destination": packed_address(10, 0)}, Status.READ_ONLY, packed_address(10, 3 * 8)),
    ({"state_destination": packed_address(11, 2)}, Status.MISALIGNED, packed_address(11, 26)),
])
def test_rows_that_gather_cannot_write(card, changed, status, address):
    operands = row_list(card, Opcode.GATHER, rows=[(0, 1)], flags=GatherFlag.LISTED
                        | GatherFlag.STATE, **changed)
    card.put(np.array([3], np.uint32), 1024)
    assert refusal(card, operands) == (status, 0, address)


@pytest.mark.parametrize("changed, status, address", [
    ({"rows": NOWHERE}, Status.REGION, packed_address(60, 3 * 128)),
    ({"rows": packed_address(11, (1 << 15) - 3 * 128 - 48)}, Status.REGION,
     packed_address(11, (1 << 15) - 48)),
    ({"rows": packed_address(11, (1 << 48) - 3 * 128)}, Status.REGION, packed_address(11, 0)),
    ({"rows": packed_address(10, 8)}, Status.MISALIGNED, packed_address(10, 3 * 128 + 8)),
    ({"state_rows": NOWHERE}, Status.REGION, packed_address(60, 3 * 8)),
    ({"state_rows": packed_address(11, 2)}, Status.MISALIGNED, packed_address(11, 26)),
])
def test_slots_that_scatter_cannot_read(card, changed, status, address):
    operands = row_list(card, Opcode.SCATTER, [(0, 1)], flags=GatherFlag.LISTED
                        | GatherFlag.STATE) | changed
    card.put(np.array([3], np.uint32), 1024)
    assert refusal(card, operands) == (status, 0, address)


@pytest.mark.parametrize("table, flags, status, address", [
    ({"weights": packed_address(10, 0)}, 0, Status.READ_ONLY, packed_address(10, 2 * 64)),
    ({"weights": NOWHERE}, 0, Status.REGION, packed_address(60, 2 * 64)),
    ({"weights": packed_address(8, (1 << 48) - 64)}, 0, Status.REGION, packed_address(8, 64)),
    ({"row_bytes": 144, "stride": 144}, 0, Status.STRIDE, 0),
    ({"state": packed_address(10, 4)}, GatherFlag.STATE, Status.READ_ONLY,
     packed_address(10, 4 + 2 * 8)),
    ({"state": packed_address(9, 4096 - 16)}, GatherFlag.STATE, Status.REGION,
     packed_address(9, 4096)),
])
def test_rows_that_scatter_cannot_write(card, table, flags, status, address):
    card.table(5, Table(**{**vars(card.tables[0]), **table}))
    operands = row_list(card, Opcode.SCATTER, rows=[(5, 2)], flags=flags)
    assert refusal(card, operands) == (status, 0, address)
    operands = row_list(card, Opcode.SCATTER, rows=[(0, 1), (5, 2), (0, 3)], flags=flags)
    done = card.run("move", **operands)
    assert (done["status"], done["error_index"], done["entries"]) == (status, 1, 2)


@pytest.mark.parametrize("flags", [0, GatherFlag.STATE])
@pytest.mark.parametrize("bad", [{5}, {31}, {0, 1, 2, 3, 4}, set(range(0, 40, 2)), set(range(40))],
                         ids=["one", "across two pages", "first", "alternate", "all"])
def test_rows_without_memory(card, flags, bad):
    beyond = 1 << 40  # registered, but without memory
    card.region(40, beyond, 1 << 20)
    card.table(5, Table(99, packed_address(40, 0), 96, 128, card.address("state"), 8))
    card.table(6, Table(99, card.address("weights"), 96, 128, card.address("state"), 8))
    rows = [(5 if place in bad else 6, place) for place in range(40)]
    done = card.run("move", **row_list(card, Opcode.GATHER, rows, flags=flags,
                                       destination=card.address("results", 48)))
    first = min(bad)
    assert (done["status"], done["error_index"]) == (Status.DECERR, first)
    assert done["error_address"] == packed_address(40, 128 * first)
    assert done["entries"] == 40 - len(bad)
    for place in set(range(40)) - bad:
        got = card.results[48 + 128 * place:48 + 128 * place + 96]
        assert (got == card.weights[128 * place:128 * place + 96]).all(), place


def span(card, opcode, **changed):
    """A valid COPY or FILL of 256 bytes, with changes."""
    return {"opcode": opcode, "source": card.address("lists", 4), "count": 256,
            "destination": card.address("results", 8)} | changed


@pytest.mark.parametrize("opcode", [Opcode.COPY, Opcode.FILL])
@pytest.mark.parametrize("changed, status, index, wrong", [
    ({"count": 0}, Status.EMPTY, 0, None),
    ({"count": 258}, Status.MISALIGNED, 258, None),
    ({"count": 0xFFFF_FFFC}, Status.REGION, 0, None),
    ({"flags": 1}, Status.BAD_FLAGS, 1, None),
    ({"destination": NOWHERE}, Status.REGION, 0, "destination"),
    ({"destination": packed_address(11, (1 << 15) - 252)}, Status.REGION, 0, "destination"),
    ({"destination": packed_address(11, (1 << 48) - 64)}, Status.REGION, 0, "destination"),
    ({"destination": packed_address(10, 0)}, Status.READ_ONLY, 0, "destination"),
    ({"destination": packed_address(11, 2)}, Status.MISALIGNED, 0, "destination"),
    ({"source": NOWHERE}, Status.REGION, 0, "source"),
    ({"source": packed_address(10, (1 << 15) - 252)}, Status.REGION, 0, "source"),
    ({"source": packed_address(10, 6)}, Status.MISALIGNED, 0, "source"),
])
def test_spans(card, opcode, changed, status, index, wrong):
    operands = span(card, opcode, **changed)
    if opcode == Opcode.FILL and "source" in changed:
        assert card.run("move", **operands)["status"] == Status.OK
        return
    address = operands[wrong] if wrong else 0
    if changed == {"count": 0xFFFF_FFFC}:
        address = operands["source" if opcode == Opcode.COPY else "destination"]
    assert refusal(card, operands) == (status, index, address)


@pytest.mark.parametrize("opcode", [Opcode.COPY, Opcode.FILL])
def test_spans_without_memory(card, opcode):
    """Memory ends in the second chunk of 512 bytes."""
    card.region(40, card.addresses[11] + 16384, 1 << 20)
    done = card.run("move", **span(card, opcode, count=20480, value=5,
                                   destination=packed_address(40, 64)))
    good = (16384 - 64) // 512
    assert (done["status"], done["error_index"], done["entries"]) == (Status.DECERR, good, good)
    assert done["error_address"] == packed_address(40, 64 + 512 * good)
    assert done["bytes"] == 512 * good
    wanted = card.lists[4:4 + 512 * good] if opcode == Opcode.COPY else np.resize(
        np.array([5, 0, 0, 0], np.uint8), 512 * good)
    assert (card.results[16384 + 64:16384 + 64 + 512 * good] == wanted).all()
