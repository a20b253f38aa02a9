"""Timing of banks and channels, and that data do not depend on it."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_sim.memory import MEMORIES, Behaviour, DramTiming, MemoryModel, dram_timing
from hotrow_sim.memory.bare import bare_cycles, bursts

BASE, BUS, SIZE = 0x10000, 16, 1 << 16
ROW, BANKS = 1024, 4  # bytes of a bank's row
CALM = dict(
    channels=1, interleave=1 << 20, banks=BANKS, page=ROW, word=256, activate=5, precharge=7,
    open=20, read=6, write=4, read_to_close=3, write_recovery=8, write_to_read=9, read_to_write=2,
    row_to_row=2, four_rows=30, refresh_interval=100_000, refresh=50, queue=8, read_turn=32,
    write_turn=16)
WILD = dict(latency=3, jitter=9, stall_address=0.2, stall_data=0.2, stall_response=0.2,
            out_of_order=True, interleave=True)


class Bench:
    """Two read and two write ports of one memory, ticked in `order` in each cycle."""

    def __init__(self, timing=None, behaviour=None, order=(0, 1, 2, 3)):
        self.model = MemoryModel(DramTiming(**CALM | (timing or {})))
        self.image = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)
        self.model.map(self.image, BASE)
        behaviour = behaviour or Behaviour()
        self.ports = [make(BUS, replace(behaviour, seed=behaviour.seed + n)) for n, make in
                      enumerate([self.model.read_port, self.model.read_port,
                                 self.model.write_port, self.model.write_port])]
        self.order, self.cycle = order, 0
        for port in self.ports[:2]:
            port.inputs.arsize, port.inputs.arburst, port.inputs.rready = 4, 1, 1
        for port in self.ports[2:]:
            port.inputs.awsize, port.inputs.awburst, port.inputs.bready = 4, 1, 1
            port.inputs.wlast, port.inputs.wstrb = 1, 0xFFFF

    def run(self, *jobs, limit=20000):
        """Access single words; per port, `jobs` are (earliest cycle, address) in order.

        Returns the cycles in which each port's requests were accepted, and its responses as
        (cycle, data, id).
        """
        self.jobs = [list(job) for job in jobs] + [[] for _ in range(4 - len(jobs))]
        self.accepted, self.responses = ([[] for _ in range(4)] for _ in range(2))
        self.owed = [0] * 4  # write data beats
        total = sum(map(len, jobs))
        for _ in range(limit):
            for number, port in enumerate(self.ports):
                (self._read if number < 2 else self._write)(number, port.inputs, port.outputs)
            for number in self.order:
                self.ports[number].tick()
            self.cycle += 1
            if sum(map(len, self.responses)) == total:
                self.model.check()
                return self.accepted, self.responses
        raise AssertionError(f"{total - sum(map(len, self.responses))} responses are missing")

    def _request(self, number, ready):
        """(valid, address, fire) of a port's next request."""
        job = self.jobs[number]
        valid = bool(job) and job[0][0] <= self.cycle
        address = job[0][1] if valid else 0
        if valid and ready:
            self.accepted[number].append(self.cycle)
            job.pop(0)
        return valid, address, valid and ready

    def _read(self, number, inputs, out):
        inputs.arid = len(self.accepted[number]) % 4
        inputs.arvalid, inputs.araddr, _ = self._request(number, out.arready)
        if out.rvalid:
            self.responses[number].append((self.cycle, bytes(out.rdata[:BUS]), out.rid))

    def _write(self, number, inputs, out):
        inputs.wvalid = bool(self.owed[number])
        self.owed[number] -= bool(self.owed[number] and out.wready)
        inputs.awvalid, inputs.awaddr, fire = self._request(number, out.awready)
        self.owed[number] += bool(fire)
        if out.bvalid:
            self.responses[number].append((self.cycle, None, 0))


def at(bank, row, column=0):
    """Device address; consecutive rows are in consecutive banks."""
    return BASE + (row * BANKS + bank) * ROW + column * BUS


def latencies(bench, *addresses):
    """Latencies of reads at long intervals."""
    found = []
    for address in addresses:
        asked, given = bench.run([(bench.cycle + 60, address)])
        found.append(given[0][0][0] - asked[0][0])
    return found


def test_hit_miss_and_conflict():
    hit = 1 + CALM["read"] + 1 + 1  # queue, command to data, one word, port
    closed, conflict = hit + CALM["activate"], hit + CALM["activate"] + CALM["precharge"]
    assert BASE // ROW % BANKS == 0
    assert latencies(Bench(), at(0, 0), at(0, 0, 5), at(0, 1), at(0, 1, 9), at(1, 1), at(0, 0)) == [
        closed, hit, conflict, hit, closed, conflict]


def test_latency_is_added():
    slow = Bench(behaviour=Behaviour(latency=31))
    assert latencies(slow, at(0, 0), at(0, 0)) == [
        each + 30 for each in latencies(Bench(), at(0, 0), at(0, 0))]


def test_a_row_stays_open_for_its_time():
    """A second row of a bank waits for tRAS and tRP; a row of another bank for tRRD."""
    _, given = Bench().run([(5, at(0, 0)), (5, at(0, 1))])
    assert given[0][1][0] - given[0][0][0] == CALM["open"] + CALM["precharge"]
    _, given = Bench().run([(5, at(0, 0)), (5, at(1, 0))])
    assert given[0][1][0] - given[0][0][0] == CALM["row_to_row"]


def test_four_rows_in_a_window():
    banks = dict(banks=8)
    _, given = Bench(banks).run([(5, BASE + bank * ROW) for bank in range(6)])
    cycles = [cycle for cycle, *_ in given[0]]
    assert cycles[3] - cycles[0] == 3 * CALM["row_to_row"]
    assert cycles[4] - cycles[0] == CALM["four_rows"]


def test_refresh_closes_rows_and_takes_time():
    timing = dict(refresh_interval=300)
    bench = Bench(timing)
    hit = latencies(bench, at(0, 0), at(0, 0))[1]
    asked, given = bench.run([(300, at(0, 0))])
    wait = given[0][0][0] - asked[0][0] - hit
    assert wait == CALM["precharge"] + CALM["refresh"] + CALM["activate"] - 1
    bench.run([(bench.cycle + 3000, at(0, 0))])
    assert bench.model.dram_statistics.refreshes == bench.cycle // 300


def test_a_bus_turnaround_takes_cycles():
    """In an open row a read after a write waits for tWTR, a write after a read for idle cycles."""
    bench = Bench()
    latencies(bench, at(0, 0))
    start = bench.cycle + 50
    asked, given = bench.run([(start + 2, at(0, 0, 1))], [], [(start, at(0, 0, 2))])
    hit = 1 + CALM["read"] + 1 + 1
    # The port accepts the write's data a cycle after its address.
    written = asked[2][0] + 2  # command
    read = written + 1 + CALM["write"] + CALM["write_to_read"]
    assert given[0][0][0] == read + hit - 1
    start = bench.cycle + 50
    asked, given = bench.run([(start, at(0, 0, 1))], [], [(start, at(0, 0, 2))])
    write = asked[0][0] + 1 + 1 + CALM["read"] + CALM["read_to_write"] - CALM["write"]
    assert given[2][0][0] == write + 1 + CALM["write"] + 1


def test_directions_alternate():
    """Many reads and writes of two open rows alternate every 32 and 16 cycles; none starves."""
    bench = Bench()
    latencies(bench, at(0, 0), at(1, 0))
    before = bench.model.dram_statistics.turns
    reads, writes = ([(0, at(bank, 0, n % 64)) for n in range(400)] for bank in range(2))
    _, given = bench.run(reads, [], writes)
    turns = bench.model.dram_statistics.turns - before
    assert 400 / 32 <= turns <= 2 * 400 / 16
    assert abs(given[0][200][0] - given[2][200][0]) < 400


@pytest.mark.parametrize("timing, expected", [({}, 2), (dict(channels=2, interleave=256), 1),
                                              (dict(word=320), 2.5)], ids=["one", "two", "slow"])
def test_ports_share_a_channel(timing, expected):
    """Cycles per word and port of two ports that read open rows, each of another channel."""
    bench = Bench(timing)
    for address in (at(0, 0), at(0, 0) + 256):
        latencies(bench, address)
    many = 400
    start = bench.cycle + 5
    _, given = bench.run(*([(start, at(0, 0) + 256 * port + 16 * (n % 16)) for n in range(many)]
                           for port in range(2)))
    span = max(given[port][-1][0] for port in range(2)) - start
    assert span / many == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("timing", [{}, dict(channels=4, interleave=64, refresh_interval=200)])
def test_order_of_ticks_does_not_matter(timing):
    rng = np.random.default_rng(1)
    jobs = [[(0, BASE + 16 * int(n)) for n in rng.integers(0, SIZE // 16, 200)] for _ in range(4)]
    behaviour = Behaviour(seed=4, **WILD)
    first = Bench(timing, behaviour).run(*jobs)
    second = Bench(timing, behaviour, order=(3, 1, 2, 0)).run(*jobs)
    # The data of reads that overlap writes may differ.
    for one, other in zip(first[1], second[1], strict=True):
        assert [each[0] for each in one] == [each[0] for each in other]


@pytest.mark.parametrize("memory", [name for name in MEMORIES if name != "ideal"])
@pytest.mark.parametrize("seed", range(2))
def test_data_do_not_depend(memory, seed):
    """Random reads with stalls, out of order: every id gets its words in order."""
    rng = np.random.default_rng(seed)
    timing = dram_timing(memory, 100, BUS)
    bench = Bench({name: getattr(timing, name) for name in CALM}, Behaviour(seed=seed, **WILD))
    jobs = [[(0, BASE + 16 * int(n)) for n in rng.integers(0, SIZE // 16, 150)] for _ in range(2)]
    _, given = bench.run(*jobs)
    for port in range(2):
        for number in range(4):
            mine = [data for _, data, id in given[port] if id == number]
            want = [bench.image[address - BASE:][:BUS].tobytes()
                    for _, address in jobs[port][number::4]]
            assert mine == want, f"{memory}, seed {seed}"


@pytest.mark.parametrize("memory, clock, bus_bytes, expected", [
    ("ddr3", 100, 16, dict(activate=2, precharge=2, open=4, refresh=26, refresh_interval=780,
                           word=256, page=2048, banks=8, channels=1)),
    ("ddr3", 250, 64, dict(activate=4, open=9, word=320, page=8192, refresh=65)),
    ("hbm", 250, 64, dict(channels=32, banks=16, activate=4, word=284, refresh_interval=975)),
])
def test_nanoseconds_become_cycles(memory, clock, bus_bytes, expected):
    timing = dram_timing(memory, clock, bus_bytes)
    assert {name: getattr(timing, name) for name in expected} == expected


def test_errors_teach():
    with pytest.raises(ValueError, match="unknown memory 'ddr9': expected one of ideal, ddr3, hbm"):
        dram_timing("ddr9", 100, 16)
    with pytest.raises(ValueError, match="this memory is ideal"):
        _ = MemoryModel().dram_statistics


@pytest.mark.parametrize("bus_bytes", [16, 64])
def test_bursts_cover_the_requested_bytes(bus_bytes):
    rng = np.random.default_rng(2)
    for size in (16, 64, 336, 4096):
        addresses = BASE + 16 * rng.integers(0, 1000, 50)
        start, beats = bursts(addresses, size, bus_bytes)
        words = [word for at, count in zip(start, beats, strict=True) for word in
                 range(int(at) // bus_bytes, int(at) // bus_bytes + int(count))]
        assert words == [word for at in addresses for word in
                         range(at // bus_bytes, (at + size - 1) // bus_bytes + 1)]
        assert (start % 4096 + beats * bus_bytes <= 4096).all()


@pytest.mark.parametrize("memory, least, most", [("ideal", 1.0, 1.02), ("hbm", 1.0, 1.3),
                                                 ("ddr3", 2.0, 4.0)])
def test_bare_requests(memory, least, most):
    """Random rows of 64 bytes over a bus of 64 bytes; memory stays unchanged."""
    table, dense = np.ones(1 << 22, np.uint8), np.ones(1 << 20, np.uint8)
    rows = np.random.default_rng(3).integers(0, 1 << 16, 5000)
    cycles = bare_cycles([BASE + rows * 64], [1 << 40 | 64 * np.arange(5000)], 64,
                         arrays={BASE: table, 1 << 40: dense}, bus_bytes=64, outstanding=256,
                         dram=dram_timing(memory, 100, 64), behaviour=Behaviour(latency=20))
    assert least <= cycles / 5000 <= most
    assert (dense == 1).all()
