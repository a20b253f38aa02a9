"""AddressCrossbar: each entry goes to the port of its row, with all its transfers."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.mover.addressing.crossbar import AddressCrossbar
from hotrow_rtl.mover.addressing.port_interleave import row_port
from hotrow_rtl.mover.port.payloads import row_transfer

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
SLOW, LONG = pytest.mark.slow, pytest.mark.long


def lane_transfers(config, rng, lane, entries, states):
    """Transfers of one lane: random rows, some with state, whose destination is the row."""
    layout, transfers = row_transfer(config), []
    for k in range(entries):
        row = int(rng.integers(0, 1 << 40)) & ~15
        has_state = rng.random() < states
        info = {"index": lane + config.row_ports * k, "bytes": 64}
        transfers.append({"source": row, "info": info | {"last": int(not has_state)}})
        if has_state:
            transfers.append({"source": int(rng.integers(0, 1 << 40)), "destination": row,
                              "info": info | {"last": 1}})
    return [layout.const(transfer) for transfer in transfers]


def ports_of(config, transfers):
    """Port of each transfer of one lane."""
    ports, inside = [], False
    for transfer in transfers:
        ports.append(ports[-1] if inside else row_port(config, transfer.source))
        inside = not transfer.info.last
    return ports


@pytest.mark.parametrize("ports", [2, pytest.param(4, marks=LONG), pytest.param(8, marks=LONG)])
@pytest.mark.parametrize("gaps, pauses", [
    pytest.param(STEADY, STEADY, id="steady", marks=SLOW),
    pytest.param(RAGGED, STEADY, id="gaps", marks=LONG),
    pytest.param(STEADY, RAGGED, id="back-pressure", marks=LONG),
    pytest.param(RAGGED, RAGGED, id="both")])
def test_entries_arrive_whole_and_in_lane_order(ports, gaps, pauses):
    config, rng = replace(TINY, row_ports=ports), np.random.default_rng(3)
    by_lane = [lane_transfers(config, rng, lane, 40, states=0.4) for lane in range(ports)]
    routes = [ports_of(config, transfers) for transfers in by_lane]
    bench = StreamBench(dut := built(AddressCrossbar, config))
    for lane, transfers in zip(dut.lanes, by_lane, strict=True):
        bench.source(lane, transfers, gaps)
    received = [
        bench.sink(stream, sum(route.count(port) for route in routes), pauses, f"port {port}")
        for port, stream in enumerate(dut.ports)]
    bench.run(20_000)
    for port, got in enumerate(received):
        index = [transfer.info.index for transfer in got]
        for lane in range(ports):
            assert [transfer.as_bits() for transfer, number in zip(got, index, strict=True)
                    if number % ports == lane] == [
                transfer.as_bits()
                for transfer, at in zip(by_lane[lane], routes[lane], strict=True) if at == port]
        entries = [at for place, at in enumerate(index) if not place or index[place - 1] != at]
        assert len(entries) == len(set(entries)), "the transfers of an entry are not consecutive"


@pytest.mark.parametrize("ports", [2, pytest.param(4, marks=LONG), pytest.param(8, marks=LONG)])
def test_random_rows_keep_the_ports_busy(ports):
    """With lanes as fast as the ports, every port carries 0.95 transfers per cycle."""
    config, rng, limit = replace(TINY, row_ports=ports), np.random.default_rng(5), 400
    dut = built(AddressCrossbar, config)
    bench, counts = StreamBench(dut), []

    def feed(stream, transfers):
        async def drive(ctx):
            ctx.set(stream.valid, 1)
            for transfer in transfers:
                ctx.set(stream.payload, transfer)
                ready = False
                while not ready:
                    _, _, ready = await ctx.tick().sample(stream.ready)
        return drive

    async def count(ctx):
        for port in dut.ports:
            ctx.set(port.ready, 1)
        for _ in range(limit + dut.latency):
            _, _, *valids = await ctx.tick().sample(*(port.valid for port in dut.ports))
            counts.append(sum(valids))

    for lane, stream in enumerate(dut.lanes):
        bench.background(feed(stream, lane_transfers(config, rng, lane, limit + 200, states=0)))
    bench.process("count", count)
    bench.run(2 * limit)
    rate = sum(counts) / limit
    assert rate >= 0.95 * ports, f"{rate:.3f} transfers per cycle"
