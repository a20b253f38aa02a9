"""What a type checker and an editor see of the public names, in a program of a user."""

import os
import re
import subprocess
import sys
from pathlib import Path

import hotrow.torch
import pytest

ROOT = Path(__file__).parents[2]
# A line that ends with `# E: kind` must be an error of that kind, every other line none.
PROGRAM = """
from typing import Any, assert_type

import hotrow
import numpy as np
import torch
from hotrow.torch import Checkpoint, NgramIds, TableConfig, TrainPipeline, convert, ids_of
from hotrow_rtl.config import Config
from hotrow_rtl.units.catalog import Unit, unit
from hotrow_rtl.units.counters import AccessCounters, row_beat
from hotrow_sim.bench import simulate_unit
from hotrow_sim.bench.host_arrays import HostArrays
from hotrow_sim.bench.streams import StreamSink, StreamSource
from hotrow_sim.bench.unit_bench import UnitBench
from numpy.typing import NDArray

with hotrow.open("cpu", preset="ecp5", timeout=60.0) as device:
    assert_type(device, hotrow.Device)
    table = device.register_table(hotrow.empty((1000, 16), np.float32), name="items")
    assert_type(table, hotrow.Table)
    batch = hotrow.Batch.dense(np.zeros((64, 1), np.int64), tables=[table, "items"])
    assert_type(device.observe(batch), hotrow.Observation)
    assert_type(device.observe_async([[1]]), hotrow.Future[hotrow.Observation])
    hot = device.harvest(k=10)
    assert_type(hot, hotrow.HotRows)
    assert_type(device.install(hot).slots, NDArray[np.uint32])
    split = device.split(batch, observe=True)
    assert_type(split.misses, hotrow.RowList)
    assert_type(device.gather(split.misses), NDArray[Any])
    assert_type(device.gather_async((table, [1, 2])).result(), NDArray[Any])
    assert_type(device.plan(batch, policy="lfu"), hotrow.Plan)
    assert_type(device.pool(hot, lengths=[10], out=torch.zeros(1, 16)), NDArray[Any])
    device.update(hot, torch.zeros(10, 16), lr=0.1, optimizer="sgd")
    device.scatter(hot, np.zeros((10, 16), np.float32))
    assert_type(device.register(torch.zeros(8), writable=False), hotrow.Buffer)
    device.signal(0, 1, queue="move")
    with hotrow.Timeline(device, "trace.json") as timeline, timeline.step("forward"):
        device.copy(np.zeros(4), np.zeros(4))
    device.observ(batch)  # E: attr-defined
    device.harvest(k="10")  # E: arg-type
    device.harvest(10, whole_table=True)  # E: call-arg
    device.plan(batch).slot  # E: attr-defined

config = TableConfig("items", 1000, 16, pooling="mean", dtype=torch.float16)
TableConfig("items", 1000, 16, poolings="mean")  # E: call-arg
assert_type(ids_of(["a", "b"]), torch.Tensor)
assert_type(NgramIds((2, 3), heads=2, rows=100, seed=0).tables, tuple[int, ...])
model = torch.nn.EmbeddingBag(10, 4)
collection = convert(model)
assert_type(collection, hotrow.torch.HotEmbeddingBagCollection)
bags = hotrow.torch.HotEmbeddingBagCollection(
    [config], "cpu", optimizer=hotrow.torch.RowwiseAdagrad(0.1),
    options=hotrow.torch.Options(depth=2, seed=0))
bags.prefetch(torch.zeros(4, 1, dtype=torch.int64))
assert_type(bags.statistics, dict[str, int])
assert_type(bags.gradients(), list[torch.Tensor])
bags.optimizer.step()
bags.learn(limit="10")  # E: arg-type
hotrow.torch.HotEmbeddingBagCollection([config], look_ahead=2)  # E: call-arg
hotrow.torch.Options(depth="2")  # E: arg-type
hotrow.torch.HotEmbeddingBagCollection([config], mode="scratchpad")  # E: arg-type
hotrow.torch.HotEmbeddingBagCollection([config], optimizer="AdamW")  # E: arg-type
convert(model, mode="scratchpipe", optimizer="adam", lr=0.1)
convert(model, lr="0.1")  # E: arg-type
assert_type(hotrow.torch.HotEmbeddingBag(10, 4)(torch.zeros(2, 1)), torch.Tensor)
hotrow.torch.Adam(0.1, betas=0.9)  # E: arg-type
with TrainPipeline([(torch.zeros(1, 1), "label")], model, lambda batch: batch[0]) as pipeline:
    for ids, label in pipeline:
        assert_type((ids, label), tuple[torch.Tensor, str])
Checkpoint("run.pt").save(state=pipeline.state_dict())
hotrow.torch.average_gradients(model.parameters())
hotrow.torch.Unknown  # E: attr-defined
hotrow.unknown  # E: attr-defined

assert_type(unit("counters"), Unit)
two_lanes = unit("counters").config({"lanes": 2})
assert_type(two_lanes, Config)
AccessCounters(two_lanes)
AccessCounters("tiny")  # E: arg-type
unit("counters").config({"lanes": 2.5})  # E: dict-item
simulate_unit("made/hotrow_counters.json", "bench", folder="out", wave=1)  # E: call-arg


async def drive(dut: Any) -> None:
    bench = await UnitBench.start(dut, idle=0.1, seed="one")
    assert_type(bench, UnitBench)
    assert_type(bench.memory, HostArrays)
    bench.lookups.put({"last": 1})
    await bench.restart()
    source = StreamSource(dut, "lookups", row_beat(two_lanes), idle=0.5)
    StreamSink(dut, "reports", 8, idle=0.5)  # E: call-arg
    source.put(1)
"""


@pytest.mark.long
def test_a_program(tmp_path):
    # A name that the checker does not find is an error as an annotation.
    source = PROGRAM + "".join(
        f"def use_{name}(it: hotrow.torch.{name}) -> None: ...\n"
        for name in hotrow.torch.__all__ if name[0].isupper() and name != "TrainPipeline")
    (tmp_path / "program.py").write_text(source)
    sources = os.pathsep.join(str(ROOT / part) for part in ("sw_driver", "rtl", "sim"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent",
         "--show-error-codes", "--cache-dir", tmp_path / "cache", "program.py"], cwd=tmp_path,
        env=os.environ | {"MYPYPATH": sources}, capture_output=True, text=True)
    found = {(int(line), kind) for line, kind in re.findall(
        r"^program\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M)}
    expected = {(number, line.rpartition("# E: ")[2])
                for number, line in enumerate(source.split("\n"), 1) if "# E: " in line}
    assert found == expected, done.stdout + done.stderr
