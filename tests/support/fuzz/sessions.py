"""Sessions of a soak, one per seed, until a target is reached; and their command line."""

import argparse
import resource
import sys
from functools import partial
from pathlib import Path

FIRST = 4  # sessions, which build every card between them: building leaves memory taken
GROWTH = 256 << 20  # bytes of resident memory by which later sessions may exceed the first


class Mismatch(AssertionError):
    """A session failed; the message has the command that repeats it.

    Parameters
    ----------
    name : str
        Of the soak's module in this package.
    options : dict of str to value
        Of the command line, for this session.
    what : str
        What was wrong.
    """

    def __init__(self, name, options, what):
        seed = options["seed"]
        choices = " ".join(f"--{option} {value}" for option, value in options.items())
        self.what = f"seed {seed}: {what}"
        self.command = f"python -m {__package__}.{name} {choices}"
        super().__init__(f"{self.what}\nrepeat, with a waveform of the round, by: {self.command} "
                         f"--waveform {name}-{seed}.vcd")


def run_sessions(session, tally, unit, target, seed=0, say=lambda text: None):
    """Call `session(seed, tally)` with consecutive seeds until `tally.<unit>` reaches `target`;
    pass a line to `say` after every session; return `tally`.

    Raises
    ------
    MemoryError
        If the process grows by more than `GROWTH` after the first `FIRST` sessions.
    """
    ended, taken = 0, 0
    while getattr(tally, unit) < target:
        session(seed + ended, tally)
        say(f"seed {seed + ended}: {tally}")
        ended, resident = ended + 1, resident_bytes()
        if ended <= FIRST:
            taken = resident
        elif resident - taken > GROWTH:
            raise MemoryError(
                f"{ended} sessions: {resident >> 20} MB are resident, after the first {FIRST} "
                f"{taken >> 20} MB: expected at most {GROWTH >> 20} MB more")
    return tally


def resident_bytes():
    """Resident memory of this process, or 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else 0


def command_line(soak, name, unit, target, doc, arguments=None, **choices):
    """Run `soak(target, seed, say=, **choices)` from the command line; 1 after a mismatch.

    Parameters
    ----------
    soak : callable
    name : str
        Of its module in this package.
    unit : str
        Option for the target.
    target : int
        Default target.
    doc : str
    arguments : list of str, optional
    choices : dict of str to list of str
        Further options and their values.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.{name}",
                                     description=doc.split(":")[0] + ".")
    parser.add_argument(f"--{unit}", type=int, default=target, help="least total of all sessions")
    parser.add_argument("--seed", type=int, default=0, help="of the first session")
    parser.add_argument("--transport", choices=("sim", "garbage", "cpu"), default="sim",
                        help="the Verilated card, the same with memories that start with garbage "
                             "and invert what collides, or the card in software")
    parser.add_argument("--waveform", help="file, .vcd, for the signals of the last round")
    for option, values in choices.items():
        parser.add_argument(f"--{option}", choices=values, help="default all")
    options = vars(parser.parse_args(arguments))
    trace, transport = options.pop("waveform"), options.pop("transport")
    if transport == "cpu":
        if trace:
            parser.error("--waveform records the Verilated card: leave out --transport cpu")
        from .software import SoftwareCard

        options["open_device"] = SoftwareCard
    elif transport == "garbage" or trace:
        from hotrow_sim.verilated.transport import open_transport

        from .garbage import open_garbage

        options["open_device"] = partial(
            open_garbage if transport == "garbage" else open_transport, trace=trace)
    try:
        print(soak(options.pop(unit), options.pop("seed"), **options,
                   say=lambda text: print(text, file=sys.stderr, flush=True)))
    except Mismatch as wrong:
        print(wrong if transport == "sim" else
              f"{wrong.what}\nrepeat by: {wrong.command} --transport {transport}", file=sys.stderr)
        return 1
    return 0
