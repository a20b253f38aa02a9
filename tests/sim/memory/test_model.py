"""Timing and order of the memory model, beat by beat."""

from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pytest
from hotrow_sim.memory import Behaviour, MemoryModel
from hotrow_sim.memory.library import build
from hotrow_sim.native import BuildError, CompilerError

from tests.sim.memory.masters import BASE, BUS, POISON, WILD, drive_read, drive_write, memory


@pytest.mark.parametrize("latency", [1, 2, 64])
def test_read_latency_and_rate(latency):
    model, array = memory()
    port = model.read_port(BUS, Behaviour(latency=latency))
    given, taken = drive_read(port, [(i % 3, BASE + 64 * i, 4) for i in range(32)])
    first = taken[0] + latency
    assert [cycle for cycle, *_ in given] == list(range(first, first + 128))
    assert b"".join(data for _, _, data, _, _ in given) == array[:2048].tobytes()
    assert [last for *_, last in given] == [0, 0, 0, 1] * 32
    model.check()
    statistics = port.statistics
    assert (statistics.bursts, statistics.beats) == (32, 128)
    assert (statistics.first_request, statistics.last_beat) == (taken[0], first + 127)
    assert statistics.worst_outstanding > latency / 4 - 1


def random_bursts(rng, count):
    """Bursts of four ids within pages."""
    beats = rng.integers(1, 17, count)
    page, beat = rng.integers(0, 4, count), rng.integers(0, 256 - beats)
    return [(int(id), int(BASE + 4096 * p + BUS * b), int(n))
            for id, p, b, n in zip(rng.integers(0, 4, count), page, beat, beats, strict=True)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("interleave", [False, True], ids=["whole bursts", "interleaved"])
def test_reads_out_of_order(seed, interleave):
    model, array = memory()
    bursts = random_bursts(np.random.default_rng(seed), 60)
    behaviour = replace(WILD, interleave=interleave, seed=seed)
    given, _ = drive_read(model.read_port(BUS, behaviour), bursts, eager=0.7, seed=seed)
    for id in range(4):
        mine = b"".join(data for _, i, data, _, _ in given if i == id)
        assert mine == b"".join(array[address - BASE:][:BUS * beats].tobytes()
                                for i, address, beats in bursts if i == id), f"seed {seed}"
    runs = [id for id, _ in groupby(given, key=lambda beat: beat[1])]
    in_order = [id for id, _ in groupby(bursts, key=lambda burst: burst[0])]
    assert runs != in_order, "ids must overtake each other"
    switches = sum(a[1] != b[1] and not a[4] for a, b in pairwise(given))
    assert switches > 20 if interleave else switches == 0
    model.check()


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_seed_repeats_its_run(kind):
    bursts = random_bursts(np.random.default_rng(3), 40)
    writes = [(id, address, [(bytes(BUS), 0xFFFF)] * beats) for id, address, beats in bursts]

    def run(seed):
        model, _ = memory()
        behaviour = replace(WILD, seed=seed)
        if kind == "read":
            return drive_read(model.read_port(BUS, behaviour), bursts)
        return drive_write(model.write_port(BUS, behaviour), writes)
    assert run(5) == run(5)
    assert run(5) != run(6)


def test_stalls_have_the_requested_probability():
    model, _ = memory()
    port = model.read_port(BUS, Behaviour(stall_data=0.25, seed=1))
    given, taken = drive_read(port, [(0, BASE, 16)] * 100, limit=10000)
    assert 0.7 < len(given) / (given[-1][0] - taken[0]) < 0.8
    port = model.read_port(BUS, Behaviour(stall_address=0.5, seed=1))
    _, taken = drive_read(port, [(0, BASE, 1)] * 1000, limit=10000)
    assert 0.45 < len(taken) / taken[-1] < 0.55


def test_outstanding_is_limited():
    model, _ = memory()
    port = model.read_port(BUS, Behaviour(latency=50, outstanding=3))
    drive_read(port, [(0, BASE, 1)] * 20)
    assert port.statistics.worst_outstanding == 3


def test_an_unaligned_read_omits_the_bytes_below():
    model, array = memory()
    given, _ = drive_read(model.read_port(BUS), [(0, BASE + 8, 2)])
    assert given[0][2] == POISON * 8 + array[8:16].tobytes()
    assert given[1][2] == array[16:32].tobytes()


def test_write_latency_and_strobes():
    model, array = memory()
    before = array.copy()
    beats = [(bytes(range(16)), 0x8001), (bytes([7] * 16), 0), (bytes([9] * 16), 0xFFFF)]
    port = model.write_port(BUS, Behaviour(latency=10))
    (cycle, _, response), = drive_write(port, [(0, BASE, beats)])
    assert (cycle, response) == (port.statistics.last_beat + 10, 0)
    before[[0, 15]] = 0, 15
    before[32:48] = 9
    assert (array == before).all()
    model.check()


@pytest.mark.parametrize("seed", range(4))
def test_writes_out_of_order(seed):
    model, array = memory()
    rng = np.random.default_rng(seed)
    expected = array.copy()
    bursts = [(i % 4, BASE + 256 * i, [(rng.bytes(BUS), int(rng.integers(1 << 16)))
                                       for _ in range(1 + i % 16)]) for i in range(60)]
    for _, address, beats in bursts:
        for i, (data, strobe) in enumerate(beats):
            for lane in range(BUS):
                if strobe >> lane & 1:
                    expected[address - BASE + BUS * i + lane] = data[lane]
    answers = drive_write(model.write_port(BUS, replace(WILD, seed=seed)), bursts)
    assert (array == expected).all(), f"seed {seed}"
    ids = [id for _, id, _ in answers]
    assert sorted(ids) == sorted(id for id, *_ in bursts)
    assert ids != [id for id, *_ in bursts], "ids must overtake each other"
    model.check()


def test_data_may_precede_its_address():
    model, array = memory()
    bursts = [(0, BASE + 64 * i, [(bytes([i] * BUS), 0xFFFF)] * 4) for i in range(3)]
    drive_write(model.write_port(BUS), bursts, data_first=True)
    assert (array[:192] == np.repeat(range(3), 64)).all()
    model.check()


def test_a_write_takes_effect_at_its_response_and_a_read_at_its_request():
    model, array = memory()
    array[:] = 1
    write, read = model.write_port(BUS, Behaviour(latency=20)), model.read_port(
        BUS, Behaviour(latency=40))
    write.inputs.awaddr = read.inputs.araddr = BASE
    write.inputs.awsize = read.inputs.arsize = 4
    write.inputs.awburst = read.inputs.arburst = read.inputs.rready = write.inputs.bready = 1
    write.inputs.wdata[:BUS], write.inputs.wstrb, write.inputs.wlast = bytes([2] * BUS), 0xFFFF, 1
    seen = {}
    for cycle in range(60):
        write.inputs.awvalid = write.inputs.wvalid = read.inputs.arvalid = cycle == 1
        if write.outputs.bvalid:
            seen["answer"] = cycle
        if array[0] == 2:
            seen.setdefault("landed", cycle)
        if read.outputs.rvalid:
            seen["read"] = read.outputs.rdata[0]
        write.tick()
        read.tick()
    assert seen == {"answer": 21, "landed": 21, "read": 1}


class TestArguments:
    @pytest.mark.parametrize("address, size", [(BASE - 1, 2), (BASE + (1 << 14) - 1, 4),
                                               (BASE + 5, 1), (BASE - 1, 1 << 15)])
    def test_overlap(self, address, size):
        model, _ = memory()
        with pytest.raises(ValueError, match=r"overlap an array that is mapped at one of 0x10000"):
            model.map(np.zeros(size, np.uint8), address)

    def test_neighbours_and_the_top_of_memory_are_free(self):
        model, array = memory()
        top = np.zeros(64, np.uint8)
        model.map(np.zeros(1, np.uint8), BASE - 1)
        model.map(np.zeros(1, np.uint8), BASE + array.size)
        model.map(top, (1 << 64) - 64)
        drive_write(model.write_port(BUS), [(0, (1 << 64) - 16, [(bytes([4] * BUS), 0xFFFF)])])
        assert (top == [0] * 48 + [4] * 16).all()

    @pytest.mark.parametrize("array, message", [
        (np.zeros((4, 4))[:, 1], "C-contiguous"),
        (np.zeros(0), "at least one byte"),
        ([1, 2], "NumPy array"),
        (np.broadcast_to(np.uint8(0), (1,)), "read-only: map it with writable=False"),
    ])
    def test_arrays(self, array, message):
        with pytest.raises(ValueError, match=message):
            MemoryModel().map(array, 0)

    def test_addresses(self):
        with pytest.raises(ValueError, match="leave the 64-bit address space"):
            MemoryModel().map(np.zeros(2, np.uint8), (1 << 64) - 1)
        with pytest.raises(ValueError, match="no array is mapped at 0x40"):
            MemoryModel().unmap(0x40)

    @pytest.mark.parametrize("wrong, message", [
        ({"latency": 0}, "latency must be 1 to"),
        ({"jitter": -1}, "jitter must be 0 to"),
        ({"stall_data": 1.0}, "stall_data must be at least 0 and below 1"),
    ])
    def test_behaviour(self, wrong, message):
        with pytest.raises(ValueError, match=message):
            Behaviour(**wrong)

    def test_bus(self):
        with pytest.raises(ValueError, match="bus_bytes must be 8, 16, 32 or 64, not 4"):
            MemoryModel().read_port(4)


class TestLibrary:
    @pytest.mark.slow
    def test_built_once(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOTROW_CACHE", str(tmp_path / "new"))
        library = build()
        assert list((tmp_path / "new").glob("*.so")) == [library]
        stamp = library.stat().st_mtime_ns
        assert build() == library and library.stat().st_mtime_ns == stamp

    @pytest.mark.parametrize("kind", ["group", "all", "link"])
    def test_a_folder_of_others(self, tmp_path, monkeypatch, kind):
        folder = tmp_path / "cache"
        if kind == "link":
            folder.symlink_to(tmp_path)
        else:
            folder.mkdir()
            folder.chmod(0o775 if kind == "group" else 0o757)
        monkeypatch.setenv("HOTROW_CACHE", str(folder))
        with pytest.raises(BuildError, match="other users can write to it"):
            build()

    def test_missing_compiler(self, monkeypatch):
        monkeypatch.setenv("CXX", "no-such-compiler")
        with pytest.raises(CompilerError, match=r"'no-such-compiler' was not found .*apt install"):
            build()

    def test_failing_compiler(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOTROW_CACHE", str(tmp_path))
        monkeypatch.setenv("CXX", "false")
        with pytest.raises(BuildError, match="false failed with exit code 1"):
            build()
        assert not list(tmp_path.glob("*.so*")), "nothing half-written"
