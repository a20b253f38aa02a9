"""The `hotrow` command: subcommands by entry point, errors in one line, exit codes."""

import json
import os
import subprocess
import sys
import warnings

import hotrow
import pytest
from hotrow.command import cli


class EntryPoint:
    """What importlib.metadata gives, for a function of this file."""

    def __init__(self, name, function):
        self.name, self.function, self.loads = name, function, 0

    def load(self):
        self.loads += 1
        if isinstance(self.function, Exception):
            raise self.function
        return self.function


def subcommand(name, run):
    def add(subparsers):
        parser = subparsers.add_parser(name, help=f"help of {name}")
        parser.add_argument("--count", type=int, default=0)
        parser.set_defaults(run=run)
    return EntryPoint(name, add)


@pytest.fixture
def install(monkeypatch):
    def install(*entries):
        monkeypatch.setattr(cli, "commands", lambda: {entry.name: entry for entry in entries})
    return install


def fails(error):
    def run(options):
        raise error
    return run


@pytest.mark.parametrize("code", [None, 0, 1, 3])
def test_the_command_decides_the_exit_code(install, code):
    install(subcommand("go", lambda options: code))
    assert cli.main(["go"]) == (code or 0)


def test_only_the_chosen_command_is_imported(install):
    chosen, other = subcommand("go", lambda options: options.count), subcommand("no", None)
    install(chosen, other)
    assert cli.main(["go", "--count", "4"]) == 4
    assert (chosen.loads, other.loads) == (1, 0)


@pytest.mark.parametrize("error, text", [
    (hotrow.BatchError("id 7 is out\nof range"), "id 7 is out of range"),
    (ValueError("unknown preset 'x'"), "unknown preset 'x'"),
    (FileNotFoundError(2, "No such file", "a.tsv"), "a.tsv: No such file; check the name"),
    (PermissionError(13, "Permission denied", "a.tsv"),
     "a.tsv: Permission denied; change its permissions, or name another"),
    (FileExistsError(17, "File exists", "a"), "a: File exists; it is a file: name a folder"),
    (OSError(28, "No space left on device", "a.pt"),
     "a.pt: No space left on device; free some space, or name another place"),
    (ModuleNotFoundError("No module named 'polars'", name="polars"),
     "needs the module 'polars' of the extra 'torch', which is not installed: "
     "pip install 'hotrow[torch]'"),
    (MemoryError("256 GB"), "not enough memory (256 GB): a table has a row for every id up to the "
     "largest of its column; number the ids from 0, hash them with --hash-rows N, let hotrow train "
     "take any id with --any-ids ROWS, or choose shorter rows or fewer tables"),
    (RuntimeError("alloc: can't allocate memory"), "not enough memory (alloc: can't allocate "
     "memory): a table has a row for every id up to the largest of its column; number the ids from "
     "0, hash them with --hash-rows N, let hotrow train take any id with --any-ids ROWS, or choose "
     "shorter rows or fewer tables"),
])
def test_errors_are_one_line(install, capsys, error, text):
    install(subcommand("go", fails(error)))
    assert cli.main(["go"]) == 2
    assert capsys.readouterr() == ("", f"hotrow: error: {text}\n")


@pytest.mark.parametrize("defect", [KeyError, RuntimeError])
def test_a_defect_keeps_its_traceback(install, defect):
    install(subcommand("go", fails(defect("x"))))
    with pytest.raises(defect):
        cli.main(["go"])


def test_traceback_on_request(install, monkeypatch):
    monkeypatch.setenv("HOTROW_TRACEBACK", "1")
    install(subcommand("go", fails(hotrow.BatchError("x"))))
    with pytest.raises(hotrow.BatchError):
        cli.main(["go"])


@pytest.mark.parametrize("arguments, text", [
    (["go", "--wrong"], "unrecognized arguments: --wrong (see hotrow go --help)"),
    (["goo"], "did you mean 'go'?"), (["gone"], "invalid choice: 'gone' (choose from"),
    (["go", "--count", "x"], "argument --count: invalid int value: 'x' (see hotrow go --help)"),
    (["go", "--what"], "unrecognized arguments: --what"),
    (["--count", "4", "go"], "--count is no option of hotrow itself: options follow the command"),
])
def test_wrong_arguments(install, capsys, arguments, text):
    install(subcommand("go", lambda options: 0))
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("hotrow: error: ") and text in err and err.count("\n") == 1


def test_no_command_shows_the_help(install, capsys):
    install(subcommand("go", None))
    assert cli.main([]) == 0
    assert "help of go" in capsys.readouterr().out


def test_a_command_whose_extra_is_missing(install, capsys):
    missing = EntryPoint("train", ModuleNotFoundError("No module named 'torch'", name="torch"))
    install(subcommand("go", lambda options: 0), missing)
    assert cli.main(["train"]) == 2
    assert "'train' needs the module 'torch' of the extra 'torch'" in capsys.readouterr().err
    assert cli.main(["go"]) == 0
    assert cli.main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "help of go" in text and "pip install 'hotrow[torch]'" in text


def test_interrupt(install):
    install(subcommand("go", fails(KeyboardInterrupt())))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert cli.main(["go"]) == 130
        warnings.warn("hardware was not elaborated", stacklevel=1)
    assert not shown


def test_an_interrupt_while_the_program_loads(tmp_path):
    """Nothing but the program's own module is loaded before it can end without a traceback."""
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt")
    code = ("import sys; before = {*sys.modules}; import hotrow_program;"
            "print({*sys.modules} - before); sys.exit(hotrow_program.main())")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path},
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "{'hotrow_program'}\n", "")


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"hotrow {hotrow.__version__}\n"


def test_a_reader_that_goes_away():
    code = ("import sys; from hotrow.command import cli;"
            "cli._run = lambda arguments: print('x' * 100000) or 0;"
            "sys.exit(cli.main([]))")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--help"]])
def test_help(arguments, capsys):
    assert cli.main(arguments) == 0
    assert "doctor" in capsys.readouterr().out


@pytest.mark.slow
def test_the_installed_program():
    code = "import sys; from hotrow_program import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "doctor", "--json"],
                          capture_output=True, text=True)
    assert done.returncode in (0, 1) and json.loads(done.stdout)["found"]


@pytest.mark.slow
@pytest.mark.parametrize("line, found, missing", [
    ("hotrow be", {"bench"}, {"boards"}),
    ("hotrow bench end", {"end-to-end"}, {"observe"}),
    ("hotrow generate --for", {"--format"}, {"--preset"}),
    ("hotrow generate --format v", {"vivado"}, {"xrt"}),
])
def test_completion(line, found, missing, tmp_path):
    out = tmp_path / "completions"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)),
             "_ARGCOMPLETE_IFS": " ", "_ARGCOMPLETE_STDOUT_FILENAME": str(out)}
    done = subprocess.run([sys.executable, "-m", "hotrow.command.cli"], env=os.environ | asked,
                          capture_output=True, text=True)
    words = set(out.read_text().split())
    assert done.returncode == 0 and found <= words and not missing & words
