"""Every Python block of the documentation runs, and every `hotrow` line of it parses."""

import doctest
import importlib.util
import inspect
import re
import shlex
from functools import cache
from pathlib import Path

import hotrow
import pytest
from hotrow.command import cli
from hotrow.torch import HotEmbeddingBagCollection, TableConfig
from hotrow_rtl.units.catalog import UNITS

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "sw_driver"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(language):
    return [pytest.param(body, id=f"{page.stem}-{number}")
            for page in PAGES
            for number, (kind, body) in enumerate(BLOCK.findall(page.read_text()))
            if kind == language]


def marked(case):
    """Blocks that open the Verilated device build it first; one that records signals is built by
    no other test."""
    source = case.values[0]
    marks = [mark for mark, text in ((pytest.mark.slow, 'open("sim"'), (pytest.mark.long, "trace="))
             if text in source]
    return pytest.param(*case.values, id=case.id, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("source", [marked(case) for case in blocks("python")])
def test_python_block_runs(source, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "documentation", "exec"), {})
    assert capsys.readouterr().out, "each example ends by showing something"


@pytest.mark.parametrize("source", blocks("sh"))
def test_command_lines_parse(source):
    lines = [shlex.split(line, comments=True) for line in source.splitlines()
             if line.startswith("hotrow ")]
    assert lines or "make" in source
    for _, command, *options in lines:
        parser = cli.Parser(prog="hotrow")
        cli.commands()[command].load()(parser.add_subparsers())
        assert callable(parser.parse_args([command, *options]).run)


COMMAND = r"(?:hotrow|python -m|make|pytest) "
OTHERS = re.compile(rf"`({COMMAND}[^`]*)`|^    ({COMMAND}.*)", re.M)


def commands_in(page):
    """Commands in the text of a page and in indented lines."""
    found = OTHERS.finditer(BLOCK.sub("", page.read_text()))
    return [shlex.split((each[1] or each[2]).replace("\n", " "), comments=True) for each in found]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_commands_in_the_text_exist(page):
    """With the options that they name; modules, targets and files are there."""
    makefile = (ROOT / "Makefile").read_text()
    for program, name, *words in commands_in(page):
        if program == "hotrow":
            missing = {each for each in words if each[0] == "-"} - options_of(name)
        elif program == "python":
            missing = {each for each in words[:1] if not importlib.util.find_spec(each)}
        elif program == "make":
            missing = {each for each in (name, *words) if each.islower()
                       and each != "mine" and f"\n{each}:" not in makefile}
        else:
            missing = {each for each in (name, *words)
                       if "/" in each and not (ROOT / each).exists()}
        assert not missing, f"{' '.join([program, name, *words])}: no {', '.join(missing)}"


@cache
def options_of(command):
    """Those of a command of hotrow and of the commands below it."""
    parser = cli.Parser(prog="hotrow")
    cli.commands()[command].load()(parser.add_subparsers())
    found, parsers = set(), [parser]
    for each in parsers:
        for action in each._actions:
            found.update(action.option_strings)
            parsers += action.choices.values() if hasattr(action, "add_parser") else ()
    return found


NEEDS = ("demo", "--preset alveo", "--calibrate", "build", "flash", "clock", "FILE", "hotset")
FILES = ("clicks.tsv.gz", "clicks.csv", "log.tsv.gz", "criteo:")


def runnable():
    """Lines that need no file of the user's, no board, and minutes at most. `demo` has a test of
    its own."""
    pages = ("README", "index", "explorer", "boards", "training")
    lines = {line: None for case in blocks("sh") if case.id.partition("-")[0] in pages
             for line in case.values[0].splitlines() if line.startswith("hotrow ")
             and not any(word in line for word in (*NEEDS, *FILES))}
    return list(lines)


@pytest.mark.long
@pytest.mark.parametrize("line", runnable())
def test_commands_run(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(line, comments=True)[1:]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_site_has_every_page():
    listed = re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_workflow_calls_targets_of_the_makefile():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    targets = re.search(r"target: \[(.*)\]", text)[1].split(", ")
    targets += re.findall(r"target: (\w+),", text)
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(f"\n{target}:" in makefile for target in targets)


def test_the_release_has_what_its_jobs_need():
    """The site is where `make docs` puts it, a job waits for jobs that exist, and addresses are
    those of actions alone."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    site = re.search(r"site_dir: (\S+)", (ROOT / "mkdocs.yml").read_text())[1]
    assert f"{{path: {site}}}" in text and "make docs" in text and "://" not in text
    jobs = re.findall(r"^  (\w+):$", text[text.index("jobs:"):], re.M)
    needed = {name for names in re.findall(r"needs: \[(.*)\]", text) for name in names.split(", ")}
    assert {"wheels", "sdist", "site", "check", "publish"} == {*jobs} and needed < {*jobs}
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version), "the job `check` compares it with the tag"
    for file, line in (("CITATION.cff", f"version: {version}"), ("CHANGELOG.md", f"## {version} ")):
        assert f"\n{line}" in (ROOT / file).read_text(), f"{file} has another version"


@pytest.mark.parametrize("path", [
    each.relative_to(DRIVER).with_suffix("").as_posix().replace("/", ".")
    for each in sorted((DRIVER / "hotrow").rglob("*.py")) if ">>>" in each.read_text()])
def test_examples_in_docstrings_give_what_they_say(path):
    done = doctest.testmod(importlib.import_module(path))
    assert done.attempted and not done.failed


def referenced():
    """The objects that the reference shows."""
    found = []
    for name in re.findall(r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text(), re.M):
        module, _, last = name.rpartition(".")
        found.append(getattr(importlib.import_module(module), last))
    return found


@pytest.mark.parametrize("package", ["hotrow", "hotrow.torch", "hotrow.ids"])
def test_the_reference_shows_every_public_name(package):
    module, shown = importlib.import_module(package), referenced()
    public = {name: getattr(module, name) for name in module.__all__}
    missing = [name for name, value in public.items()
               if not any(value is each for each in shown) and not isinstance(value, int)]
    assert not missing


def test_the_reference_shows_every_part_of_a_collection():
    shown, collection = referenced(), HotEmbeddingBagCollection(
        [TableConfig("a", 5, 4)], mode="resident")
    parts = {name: type(part) for name, part in vars(collection).items() if name[0] != "_"}
    assert {"batches", "lifecycle", "saved", "store"} <= set(parts)
    missing = [name for name, kind in parts.items() if kind.__module__.startswith("hotrow.")
               and not any(each in shown for each in kind.__mro__)]
    assert not missing


def test_the_reference_shows_every_call_of_a_device():
    shown = {each.__qualname__ for each in referenced() if isinstance(each, type)}
    calls = {name: inspect.unwrap(call) for name, call in vars(hotrow.Device).items()
             if callable(call) and not name.startswith("_")}
    assert {"observe", "harvest", "plan", "gather", "pool", "update_async"} <= set(calls)
    missing = [name for name, call in calls.items()
               if call.__qualname__.partition(".")[0] not in shown or not call.__doc__]
    assert not missing


def test_the_pages_show_every_unit():
    shown = {f"{each.__module__}:{each.__qualname__}" for each in referenced()
             if isinstance(each, type)}
    assert {each.component for each in UNITS.values()} <= shown
    page = (ROOT / "docs" / "unit_in_your_design.md").read_text()
    rows = re.findall(r"^\| \[`(\w+)`\]\(images/timing_(\w+)\.svg\) \| \w+ .* \| [`\w]",
                      page, re.M)
    assert rows == [(name, name) for name in UNITS]
