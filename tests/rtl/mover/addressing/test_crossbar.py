"""The exchange: every entry to the port of its row, whole, and no port waits for another."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.mover.addressing.crossbar import AddressCrossbar
from hotrow_rtl.mover.addressing.port_interleave import row_port
from hotrow_rtl.mover.port.payloads import addressed_copy
from hotrow_sim.testing.benches.stream_bench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")
SLOW = pytest.mark.slow


def copies_of(config, rng, lane, entries, states):
    """Bits of the copies of one lane; a source tells the entry: its row's, or its state's."""
    layout, made = addressed_copy(config), []
    for k in range(entries):
        row = int(rng.integers(0, 1 << 40)) & ~15
        has_state = rng.random() < states
        identity = {"index": lane + config.row_ports * k, "bytes": 64}
        made.append({"source": row, "identity": identity | {"last": int(not has_state)}})
        if has_state:
            made.append({"source": int(rng.integers(0, 1 << 40)), "destination": row,
                         "identity": identity | {"last": 1}})
    return [layout.const(copy).as_bits() for copy in made]


def exchange(config, by_lane, gaps, pauses, expected):
    """Run copies through an exchange; return what each port gives, and the cycles."""
    dut = AddressCrossbar(config)
    bench = StreamBench(dut)
    for lane, copies in zip(dut.lanes, by_lane):
        bench.source(lane, copies, gaps)
    taken = [bench.sink(port, count, pauses, name=f"port {number}")
             for number, (port, count) in enumerate(zip(dut.ports, expected))]
    return taken, bench.run(20_000)


def steer(config, copies):
    """Port of each copy of one lane."""
    layout, ports, begun = addressed_copy(config), [], False
    for bits in copies:
        copy = layout.from_bits(bits)
        ports.append(ports[-1] if begun else row_port(config, copy["source"]))
        begun = not copy["identity"]["last"]
    return ports


@pytest.mark.parametrize("ports", [2, pytest.param(4, marks=SLOW), pytest.param(8, marks=SLOW)])
@pytest.mark.parametrize("gaps, pauses", [
    (STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED), (RAGGED, RAGGED)],
    ids=["steady", "gaps", "back-pressure", "both"])
def test_entries_come_whole_and_in_the_order_of_their_lane(ports, gaps, pauses):
    config, rng = replace(TINY, row_ports=ports), np.random.default_rng(3)
    layout = addressed_copy(config)
    by_lane = [copies_of(config, rng, lane, 60, states=0.4) for lane in range(ports)]
    steered = [steer(config, copies) for copies in by_lane]
    expected = [sum(steering.count(port) for steering in steered) for port in range(ports)]
    got, _ = exchange(config, by_lane, gaps, pauses, expected)
    for port, taken in enumerate(got):
        index = [layout.from_bits(bits)["identity"]["index"] for bits in taken]
        for lane in range(ports):
            assert [bits for bits, at in zip(taken, index) if at % ports == lane] == [
                bits for bits, at in zip(by_lane[lane], steered[lane]) if at == port]
        entries = [at for place, at in enumerate(index) if not place or index[place - 1] != at]
        assert len(entries) == len(set(entries)), "a copy of another entry lies between two"


@pytest.mark.parametrize("ports", [2, pytest.param(4, marks=SLOW), pytest.param(8, marks=SLOW)])
def test_random_rows_keep_the_ports_busy(ports):
    """Lanes that bring as much as the ports can take: 0.95 of a copy a cycle from each port."""
    config, rng, limit = replace(TINY, row_ports=ports), np.random.default_rng(5), 800
    dut = AddressCrossbar(config)
    bench, counted = StreamBench(dut), []

    def feed(stream, copies):
        async def drive(ctx):
            ctx.set(stream.valid, 1)
            for bits in copies:
                ctx.set(stream.payload, bits)
                taken = False
                while not taken:
                    _, _, taken = await ctx.tick().sample(stream.ready)
        return drive

    async def count(ctx):
        for port in dut.ports:
            ctx.set(port.ready, 1)
        for _ in range(limit + dut.latency):
            _, _, *valids = await ctx.tick().sample(*(port.valid for port in dut.ports))
            counted.append(sum(valids))

    for lane, stream in enumerate(dut.lanes):
        bench.background(feed(stream, copies_of(config, rng, lane, limit + 200, states=0)))
    bench.process("count", count)
    bench.run(2 * limit)
    rate = sum(counted) / limit
    assert rate >= 0.95 * ports, f"{rate:.3f} copies a cycle"
