"""Row ports with a LiteDRAM controller: data, order, rate against bare requests, refusals.

Without the extra `litedram` the tests that need its generator are skipped.
"""

import importlib.util
import json
from dataclasses import replace

import hotrow
import numpy as np
import pytest
from hotrow.command.cli import main
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Opcode
from hotrow_rtl.emit import litex_generator as litex_core
from hotrow_sim.litedram import Unsuitable, core, dram_bytes, generate
from hotrow_sim.toolchain import ToolMissing

CONFIG = replace(preset("tiny"), row_ports=4, outstanding=16, clock_mhz=100)  # DDR3-800, 16 bits
OPTIONS = ["--preset", "tiny", "--ports", 4, "--outstanding", 16, "--clock-mhz", 100]
MISSING = [name for name in (*core.MODULES, *litex_core.MODULES)
           if importlib.util.find_spec(name) is None]
needs_litedram = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)} missing: pip install 'hotrow[litedram]'")
LEAST = 0.9  # of the bare requests' rows per second
DIM, ROWS = 16, 4000


def with_litedram(test):
    return pytest.mark.long(needs_litedram(test))


@needs_litedram
def test_the_core_has_a_port_per_row_port_and_one_for_the_host():
    made = generate(CONFIG)
    for port in ("row0", "row1", "row2", "row3", "host"):
        assert f"user_port_{port}_araddr" in made.verilog
    assert "user_port_row4_araddr" not in made.verilog
    assert f"SDRAM_PHY_SUPPORTED_MEMORY {dram_bytes(CONFIG):#018x}ULL".upper() in \
        made.headers["generated/sdram_phy.h"].upper()


@with_litedram
def test_generation_is_deterministic(monkeypatch):
    one = generate(CONFIG)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")  # another date for most of the day
    assert generate(CONFIG) == one != generate(replace(CONFIG, row_ports=2))
    assert "LiteX sha1 : --------\n" in one.verilog, "the text depends on a commit"


def test_a_clock_outside_ddr3_is_refused():
    with pytest.raises(Unsuitable, match="50 to 200 MHz, not 250"):
        generate(preset("alveo-u55c"))


def test_a_missing_generator_is_named(monkeypatch):
    monkeypatch.setattr(core, "MODULES", ("no_such_module",))
    with pytest.raises(ToolMissing, match=r"no_such_module.*pip install 'hotrow\[litedram\]'"):
        generate(CONFIG)


@pytest.fixture
def device():
    with hotrow.open("sim", config=CONFIG, memory="litedram", latency=20, timeout=120) as device:
        yield device
        assert device.transport.violations() == []


@pytest.fixture
def table(device):
    weights = hotrow.empty((ROWS, DIM), np.float32)
    weights[:] = np.arange(ROWS * DIM).reshape(ROWS, DIM)
    return device.register_table(weights, "table")


@with_litedram
def test_rows_are_installed_and_removed(device, table):
    rng = np.random.default_rng(1)
    for count in (1, 300, 2):
        rows = rng.integers(0, ROWS, count)
        assert (device.gather((table, rows)) == table.weights[rows]).all()
    before = table.weights.copy()
    rows, values = rng.permutation(ROWS)[:500], rng.random((500, DIM), np.float32)
    device.scatter((table, rows), values)
    before[rows] = values
    assert (table.weights == before).all()


@with_litedram
def test_changes_of_the_host_between_commands_are_visible(device, table):
    rows = np.arange(0, 200, 3)
    device.gather((table, rows))
    table.weights[rows[::2], 3] = -5
    assert (device.gather((table, rows)) == table.weights[rows]).all()
    device.scatter((table, rows), np.full((len(rows), DIM), 7, np.float32))
    table.weights[rows[0]] = 8
    assert (device.gather((table, rows)) == table.weights[rows]).all()
    assert (table.weights[rows[1:]] == 7).all() and (table.weights[rows[0]] == 8).all()


@with_litedram
def test_spans_of_any_bytes(device):
    source, target = (device.register(hotrow.empty(9000, np.uint8)) for _ in range(2))
    source.array[:] = np.random.default_rng(2).integers(0, 256, 9000)
    target.array[:] = 1
    expected = target.array.copy()
    device.copy(source.array[4:8004], target.array[20:8020])
    expected[20:8020] = source.array[4:8004]
    assert (target.array == expected).all()
    device.fill(target.array[100:7780].view(np.uint32), 0x0102_0304)
    expected[100:7780].view(np.uint32)[:] = 0x0102_0304
    assert (target.array == expected).all()


@with_litedram
def test_results_and_rows_of_one_array_do_not_overwrite_each_other(device, table):
    """Commands of both queues in flight; results bypass the DRAM."""
    ids = np.random.default_rng(3).integers(0, ROWS, (256, 1)).astype(np.uint32)
    rows = np.arange(100)
    splits = [device.split_async(ids) for _ in range(3)]
    moves = [device.gather_async((table, rows + n)) for n in range(3)]
    for n, move in enumerate(moves):
        assert (move.result() == table.weights[rows + n]).all()
    for split in splits:
        assert split.result().hits == 0 and len(split.result().misses) == len(np.unique(ids))


@with_litedram
def test_a_soft_reset_in_flight(device, table):
    rows = np.random.default_rng(4).integers(0, ROWS, 600)
    device.gather_async((table, rows))
    device.transport.run(3000)  # some rows are in flight
    device.reset()
    assert (device.gather((table, rows)) == table.weights[rows]).all()


@with_litedram
@pytest.mark.parametrize("cycles", [400, 700, 1000, 1500])
def test_the_reset_input_in_flight(make_card, cycles):
    """The controller restarts with the card."""
    from hotrow_sim.verilated.transport import open_transport

    device, rows = open_transport(config=CONFIG, memory="litedram", latency=20), range(0, 100, 3)
    for _ in range(2):
        card = make_card(device)
        gather = {"opcode": Opcode.GATHER, "count": len(rows), "stride": 64,
                  "source": card.put_rows([(0, row) for row in rows]),
                  "destination": card.address("results")}
        card.submit("move", **gather)
        card.ring("move")
        device.run(cycles)
        device.reset()
    card = make_card(device)
    card.put_rows([(0, row) for row in rows])
    assert card.run("move", **gather)["entries"] == len(rows)
    assert (card.result(64 * len(rows), dtype=np.uint8).reshape(-1, 64)
            == card.weights[:6400].reshape(-1, 64)[::3]).all()
    assert device.violations() == []


@with_litedram
def test_faults_are_refused_with_litedram(device):
    transport = device.transport
    for name, *arguments in (("fail_beat", 0, 2), ("fail_range", 0, 64, 2), ("silence", 0)):
        with pytest.raises(ValueError, match="no faults and no silence"):
            getattr(transport, name)("row_read0", *arguments)
    transport.fail_beat("list", 1 << 40, 2)


@with_litedram
def test_more_bytes_than_the_dram_has_are_refused(device):
    with pytest.raises((hotrow.Error, MemoryError), match="no room"):
        device.register(hotrow.empty(dram_bytes(CONFIG), np.uint8))


@with_litedram
@pytest.mark.parametrize("row_bytes", [64, 256])
@pytest.mark.parametrize("move", ["gather", "scatter"])
def test_nearly_as_fast_as_bare_requests(capsys, move, row_bytes):
    rows = 8192 * 64 // row_bytes
    code = main(["bench", *map(str, [
        move, *OPTIONS, "--memory", "litedram", "--moved-rows", rows, "--table-rows", 8 * rows,
        "--row-bytes", row_bytes, "--json"])])
    result = json.loads(capsys.readouterr().out)
    assert code == 0 and result["agrees"] and result["memory"] == "litedram"
    assert result["beats"] == rows * row_bytes // 16 and result["ports"] == 4
    assert LEAST <= result["fraction_of_bare_requests"] <= 1.25
    # Reads and writes share one channel that carries at most a bus word per cycle.
    assert 1 < result["bytes_per_cycle"] <= 16 / 2


@with_litedram
def test_the_host_fills_the_dram_in_bursts_of_axi4_over_eight_bytes(capsys):
    """A page of 4 KiB has twice the beats of the longest burst."""
    code = main(["bench", "gather", "--preset", "ecp5", "--memory", "litedram", "--moved-rows",
                 "2048", "--table-rows", "4096", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == 0 and result["agrees"]
    assert LEAST <= result["fraction_of_bare_requests"] <= 1.25
