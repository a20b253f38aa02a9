"""The timeline: what each command did, when, on which lane; traces that Chrome's format allows."""

import json

import hotrow
import numpy as np
import pytest
from hotrow.timeline import LANES, LINK, LOOKUP, MOVE, TRAINER, Slices


def slices(path):
    """(lane, name, start, end, args) of every slice, in microseconds."""
    trace = json.loads(path.read_text())
    lanes = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"]
             if event["name"] == "thread_name"}
    return [(lanes[event["tid"]], event["name"], event["ts"], event["ts"] + event["dur"],
             event["args"]) for event in trace["traceEvents"] if event["ph"] == "X"]


def overlap(found, one, other):
    """Microseconds in which slices of two names run at the same time: Perfetto's query, a span
    join of two selections by name, in Python."""
    return sum(max(0.0, min(a[3], b[3]) - max(a[2], b[2]))
               for a in found if a[1] == one for b in found if b[1] == other)


@pytest.fixture
def device():
    with hotrow.open("model", preset="tiny") as device:
        device.register_table(np.zeros((500, 16), np.float32))
        yield device


IDS = np.arange(500, dtype=np.uint32)[:, None]


def test_a_split_and_the_gather_before_it_overlap(device, tmp_path):
    path = tmp_path / "out.json"
    with hotrow.Timeline(device, path):
        split = device.split(IDS)
        # Both queues at once, and the first batch's rows while the second is split.
        futures = [device.gather_async(split.misses), device.split_async(IDS)]
        for future in futures:
            future.result()
        spans = [future.span for future in futures]
    found = slices(path)
    assert [(lane, name) for lane, name, *_ in found if lane in (LOOKUP, MOVE)] == [
        (LOOKUP, "SPLIT"), *sorted([(MOVE, "GATHER"), (LOOKUP, "SPLIT")], key=lambda each: spans[
            each[1] == "SPLIT"][0])]
    clock = device.geometry.clock_mhz
    gather = next(each for each in found if each[:2] == (MOVE, "GATHER"))
    assert gather[2:4] == pytest.approx([spans[0][0] / clock, spans[0][1] / clock])
    assert gather[4]["entries"] == 500 and gather[4]["status"] == "OK"
    expected = min(spans[0][1], spans[1][1]) - max(spans[0][0], spans[1][0])
    assert overlap(found, "SPLIT", "GATHER") == pytest.approx(expected / clock) and expected > 0
    link = next(each for each in found if each[0] == LINK)
    assert link[3] - link[2] == pytest.approx(link[4]["bytes"] / 24e3)


def test_nothing_is_recorded_outside(device, tmp_path):
    timeline = hotrow.Timeline(device, tmp_path / "out.json")
    device.split(IDS)
    with timeline:
        device.observe(IDS)
    device.split(IDS)
    assert [each[1] for each in slices(tmp_path / "out.json")] == ["OBSERVE"]
    assert "wait" not in vars(device.transport)


@pytest.mark.parametrize("overlapped", [False, True])
def test_the_trainer_s_steps_move_what_follows(device, tmp_path, overlapped):
    path = tmp_path / "out.json"
    with hotrow.Timeline(device, path) as timeline:
        with timeline.step("batch 0", seconds=0.25, overlapped=overlapped):
            device.observe(IDS)
        device.split(IDS)
        with timeline.step("batch 1"):
            pass
    found = {each[1]: each for each in slices(path)}
    step, after = found["batch 0"], found["SPLIT"]
    assert step[0] == TRAINER and step[4]["time"] == "given"
    observed = found["OBSERVE"]
    assert step[2] <= observed[2] and observed[3] <= step[3]
    assert step[3] - step[2] == pytest.approx(0.25e6, abs=1e-3) if overlapped else (
        step[3] - step[2] > 0.25e6 + observed[3] - observed[2])
    assert after[2] >= step[3] and found["batch 1"][2] >= after[3]
    assert found["batch 1"][4]["time"].startswith("measured") and 0 <= (
        found["batch 1"][4]["seconds"]) < 60


def test_the_format(tmp_path):
    """The members that Perfetto's JSON importer and chrome://tracing require."""
    path = tmp_path / "out.json"
    trace = Slices("title")
    trace.add(MOVE, "GATHER", 1.5, 2.0, rows=3)
    trace.write(path)
    events = json.loads(path.read_text())["traceEvents"]
    assert all({"ph", "pid", "name"} <= event.keys() for event in events)
    assert [each["args"]["name"] for each in events if each["name"] == "thread_name"] == [*LANES]
    assert events[-1] == {"ph": "X", "pid": 1, "tid": 2, "name": "GATHER", "ts": 1.5e6,
                          "dur": 0.5e6, "args": {"rows": 3}}


def test_steps_follow_each_other_where_the_card_is_idle(device, tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    monkeypatch.setattr(device, "cycle", lambda: 1000)
    with hotrow.Timeline(device, path) as timeline:
        for name in ("batch 0", "batch 1"):
            with timeline.step(name, seconds=0.25):
                pass
    first, second = slices(path)
    assert second[2] == pytest.approx(first[3]) and second[3] - second[2] == pytest.approx(0.25e6)


def test_a_link_without_rate(device):
    assert hotrow.Timeline(device, link_gbps=0.5).link_gbps == 0.5
    with pytest.raises(hotrow.Error, match="above 0 GB/s, not 0"):
        hotrow.Timeline(device, link_gbps=0)


def test_a_timeline_within_another(device):
    with hotrow.Timeline(device) as outer:
        with hotrow.Timeline(device) as inner:
            device.split(IDS)
        device.split(IDS)
    assert (len(outer._commands), len(inner._commands)) == (2, 1)
    assert not set(vars(device.transport)) & {"wait", "write_register", "read_register"}
    device.split(IDS)
