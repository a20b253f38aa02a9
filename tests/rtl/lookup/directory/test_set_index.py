"""Sets and tags of rows against the golden directory."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import log2, preset
from hotrow_rtl.lookup.banks.lookup_bank import SetIndex
from hotrow_rtl.lookup.hashing.row_location import directory_hash, join_key
from hotrow_sim.golden.lookup.counters import unpack_key
from hotrow_sim.golden.lookup.directory import Directory

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
CONFIGS = [
    TINY, preset("ecp5"), preset("alveo-u55c"),
    replace(TINY, name="one-choice", directory_choices=1, directory_partitions=1),
    replace(TINY, name="64-partitions", directory_sets=512, directory_partitions=64, tables=2),
]
BANK = 5


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_sets_and_tags(config):
    """Rows that differ in one bit differ in a set or a tag, in every partition."""
    rng, dut = np.random.default_rng(1), built(SetIndex, config)
    bench, most = StreamBench(dut), log2(config.directory_partitions)
    base = int(rng.integers(1 << config.bank_key_width - 1))
    keys = [base, *(base ^ 1 << bit for bit in range(config.bank_key_width))]

    def expected(key, parts_log2, part):
        table, row = (int(each) for each in unpack_key(
            config, np.uint64(join_key(config, BANK % config.banks, key))))
        starts = Directory(config).set_starts([table], [row], [parts_log2], [part])
        for choice, (start,) in enumerate(starts):
            set_ = start // config.directory_ways % config.directory_sets // config.banks
            yield set_, directory_hash(config, choice, key) >> (
                config.bank_key_width - config.directory_tag_width)

    async def check(ctx):
        for parts_log2 in range(most + 1):
            part = int(rng.integers(1 << parts_log2))
            seen = set()
            for key in keys:
                ctx.set(dut.bank_key, key)
                ctx.set(dut.parts_log2, parts_log2)
                ctx.set(dut.part, part)
                ctx.set(dut.enable, 1)
                await ctx.tick()
                ctx.set(dut.enable, 0)
                ctx.set(dut.bank_key, 0)
                await ctx.tick()  # not loaded
                got = [(each.set, each.tag) for each in ctx.get(dut.choices)]
                assert got == list(expected(key, parts_log2, part))
                seen |= {(choice, *each) for choice, each in enumerate(got)}
            assert len(seen) == len(keys) * config.directory_choices
    bench.process("check", check)
    bench.run(1000)
