"""ReadCredits and ReadReturn: the words of every read come back to its unit, in order, whatever the
units take; a port never waits for a unit."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth import Const, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import preset
from hotrow_rtl.mover.bags.payloads import return_words
from hotrow_rtl.mover.bags.read_network import ReadCredits, ReadReturn
from hotrow_rtl.mover.port.payloads import fetched_row, row_transfer, source_word

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

CONFIG = replace(preset("tiny"), row_ports=2, bag_units=2, outstanding=16, row_bytes=64)
PORT = 1


class Network(wiring.Component):
    """All units and one port: the units send one by one, in the order of `order`.

    Attributes
    ----------
    reads : In(stream(row_transfer)).array(units)
    transfers, rows, words
        Of the port.
    unit_rows, unit_words
        Of the units.
    """

    def __init__(self, config):
        self.config = config
        units = config.bag_units
        transfers = stream.Signature(row_transfer(config))
        rows = stream.Signature(fetched_row(config))
        words = stream.Signature(source_word(config))
        super().__init__({
            "reads": In(transfers).array(units), "transfers": Out(transfers), "rows": In(rows),
            "words": In(words), "unit_rows": Out(rows).array(units),
            "unit_words": Out(words).array(units)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.back = back = ReadReturn(self.config)
        connect(m, back.transfers, flipped(self.transfers))
        connect(m, flipped(self.rows), back.rows)
        connect(m, flipped(self.words), back.words)
        earlier = Const(0)
        for number in range(self.config.bag_units):
            m.submodules[f"credits_{number}"] = sender = ReadCredits(self.config)
            connect(m, flipped(self.reads[number]), sender.transfers[PORT])
            m.d.comb += sender.transfers[0].p.eq(self.reads[number].p)
            connect(m, back.unit_rows[number], flipped(self.unit_rows[number]))
            connect(m, back.unit_words[number], flipped(self.unit_words[number]))
            m.d.comb += [sender.unit.eq(number), sender.freed[PORT].eq(back.freed[number]),
                         sender.sent.ready.eq(back.sent.ready & ~earlier)]
            with m.If(sender.sent.valid & ~earlier):
                m.d.comb += [back.sent.valid.eq(1), back.sent.p.eq(sender.sent.p)]
            earlier = earlier | sender.sent.valid
        return m


def reads_of(rng, unit, count):
    """Reads from any byte: address, bytes, whether it has a fault, and its number in the unit."""
    return [{"source": (unit << 20) + 64 * at + 4 * int(rng.integers(16)),
             "info": {"bytes": int(rng.choice([4, 16, 48, 64]))}} for at in range(count)]


def words_of(read):
    """Bus words from the first to the last byte of a read."""
    first, last = read["source"], read["source"] + read["info"]["bytes"] - 1
    return last // CONFIG.bus_bytes - first // CONFIG.bus_bytes + 1


def is_faulty(source):
    return source % 7 == 3


@pytest.mark.parametrize("gaps", [
    pytest.param(STEADY, id="steady"), pytest.param((0, 0, 40, 1), id="bursts"),
    pytest.param(RAGGED, id="ragged")])
def test_every_read_returns_to_its_unit(gaps):
    rng, units = np.random.default_rng(4), CONFIG.bag_units
    sent = [reads_of(rng, unit, 60) for unit in range(units)]
    bench = StreamBench(dut := built(Network, CONFIG))
    for unit in range(units):
        bench.source(dut.reads[unit], sent[unit])
    waiting, most = [], [0]

    async def port(ctx):
        """Accept reads at once; return rows after some cycles, without ever waiting."""
        ctx.set(dut.transfers.ready, 1)
        queue, now = [], 0
        while True:
            _, _, valid, transfer, row_ready, word_ready = await ctx.tick().sample(
                dut.transfers.valid, dut.transfers.p, dut.rows.ready, dut.words.ready)
            now += 1
            assert word_ready and (row_ready or not ctx.get(dut.rows.valid))
            if valid:
                read = {"source": transfer.source, "info": {"bytes": transfer.info.bytes}}
                queue.append((now + 12, transfer.source, words_of(read)))
            most[0] = max(most[0], sum(words for _, _, words in queue))
            ctx.set(dut.rows.valid, 0)
            ctx.set(dut.words.valid, bool(waiting))
            if waiting:
                ctx.set(dut.words.p, waiting.pop(0))
            if not waiting and queue and queue[0][0] <= now:
                _, source, words = queue.pop(0)
                ctx.set(dut.rows.p, {"fault": is_faulty(source)})
                ctx.set(dut.rows.valid, 1)
                if not is_faulty(source):
                    waiting.extend({"data": (source << 8) + at, "last": at == words - 1}
                                   for at in range(words))
    bench.background(port)
    rows = [bench.sink(dut.unit_rows[unit], 60, gaps, f"rows {unit}",
                       read=lambda row: row.fault) for unit in range(units)]
    wanted = [[(read["source"] << 8) + at for read in sent[unit]
               if not is_faulty(read["source"]) for at in range(words_of(read))]
              for unit in range(units)]
    words = [bench.sink(dut.unit_words[unit], len(wanted[unit]), gaps, f"words {unit}",
                        read=lambda word: word.data) for unit in range(units)]
    bench.run(20_000)
    for unit in range(units):
        assert rows[unit] == [int(is_faulty(read["source"])) for read in sent[unit]]
        assert words[unit] == wanted[unit]
    assert most[0] <= units * return_words(CONFIG)
