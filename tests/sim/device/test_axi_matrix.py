"""Every command on every AXI port of the device: errors on the first, a middle and the last beat,
rows at every distance from a 4 KiB boundary, the reset input in flight.

`test_model_equals_device` and the soak cover random stalls, order and interleaving on all channels;
`test_driver_faults` and `test_verilated` cover a slave that never responds.
"""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import GatherFlag, Opcode, Status, packed_address
from hotrow_sim.golden.region_check import Table
from hotrow_sim.memory import DECERR, SLVERR
from hotrow_sim.model import open_transport as open_model

from tests.support.bare_host import BareHost, aligned

pytestmark = pytest.mark.slow
TINY = preset("tiny")
BUS = TINY.bus_bytes
BEATS = {"first": 0, "middle": 32 // BUS, "last": 64 // BUS - 1}  # of a row of 64 bytes
CASES = [(response, beat) for response in (SLVERR, DECERR) for beat in BEATS]
STATUS = {SLVERR: Status.SLVERR, DECERR: Status.DECERR}
ROUGH = {"latency": 25, "jitter": 40, "stall": 0.3, "reorder": True}
COUNT, BAD = 5, 2  # rows of a command, and the position of the faulty one


@pytest.fixture(params=[1, 2])
def card(request, make_card):
    """A card with rough memory, for two seeds."""
    from hotrow_sim.verilated.transport import open_transport

    transport = open_transport("tiny", seed=request.param, **ROUGH)
    yield make_card(transport)
    assert transport.violations() == [], f"seed {request.param}"
    transport.close()


def spoil(card, kind, buffer, offset, response, beat):
    """Inject a fault into the beat of a buffer's byte, the `beat` of its transfer, at every port of
    a kind."""
    for name in card.transport.ports:
        if name.startswith(kind):
            card.transport.fail_range(name, card.addresses[buffer] + offset, 1, response)


WEIGHTS, LISTS, RESULTS = 8, 10, 11  # handles of the card


@pytest.mark.parametrize("kind", ["row_read", "row_write"])
@pytest.mark.parametrize("opcode", [Opcode.GATHER, Opcode.SCATTER])
def test_a_row_with_a_faulty_beat(card, opcode, kind):
    """The row is refused, the others move, and the next command runs."""
    slots = 8192  # in `results`, where a SCATTER finds its rows
    card.results[slots:] = np.random.default_rng(0).integers(0, 256, card.results.size - slots)
    for case, (response, beat) in enumerate(CASES):
        rows = COUNT * case + np.arange(COUNT)
        dense = 64 * COUNT * case + (slots if opcode == Opcode.SCATTER else 0)
        in_table = (kind == "row_read") == (opcode == Opcode.GATHER)
        handle, at = ((WEIGHTS, 64 * int(rows[BAD])) if in_table else (RESULTS, dense + 64 * BAD))
        spoil(card, kind, handle, at + BUS * BEATS[beat], response, beat)
        weights, results = card.weights.copy(), card.results.copy()
        done = card.run("move", opcode=opcode, count=COUNT, stride=64,
                        source=card.put_rows([(0, int(row)) for row in rows]),
                        **{"rows" if opcode == Opcode.SCATTER else "destination":
                           card.address("results", dense)})
        result = done["status"], done["error_index"], done["entries"], done["bytes"]
        assert result == (STATUS[response], BAD, COUNT - 1, 64 * (COUNT - 1)), (case, result)
        assert done["error_address"] == packed_address(handle, at)
        for position in set(range(COUNT)) - {BAD}:
            here, there = 64 * int(rows[position]), dense + 64 * position
            if opcode == Opcode.GATHER:
                results[there:there + 64] = weights[here:here + 64]
            else:
                weights[here:here + 64] = results[there:there + 64]
        if kind == "row_write":  # any other beat of the faulty row may have arrived
            mine, theirs = ((card.results, results) if opcode == Opcode.GATHER
                            else (card.weights, weights))
            theirs[at:at + 64] = mine[at:at + 64]
        assert (card.weights == weights).all() and (card.results == results).all()


@pytest.mark.parametrize("opcode, kind", [
    (Opcode.COPY, "row_read"), (Opcode.COPY, "row_write"), (Opcode.FILL, "row_write")])
def test_a_piece_with_a_faulty_beat(card, opcode, kind):
    piece, source = TINY.row_bytes, 16384
    card.results[source:] = np.random.default_rng(1).integers(0, 256, card.results.size - source)
    for case, (response, beat) in enumerate(CASES):
        at = 3 * piece * case + piece + {
            "first": 0, "middle": piece // 2, "last": piece - BUS}[beat]
        spoil(card, kind, RESULTS, at + (source if kind == "row_read" else 0), response, beat)
        expected = card.results.copy()
        done = card.run("move", opcode=opcode, count=3 * piece, value=0x0101_0101,
                        source=card.address("results", source + 3 * piece * case),
                        destination=card.address("results", 3 * piece * case))
        assert (done["status"], done["error_index"], done["entries"], done["bytes"]) == (
            STATUS[response], 1, 2, 2 * piece)
        for number in (0, 2):
            first = 3 * piece * case + number * piece
            expected[first:first + piece] = 1 if opcode == Opcode.FILL else expected[
                source + first:source + first + piece]
        first = 3 * piece * case + piece
        if kind == "row_write":
            expected[first:first + piece] = card.results[first:first + piece]
        assert (card.results == expected).all(), (case, response, beat)


@pytest.mark.parametrize("which", ["source", "targets"])
def test_a_list_with_a_faulty_beat(card, which):
    """The entries of that bus word are refused."""
    count, size = 16, {"source": 8, "targets": 4}[which]
    per_word, words = BUS // size, 16 * size // BUS
    for case, (response, beat) in enumerate(CASES):
        word = {"first": 0, "middle": words // 2, "last": words - 1}[beat]
        lists = {"source": 2048 * case, "targets": 2048 * case + 1024}
        spoil(card, "list", LISTS, lists[which] + BUS * word, response, beat)
        card.results[:] = 0xEE
        done = card.run(
            "move", opcode=Opcode.GATHER, flags=GatherFlag.LISTED, count=count, stride=64,
            source=card.put_rows([(0, n) for n in range(count)], lists["source"]),
            targets=card.put(np.arange(count, dtype=np.uint32)[::-1].copy(), lists["targets"]),
            destination=card.address("results"))
        assert (done["status"], done["error_index"], done["entries"]) == (
            STATUS[response], per_word * word, count - per_word)
        expected = np.full((count, 64), 0xEE, np.uint8)
        kept = np.delete(np.arange(count), np.arange(per_word) + per_word * word)
        expected[count - 1 - kept] = card.weights[:64 * count].reshape(count, 64)[kept]
        assert (card.results[:64 * count].reshape(count, 64) == expected).all()
        assert (card.results[64 * count:] == 0xEE).all()


@pytest.mark.parametrize("opcode", [Opcode.OBSERVE, Opcode.SPLIT])
def test_ids_with_a_faulty_beat(card, opcode):
    for case, (response, beat) in enumerate(CASES):
        spoil(card, "list", LISTS, 1024 * case + BUS * BEATS[beat], response, beat)
        done = card.run("lookup", opcode=opcode, count=16, samples=16, table_count=1,
                        source=card.put(np.arange(16, dtype=np.uint32), 1024 * case),
                        **split_results(card) if opcode == Opcode.SPLIT else {})
        assert (done["status"], done["error_index"], done["lookups"]) == (
            STATUS[response], BUS // 4 * BEATS[beat], 16 - BUS // 4)


def split_results(card, at=0):
    return {name: card.address("results", at + 1024 * number)
            for number, name in enumerate(("slots", "misses", "popular", "nonpopular"))}


@pytest.mark.parametrize("name", ["slots", "misses", "nonpopular"])
def test_results_with_a_faulty_beat(card, name):
    """The completion has the error; the other results are written."""
    for case, (response, beat) in enumerate(CASES):
        at, ids = 4096 * case, np.arange(16, dtype=np.uint32)
        results = split_results(card, at)
        offset = results[name] % (1 << 48)
        spoil(card, "result", RESULTS, offset + BUS * BEATS[beat], response, beat)
        done = card.run("lookup", opcode=Opcode.SPLIT, count=16, samples=16, table_count=1,
                        source=card.put(ids), **results)
        assert (done["status"], done["lookups"], done["unique"]) == (STATUS[response], 16, 16)
        for other in {"slots", "nonpopular"} - {name}:
            there = card.result(16, results[other] % (1 << 48))
            assert (there & 0xFFFF == ids).all()
        assert card.run("lookup", opcode=Opcode.NOP)["status"] == Status.OK


class PageHost(BareHost):
    """A card with tables and slots at every distance from the end of a page.

    Rows and slots have a stride of a page minus 16 bytes, so that 256 of them start at all aligned
    offsets in a page.
    """

    STRIDE, ROWS = 4096 - 16, 256
    SIZES = range(16, TINY.row_bytes + 1, 16)

    def __init__(self, transport):
        super().__init__(transport)
        octets = self.STRIDE * self.ROWS + 8192
        self.buffers = [aligned(octets) for _ in range(2)]
        self.lists = aligned(8 * self.ROWS)
        for handle, array in enumerate((*self.buffers, self.lists), 8):
            array[:] = np.random.default_rng(handle).integers(0, 256, array.size, np.uint8)
            self.register(handle, array)
        self.lists.view(np.uint32)[:] = np.stack(
            [np.arange(self.ROWS), np.zeros(self.ROWS, int)], 1).ravel()

    def move(self, opcode, row_bytes, shift):
        """Move all rows; the page offset of a row is `shift` bytes after that of its slot."""
        self.table(0, Table(self.ROWS - 1, packed_address(8, 2048 + shift), row_bytes, self.STRIDE))
        return self.run("move", opcode=opcode, count=self.ROWS, stride=self.STRIDE,
                        source=packed_address(10, 0),
                        **{"rows" if opcode == Opcode.SCATTER else "destination":
                           packed_address(9, 2048)})


@pytest.mark.parametrize("opcode", [Opcode.GATHER, Opcode.SCATTER])
def test_rows_at_every_distance_from_a_page(opcode):
    """Every length, with source and destination crossing pages together and alone; compares all
    bytes around the rows too."""
    from hotrow_sim.verilated.transport import open_transport

    device = open_transport("tiny", latency=4, jitter=10, reorder=True, seed=5)
    hosts = [PageHost(transport) for transport in (open_model("tiny"), device)]
    rng = np.random.default_rng(6)
    for row_bytes in PageHost.SIZES:
        shift = int(rng.choice([0, 16, row_bytes, 2048]))
        model, rtl = (host.move(opcode, row_bytes, shift) for host in hosts)
        assert model["entries"] == rtl["entries"] == PageHost.ROWS
        for mine, theirs in zip(hosts[0].buffers, hosts[1].buffers, strict=True):
            assert (mine == theirs).all(), f"rows of {row_bytes} bytes, shifted by {shift}"
    assert device.violations() == []


@pytest.mark.parametrize("moment", [5, 60, 110, 160, 230, 310, 400, 520, 700, 1000])
def test_the_reset_input_in_flight(make_card, moment):
    """The card and the memory restart and work after a reset at any time."""
    from hotrow_sim.verilated.transport import open_transport

    device = open_transport("tiny", seed=moment, **ROUGH)
    card = make_card(device)
    commands = [
        {"opcode": Opcode.GATHER, "count": 20, "stride": 64,
         "source": card.put_rows([(0, n) for n in range(20)]),
         "destination": card.address("results")},
        {"opcode": Opcode.SCATTER, "count": 20, "stride": 64,
         "source": card.put_rows([(0, n) for n in range(40, 60)], 1024),
         "rows": card.address("lists", 2048)},
        {"opcode": Opcode.COPY, "count": 1500, "source": card.address("lists", 4096),
         "destination": card.address("results", 4096)},
        {"opcode": Opcode.FILL, "count": 1500, "value": 3,
         "destination": card.address("results", 8192)}]
    for number in range(len(commands)):
        for operands in commands[number:] + commands[:number]:
            card.submit("move", **operands)
        card.submit("lookup", opcode=Opcode.SPLIT, count=64, samples=64, table_count=1,
                    source=card.put(np.arange(64, dtype=np.uint32), 512),
                    **split_results(card, 12288))
        card.ring("move")
        card.ring("lookup")
        device.run(moment)
        device.reset()
        card = make_card(device)
    for operands in commands:
        card.put_rows([(0, n) for n in range(20)])
        card.put_rows([(0, n) for n in range(40, 60)], 1024)
        assert card.run("move", **operands)["status"] == Status.OK
    assert (card.results[:1280] == card.weights[:1280]).all()
    assert (card.weights[64 * 40:64 * 60] == card.lists[2048:2048 + 1280]).all()
    assert (card.results[4096:4096 + 1500] == card.lists[4096:4096 + 1500]).all()
    assert (card.results[8192:8192 + 1500].view(np.uint32) == 3).all()
    assert (card.results[1280:4096] == 0xEE).all() and (card.results[9692:] == 0xEE).all()
    assert device.violations() == [], f"seed {moment}"
