"""The step-time model against cases worked out by hand."""

import pytest
from hotrow_explore import cards, constants, systems
from hotrow_explore.placements import PLACEMENTS, DoesNotFit, Question
from hotrow_explore.step_time import StepTime
from hotrow_explore.workloads import Workload

KNOWN = constants.load()
WORK = Workload("hand", rows=(1000, 1000), lookups=(3, 1), dense=4, dim=16, batch=100,
                bottom=(8,), top=(10,), slope=1.0)
SYSTEM = systems.System("hand", "by hand", cores=10, host_memory_gb=1, host_memory_gbps=100,
                        host_tflops=1, core_speed=1.0, gpus=2, gpu_memory_gb=1,
                        gpu_memory_gbps=1000, gpu_tflops=10, link_gbps=10, gpu_link_gbps=20)


def question(system=SYSTEM, work=WORK, framework="fused", **values):
    return Question(work, system, KNOWN.replaced(**values), framework=framework)


def test_sizes_of_a_workload():
    assert WORK.row_bytes == 64
    assert WORK.table_bytes == 2000 * 64
    assert WORK.step_lookups == 400
    assert WORK.pooled_bytes == 100 * 2 * 64
    # Bottom 4-8-16; three vectors have three pairs, and 16 passed on: top 19-10-1.
    assert WORK.layers == [(4, 8), (8, 16), (19, 10), (10, 1)]
    assert WORK.parameters == 40 + 144 + 200 + 11


def test_rows_that_are_not_pooled_cross_one_by_one():
    """Every lookup's row enters the dense part, at the 3 positions of the longest sequence."""
    work = WORK.changed(pooled=False)
    assert work.pooled_bytes == 400 * 64 and work.positions == 3
    machine, pooled = question(work=work).machine, question().machine
    assert machine.flops(100) == pooled.flops(300)
    assert machine.dense_bytes(100) > 2 * pooled.dense_bytes(100)
    link = PLACEMENTS["hybrid"](question(work=work, link_us=0)).parts["link"]
    assert link == pytest.approx(2 * 400 * 64 / 10e9)
    # The first table, three of four lookups, is held by the trainer.
    held = Question(work, SYSTEM, KNOWN.replaced(link_us=0), whole=frozenset({0}))
    assert PLACEMENTS["hybrid"](held).parts["link"] == pytest.approx(2 * 100 * 64 / 10e9)
    # A row lies on one GPU: no partial sums.
    rows = PLACEMENTS["gpu-rows"](question(work=work)).parts["all-to-all"]
    assert rows == pytest.approx(machine.exchange(8 * 400) + 2 * machine.exchange(400 * 64))
    card = Question(work, SYSTEM, KNOWN.replaced(link_us=0), card=cards.find("alveo-u55c"))
    assert PLACEMENTS["near-memory"](card).parts["link"] == pytest.approx(400 * 64 / 14.4e9)


def test_flops_and_dense_bytes():
    machine = question().machine
    products = 4 * 8 + 8 * 16 + 19 * 10 + 10
    assert machine.flops(100) == 3 * 2 * 100 * (products + 3 * 3 * 16)
    moved = sum(100 * (i + o) + i * o for i, o in WORK.layers) + 100 * 3 * (16 + 3)
    assert machine.dense_bytes(100) == 3 * 4 * moved


def test_launch_time_counts_beyond_the_kernels():
    machine = question(gpu_op_us=10, ops_per_layer=8, ops_per_step=30, merged_ops=20).machine
    parts = machine.gpu_dense()
    assert sum(parts.values()) == pytest.approx((8 * 4 + 30 + 20) * 10e-6)
    assert question(gpu_op_us=0).machine.gpu_dense()["launch"] == 0


def test_gpu_embedding_is_bytes_over_random_bandwidth():
    machine = question(gpu_random_fraction=0.5, gpu_update_passes=5, gpu_sort_ns=1).machine
    # Half of 400 lookups a GPU, 64 bytes each, 1 + 5 passes at 500 GB/s, and 1 ns to sort.
    assert machine.gpu_embedding(400)["embedding"] == pytest.approx(200 * 64 * 6 / 500e9 + 200e-9)


def test_host_embedding_is_bound_by_cores_or_memory():
    values = dict(core_lookup_ns=2, core_lookup_ns_per_byte=0.2, row_parallel=0.5,
                  core_update_ns=50, core_update_ns_per_byte=0.5, update_parallel=0.2,
                  framework="pytorch")
    forward, update = question(**values).machine.host_embedding(400)
    assert forward == pytest.approx(400 * (2 + 0.2 * 64) * 1e-9 / 5)
    assert update == pytest.approx(400 * (50 + 0.5 * 64) * 1e-9 / 2)
    slow = question(SYSTEM.changed(host_memory_gbps=0.1), **values).machine
    assert slow.host_embedding(400) == pytest.approx((400 * 64 / 0.1e9, 2 * 400 * 64 / 0.1e9))


def test_exchanges():
    machine = question(all_to_all_us=100, all_reduce_us=10, collective_fraction=0.5).machine
    assert machine.exchange(4000) == pytest.approx(100e-6 + 1000 / 10e9)
    assert machine.all_reduce()["all-reduce"] == pytest.approx(10e-6 + 8 * 395 / 10e9)
    staged = question(SYSTEM.changed(gpu_link_gbps=0), all_to_all_us=100,
                      collective_fraction=0.5).machine
    assert staged.exchange(4000) == pytest.approx(2 * (100e-6 + 1000 / 2.5e9))
    assert question(SYSTEM.changed(gpus=1)).machine.exchange(4000) == 0


def test_tracks_overlap_and_phases_do_not():
    step = StepTime(({"a": {"x": 1.0, "y": 2.0}, "b": {"z": 2.5}}, {"a": {"x": 0.5}}))
    assert step.seconds == 3.5
    assert step.parts == {"x": 1.5, "y": 2.0, "z": 2.5}


@pytest.mark.parametrize("name", ["cpu", "hybrid", "gpu-tables", "gpu-rows", "static-cache"])
def test_tables_that_do_not_fit_are_an_answer(name):
    huge = WORK.changed(rows=(10**9, 10**9))
    with pytest.raises(DoesNotFit, match=r"needs [\d.]+ GB, [\d.]+ usable"):
        PLACEMENTS[name](question(work=huge))


@pytest.mark.parametrize("knob, value", [
    ("batch", -1), ("dim", 0), ("rows", (10, -1)), ("dense", -4), ("lookups", (1,)),
])
def test_workloads_are_refused(knob, value):
    with pytest.raises(systems.ExploreError, match="workload 'hand'"):
        WORK.changed(**{knob: value})


def test_systems_are_refused():
    with pytest.raises(systems.ExploreError, match="link_gbps must not be negative, not -1"):
        SYSTEM.changed(link_gbps=-1)
    with pytest.raises(systems.ExploreError, match="host_memory_gb must be above 0"):
        SYSTEM.changed(host_memory_gb=0)


def test_every_constant_has_a_unit_and_a_source():
    for name, constant in KNOWN.documented.items():
        assert constant.kind in constants.KINDS and constant.unit and constant.source, name
    published = constants.read("published").values()
    fitted = [each for each in KNOWN.documented.values() if each.kind == "fitted"]
    assert len(fitted) == sum(entry["fitted"] for entry in published) <= 3


def test_every_system_and_workload_loads():
    from hotrow_explore import workloads

    assert len(systems.load()) >= 10 and len(workloads.load()) >= 7
    assert sum(workloads.find("criteo-kaggle").rows) == 33_762_577
    assert sum(workloads.find("criteo-1tb").rows) == 177_944_275
    assert 8.7e6 < workloads.find("dlrm-v4").step_lookups < 12.6e6
    assert workloads.find("dlrm-v4").table_bytes == pytest.approx(600e9, rel=0.001)
