"""Output of commands: JSON that every parser reads, tables that fit, quiet pipes, complete help."""

import argparse
import json

import pytest
from hotrow.command import cli, terminal
from rich.console import Console

NAN, INFINITE = float("nan"), float("inf")


def test_numbers_that_json_lacks_are_null(capsys):
    terminal.print_json({"a": NAN, "b": [1.5, {"c": -INFINITE}], "d": (INFINITE, 2)})
    out = capsys.readouterr().out
    assert json.loads(out, parse_constant=pytest.fail) == {"a": None, "b": [1.5, {"c": None}],
                                                           "d": [None, 2]}


@pytest.mark.parametrize("value, shown", [
    (9999.4, "9,999"), (10_000.0, "10,000"), (-10_000.0, "-10,000"), (0.12346, "0.1235"),
    (NAN, "-"), (None, "-"), ([], "none"), ([1000, 2.0], "1,000, 2")])
def test_figures(value, shown):
    assert terminal.text(value) == shown


@pytest.mark.slow
@pytest.mark.parametrize("columns, records", [(3, 4), (18, 1), (18, 7), (18, 30)])
def test_tables_fit_80_characters(capsys, monkeypatch, columns, records):
    monkeypatch.setenv("COLUMNS", "80")
    every = [{"name": f"record {at}"} | {f"figure_{number}": 1000 * at + number
                                         for number in range(columns - 1)}
             for at in range(records)]
    terminal.show({"total": 3, "several": every, "none": [], "some": [1, 2.5]}, "a title")
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for at in range(records):
        assert f"record {at}" in shown
        assert all(f"{1000 * at + number:,}" in shown for number in range(columns - 1))
    assert "figure 1" in shown and "none" in shown and "…" not in shown


def test_columns_that_do_not_fit_side_by_side(capsys):
    """Two records too wide for a row: each has a table of its own."""
    records = [{"name": each * 20, "value": 1, "of": "of a card"} for each in "ab"]
    terminal.show_records(Console(width=36), "title", records)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 36 and shown.count("title") == 2
    assert all(each["name"] in shown for each in records)


def test_records_may_lack_figures(capsys):
    terminal.show_records(Console(width=80), "title", [{"a": 1}, {"a": None, "b": NAN}])
    assert "-" in capsys.readouterr().out


def test_no_progress_where_standard_error_is_no_terminal(capsys):
    with terminal.Steps() as steps:
        steps.begin("loading")
        advance = steps.begin("training", 2)
        advance()
        advance("loss 0.5")
    assert capsys.readouterr() == ("", "")


def options():
    """(command, action) of every option of every command and benchmark."""
    def walk(name, parser):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for child, each in action.choices.items():
                    yield from walk(f"{name} {child}".strip(), each)
            else:
                yield name, action

    parser = cli.Parser(prog="hotrow")
    subparsers = parser.add_subparsers()
    for entry in cli.commands().values():
        entry.load()(subparsers)
    return list(walk("", parser))


OPTIONS = options()
SAME = {"--batch-size": "samples of a batch", "--hot-budget": "512MB", "-o": "folder",
        "--json": "one JSON object", "--ids": "id columns of a log", "--trace": "zipf:S[:rows]",
        "--hash-rows": "modulo N", "--rows": "rows of a table", "--hot-rows": "rows with a slot",
        "--seed": "of generated data", "--dim": "elements of", "--lr": "learning rate"}


def test_every_option_has_help_and_shows_its_default_and_choices():
    assert len(OPTIONS) > 150
    for command, action in OPTIONS:
        where = f"hotrow {command} {'/'.join(action.option_strings) or action.dest}"
        assert action.help, where
        text = cli.Help("hotrow")._get_help_string(action)
        shown = not action.option_strings or "default" in text or action.default in (
            None, False, (), argparse.SUPPRESS)
        assert shown, f"{where}: {text}"


@pytest.mark.parametrize("option", SAME)
def test_an_option_means_one_thing_everywhere(option):
    found = [(command, action) for command, action in OPTIONS if option in action.option_strings]
    assert len(found) > 1
    for command, action in found:
        assert SAME[option] in action.help, f"hotrow {command}: {action.help}"
