"""The hot and cold splitter beside its model."""

import cocotb
import numpy as np
from cocotb.utils import get_sim_time
from hotrow_rtl.contract.encoding import AllFlag, BatchFlag, Opcode, Status
from lookup_bench import BASE, LAST_ROWS, ROUNDS, SIZE, Bench, silence_ends


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pace=[(0.0, 0.0), (0.4, 0.3)])
async def commands_equal_the_model(dut, pace):
    """Batches of all layouts follow each other, with counting, installs, removals and scans."""
    bench = await Bench.start(dut, idle=pace[0], stall=pace[1])
    for turn in range(ROUNDS):
        bench.rows(Opcode.INSTALL, bench.random_rows(16))
        for layout in range(turn % 2, 8, 2):
            samples = int(bench.rng.integers(1, 20))
            bench.batch(Opcode.SPLIT, samples=samples, layout=layout,
                        flags=BatchFlag.COUNT if layout & 2 else 0)
        bench.batch(Opcode.OBSERVE, samples=20)
        await bench.check()
        bench.command(Opcode.HARVEST, count=9, threshold=2)
        bench.command(Opcode.DECAY, shift=1)
        bench.rows(Opcode.REMOVE, bench.random_rows(9))
        bench.batch(Opcode.SPLIT, samples=int(bench.rng.integers(1, 9)))
        bench.command(Opcode.HARVEST, count=bench.config.counter_entries)
        if turn % 2:
            bench.command(Opcode.REMOVE, flags=int(AllFlag.ALL))
            bench.command(Opcode.DECAY, flags=int(AllFlag.ALL))
        await bench.check()
    assert not bench.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def edges(dut):
    """All hits, no hit, one sample, rows removed twice, refused rows, unknown tables, wrong
    lengths, faults."""
    bench = await Bench.start(dut, stall=0.1)
    rows = np.array([[row, table] for row in range(4) for table in range(3)])
    bench.rows(Opcode.INSTALL, rows)
    bench.batch(Opcode.SPLIT, np.zeros(24), samples=8)
    bench.batch(Opcode.SPLIT, np.full(24, 50), samples=8)
    bench.batch(Opcode.SPLIT, np.arange(3), samples=1)
    for removed in (rows[2:7], rows[5:9]):  # some are removed twice
        bench.rows(Opcode.REMOVE, removed)
    bench.batch(Opcode.SPLIT, np.arange(24) // 6, samples=8)
    bench.batch(Opcode.SPLIT, np.array(LAST_ROWS[:3]), samples=1)
    bench.batch(Opcode.SPLIT, np.array(LAST_ROWS[:3]) + 1, samples=1)
    bench.batch(Opcode.SPLIT, np.full(6, 1 << 31), samples=2)
    bench.batch(Opcode.SPLIT, np.full(6, 1 << 40), samples=2, layout=BatchFlag.ID64)
    bench.rows(Opcode.INSTALL, [[5, 3], [5, bench.config.tables + 1], [50, 3], [51, 3], [5, 3]])
    bench.rows(Opcode.REMOVE, [[5, 3], [5, 3], [6, bench.config.tables]])
    bench.batch(Opcode.SPLIT, samples=4, layout=BatchFlag.JAGGED, count=200,
                source=bench.place(np.zeros(200, np.uint32)))
    end = BASE + SIZE
    bench.batch(Opcode.SPLIT, np.zeros(96), samples=32, source=end - 64 * 2)
    await bench.check()
    assert bench.finish(), "the last batch is beyond the memory"


@cocotb.test(timeout_time=400, timeout_unit="us")
async def a_full_directory_and_miss_table(dut):
    """Rows without room are refused; missed rows without an entry may be listed again."""
    bench = await Bench.start(dut)
    slots, misses = bench.config.slots, bench.config.miss_entries
    count = min(slots + 20, 330)
    bench.rows(Opcode.INSTALL, np.stack([np.arange(count), np.zeros(count)], axis=1))
    bench.command(Opcode.REMOVE, flags=int(AllFlag.ALL))
    ids = np.tile(np.arange(min(misses + 16, 96) // 3), 6)
    bench.batch(Opcode.SPLIT, ids, samples=len(ids) // 3)
    await bench.check()
    assert not bench.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def a_restart_drops_what_is_inside(dut):
    """Slots and tables stay; batches and scans end without a trace in later ones."""
    bench = await Bench.start(dut, stall=0.2)
    bench.rows(Opcode.INSTALL, bench.random_rows(12))
    bench.batch(Opcode.OBSERVE, samples=20)
    await bench.check()
    for cycles in (25, 60, 3, 110)[:2 * ROUNDS]:
        for _ in range(3):
            bench.batch(Opcode.SPLIT, samples=12, layout=cycles % 2 * BatchFlag.JAGGED)
        await bench.restart(cycles)
        bench.command(Opcode.HARVEST, count=40)
        await bench.restart(cycles, lambda: bench.batch(Opcode.SPLIT, samples=9))
        for _ in range(7):  # short ones, so that many are inside
            bench.batch(Opcode.SPLIT, samples=2)
        await bench.restart(cycles + 40)
        bench.batch(Opcode.SPLIT, samples=9)
        bench.command(Opcode.HARVEST, count=3)
        await bench.check()
    bench.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def a_silent_memory_ends_a_command(dut):
    bench = await Bench.start(dut)
    for port in (bench.units.m_axi_list, bench.units.m_axi_result):
        assert await silence_ends(
            bench, port, lambda: bench.batch(
                Opcode.SPLIT, np.arange(12), samples=4)) == Status.TIMEOUT
        bench.batch(Opcode.SPLIT, samples=4)
        await bench.check()


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_word_of_ids_a_cycle(dut):
    """Consecutive rows spread over the banks: a long batch takes few cycles more than its words."""
    bench = await Bench.start(dut)
    times = []
    for lookups in (64, 320):
        start = get_sim_time("ns")
        bench.batch(Opcode.OBSERVE, np.arange(lookups), samples=lookups, tables=1)
        await bench.check()
        times.append((get_sim_time("ns") - start) / 10)
    words = 256 / bench.config.lanes
    dut._log.info(f"cycles: {times[1] - times[0]:.0f} for {words:.0f} words of ids")
    assert times[1] - times[0] <= 1.5 * words + 10, f"{times}: {words} words more"
