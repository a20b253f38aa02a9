"""The `hotrow` command: finds its subcommands by entry point and prints errors on one line."""

import argparse
import errno
import os
import re
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from itertools import takewhile
from typing import Any, NoReturn, TypeAlias

from .. import __version__
from ..contract.errors import Error
from ..contract.extras import DISTRIBUTION, advice

GROUP = "hotrow.commands"
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
REMEDIES = {  # of errors of the operating system that name a file
    errno.ENOENT: "check the name", errno.EPERM: "name another",
    errno.EACCES: "change its permissions, or name another",
    errno.EROFS: "name another place", errno.EEXIST: "it is a file: name a folder",
    errno.ENOTDIR: "a part of it is a file: name a folder", errno.EISDIR: "name a file in it",
    errno.ENOSPC: "free some space, or name another place"}
TRACEBACK = "HOTROW_TRACEBACK"  # environment variable: show errors with their traceback


class Help(argparse.HelpFormatter):
    """Shows the default of every option."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if (not action.option_strings or isinstance(default, bool) or "default" in text
                or default in (None, (), argparse.SUPPRESS)):
            return text
        if isinstance(default, list | tuple):
            default = ",".join(map(str, default))
        return f"{text} (default: {str(default).replace('%', '%%')})"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and whose help shows defaults."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **{"formatter_class": Help} | named)

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        close = wrong and get_close_matches(wrong[1], re.findall(r"'(.*?)'", wrong[2]), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        self.exit(USER_ERROR, f"hotrow: error: {message}{hint} (see {self.prog} --help)\n")


Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # to which a command adds its own


def commands() -> dict[str, EntryPoint]:
    """The entry point of every subcommand that is installed, by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def main(arguments: Iterable[str] | None = None) -> int:
    """Run one command line; return the exit code.

    0 for success, 1 if a check of the command failed, 2 for an error of the user or too little
    memory, 130 after an interrupt, 141 if the reader of standard output has gone.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as finished:  # argparse: --help, --version, wrong arguments
        return finished.code if isinstance(finished.code, int) else int(finished.code is not None)
    except KeyboardInterrupt:
        warnings.simplefilter("ignore")  # of what it left undone, such as hardware half elaborated
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (Error, ValueError, OSError, MemoryError, ModuleNotFoundError, RuntimeError) as error:
        unforeseen = isinstance(error, RuntimeError) and not _lacks_memory(error)
        if unforeseen or os.environ.get(TRACEBACK):
            raise
        return _complain(error)


def _run(arguments: list[str]) -> int:
    found = commands()
    parser = Parser(prog="hotrow", description="Open FPGA accelerator for training recommendation "
                    "models: simulate it, train with it, generate its Verilog.")
    parser.add_argument("--version", action="version", version=f"hotrow {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    completing = "_ARGCOMPLETE" in os.environ  # set by the shell, with the line typed so far
    if completing:
        arguments = os.environ.get("COMP_LINE", "").split()[1:]
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    # Only the chosen command is imported; for help, all of them.
    for name in [chosen] if chosen is not None and chosen in found else found:
        try:
            found[name].load()(subparsers)
        except ModuleNotFoundError as missing:
            if name == chosen:
                return _complain(f"the command {name!r} {advice(missing)}")
            subparsers.add_parser(name, help=advice(missing))
    if completing:
        from argcomplete import autocomplete  # of the extra 'completion'

        autocomplete(parser)  # which ends the process
    if arguments and arguments[0][:1] == "-" and arguments[0] not in ("-h", "--help", "--version"):
        parser.error(f"{arguments[0]} is no option of hotrow itself: options follow the command")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        named = list(takewhile(lambda word: not word.startswith("-"), arguments))
        parser.prog = " ".join(("hotrow", *named[:1 + (chosen == "bench")]))
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if chosen is None:
        parser.print_help()
        return 0
    return options.run(options) or 0


def _lacks_memory(error: object) -> bool:
    """Whether an allocation failed; PyTorch has no exception of its own for that."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def _complain(error: object) -> int:
    text = advice(error) if isinstance(error, ModuleNotFoundError) else str(error)
    if isinstance(error, OSError) and error.filename and (help := REMEDIES.get(error.errno or 0)):
        text = f"{error.filename}: {error.strerror}; {help}"
    if _lacks_memory(error):
        text = (f"not enough memory ({text}): a table has a row for every id up to the largest of "
                f"its column; number the ids from 0, hash them with --hash-rows N, let hotrow "
                "train take any id with --any-ids ROWS, or choose shorter rows or fewer tables")
    text = " ".join(text.split()) or type(error).__name__
    print(f"hotrow: error: {text}", file=sys.stderr)
    return USER_ERROR


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return __version__


if __name__ == "__main__":
    raise SystemExit(main())
