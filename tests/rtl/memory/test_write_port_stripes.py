"""Striped clients of a result port, which fill memory in alternating blocks."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.interfaces.records import FAULT_DECERR
from hotrow_rtl.memory.write_port import DmaWritePort
from hotrow_sim.memory import DECERR, Behaviour

from tests.rtl.memory.write_port_bench import (
    BASE,
    MEMORIES,
    SIZE,
    TINY,
    WIDE,
    Bench,
    random_sequences,
)
from tests.support.benches.stream_bench import RAGGED


class TestStripe:
    @pytest.mark.parametrize("memory", MEMORIES)
    @pytest.mark.parametrize("config", [replace(TINY, burst_beats=16), WIDE,
                                        replace(WIDE, burst_beats=2)],
                             ids=["16 of 16 bytes", "16 of 64 bytes", "2 of 64 bytes"])
    def test_two_clients_fill_memory_in_alternating_blocks(self, memory, config):
        """All positions of a start in a block and all kinds of ending, beside a client that is not
        striped."""
        seed, bus = 5, config.bus_bytes
        block = config.burst_beats * bus
        rng = np.random.default_rng(seed)
        bench = Bench(config, 3, replace(MEMORIES[memory], seed=seed), striped={0, 2})
        sides = [], []
        for number in range(6):  # regions of four blocks or more that both clients fill
            offset = 64 * int(rng.integers(0, block // 64))
            region = BASE + SIZE // 16 * number
            longest = min(4, SIZE // 16 // block // 2 - 1) * config.burst_beats
            for side, start in enumerate((region + offset, region + block)):
                used = offset // bus if side == 0 else 0
                words = int(rng.integers(1, longest - used + 1))
                sides[side].append((start, words, ("full", "partial", "empty")[number % 3]))
        plain = [(address + SIZE // 2, words, ending) for address, words, ending in
                 random_sequences(rng, 0, 4, config)]
        outcomes = [bench.write(0, sides[0], RAGGED), bench.write(1, plain),
                    bench.write(2, sides[1])]
        bench.run(20_000)
        assert outcomes == [[0] * 6, [0] * 4, [0] * 6]
        assert (bench.array == bench.expected).all(), f"seed {seed}"
        bench.model.check()

    @pytest.mark.parametrize("offset, words, ending, bursts, beats", [
        (0x0FC0, 4, "full", 1, 4), (0x0FC0, 5, "full", 2, 5), (0x0FC0, 21, "full", 3, 21),
        (0x0FC0, 5, "empty", 1, 4), (0, 16, "partial", 1, 16), (0, 33, "full", 3, 33),
        (0, 33, "empty", 2, 32), (0x40, 12, "partial", 1, 12), (0x40, 1, "empty", 0, 0),
    ])
    def test_a_burst_ends_with_its_block(self, offset, words, ending, bursts, beats):
        bench = Bench(replace(TINY, burst_beats=16), 1, striped={0})
        outcomes = bench.write(0, [(BASE + offset, words, ending)])
        bench.run(300)
        assert outcomes == [0] and (bench.array == bench.expected).all()
        assert bench.memory.statistics.bursts == bursts
        assert bench.memory.statistics.beats == beats
        bench.model.check()

    @pytest.mark.parametrize("offset, words, bursts", [(0x0FC0, 5, 2), (0, 33, 3), (0x40, 60, 4)])
    def test_bypassed_striping_fills_every_block(self, offset, words, bursts):
        bench = Bench(replace(TINY, burst_beats=16, planner=True), 1, striped={0})

        async def bypass(ctx):
            ctx.set(bench.port.bypass_striping, 1)
        bench.process("bypass", bypass)
        outcomes = bench.write(0, [(BASE + offset, words, "full")], bypass_striping=True)
        bench.run(300)
        assert outcomes == [0] and (bench.array == bench.expected).all()
        assert bench.memory.statistics.bursts == bursts
        bench.model.check()

    def test_a_sequence_may_end_at_the_end_of_memory(self):
        """The sequence ends in the last block but one; its next block would be unmapped."""
        bench = Bench(TINY, 1, striped={0})
        outcomes = bench.write(0, [(BASE + SIZE - 4 * 64, 9, "empty")])
        bench.run(100)
        assert outcomes == [0] and (bench.array == bench.expected).all()
        bench.model.check()

    def test_faults_belong_to_their_client(self):
        """Of two clients in one range, only the owner of the block reports the fault."""
        bench = Bench(TINY, 2, MEMORIES["out-of-order"], striped={0, 1})
        bench.memory.fail_range(BASE + 3 * 64, 64, DECERR)
        outcomes = [bench.write(0, [(BASE, 12), (BASE + 0x400, 12)]),
                    bench.write(1, [(BASE + 64, 12), (BASE + 0x440, 12)])]
        bench.run(1000)
        assert outcomes == [[0, 0], [FAULT_DECERR, 0]]

    def test_a_word_a_cycle(self):
        bench = Bench(WIDE, 1, Behaviour(latency=64), striped={0})
        bench.write(0, [(BASE + 64, 400)])
        bench.run(400 + 64 + WIDE.burst_beats + DmaWritePort.latency + 8)
        assert (bench.array == bench.expected).all()
        statistics = bench.memory.statistics
        assert statistics.last_beat - statistics.first_request <= 400 + 8
