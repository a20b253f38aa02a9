"""`hotrow bench link`: what is counted, and what a line needs for it."""

import argparse
import json

import pytest
from hotrow_boards.boards import BOARDS

from benchmarks.link_bytes import BLOCK_LOG2, Line
from benchmarks.link_cli import link

QUICK = ["link", "--preset", "tiny", "--trace", "zipf:1.2", "--tables", "3", "--rows", "300",
         "--batch-size", "16", "--steps", "3", "--warm-up", "2", "--learning", "1", "--json"]


@pytest.mark.parametrize("optimizer", [
    "sgd", pytest.param("rowwise_adagrad", marks=pytest.mark.long)])
def test_a_step_moves_what_its_batch_needs(capsys, optimizer):
    parser = argparse.ArgumentParser()
    link(parser.add_subparsers(dest="name"))
    options = parser.parse_args([*QUICK, "--optimizer", optimizer])
    assert options.run(options) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["mode"] for each in found["modes"]] == [
        "scratchpipe", "freqcache", "hotline", "hotline pooled"]
    for each in found["modes"]:
        # Both lists of 48 lookups, and 64-byte rows for at most all of them, both ways.
        assert 48 * 4 < each["bytes_up"] < 16_000 and 64 < each["bytes_down"] < 16_000
        assert each["bytes_before_training"] > found["table_bytes"]
        assert each["projected_steps_per_s_gigabit"] > 50 * each["projected_steps_per_s_uart"]
    assert [each["table_hash_equal"] for each in found["modes"][:2]] == [True, True]


def test_output_for_people(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = argparse.ArgumentParser()
    link(parser.add_subparsers(dest="name"))
    options = parser.parse_args(QUICK[:-1])
    monkeypatch.setattr("benchmarks.link_bytes.MODES", {"hotline": {"mode": "hotline"}})
    assert options.run(options) == 0
    shown, said = capsys.readouterr()
    assert "hotrow bench link" in shown and max(map(len, shown.splitlines())) <= 80
    assert "rates projected; no board has run it" in said


def test_blocks_are_those_of_the_board():
    assert BOARDS["ecpix5"].dram.block_log2 == BLOCK_LOG2


def test_time_on_a_line():
    """Frames of 20 and 1000 bytes, of which one has three bytes that are escaped."""
    line = Line.of([(bytes(20), bytes([0xC0] * 3) + bytes(997))], 1)
    assert (line.up, line.down, line.frames) == (20, 1000, 2)
    assert line.uart == pytest.approx((22 + 1005) * 10 / 3e6)
    assert line.gigabit == pytest.approx((38 + 48 + 38 + 1028) * 8e-9)
