"""A long soak of the row mover: random moves, refused and faulty ones among them, until so many
rows have arrived, the RTL behind rough memory against the golden model.

Of every round all completions, registers and bytes of memory are compared, and the memory's ports
check the AXI rules on every beat. Tables and buffers end where memory answers with an error, or
refuses to be written; see `setup`. A session draws them, and how the memory behaves, from its seed:

    python -m hotrow_sim.testing.fuzz.soak --rows 1000000
    python -m hotrow_sim.testing.fuzz.soak --card wide --seed 17 --rows 1

The second command repeats one session; a failure prints its card and seed.
"""

import argparse
import sys
from dataclasses import dataclass, replace

import numpy as np
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import QUEUES, Opcode, Status

from ...memory import Behaviour
from ...model import open_transport as open_model
from .commands import CommandSource
from .player import differences, play
from .rounds import Round
from .setup import FuzzHost, make_setup

ROUNDS, RINGS_LOG2 = 40, 4  # of a session; commands that a ring holds
MALFORMED = 0.1
MOVES = ("gather", "gather", "gather", "scatter", "scatter", "scatter", "copy", "fill")
TINY = preset("tiny")
WIDE = replace(TINY, name="wide", bus_bytes=64, row_ports=4, outstanding=16, directory_sets=256,
               miss_entries=512, row_bytes=4096)
CARDS = (TINY, TINY, TINY, WIDE)  # which simulates more slowly
SHOWN = 20  # differences


class LongLists(CommandSource):
    """Commands of which most of the time is spent on rows."""

    counts = (1, 7, 60, 200, 300)


class Mismatch(AssertionError):
    """RTL and model differ, or an AXI rule was broken; the message names the session's seed."""


@dataclass
class Tally:
    """What a soak met: `sessions`, `commands`, `rows` that arrived, `bytes` of COPY and FILL,
    `cycles` of the device, commands by `status`, `bursts` of the row ports."""

    sessions: int = 0
    commands: int = 0
    rows: int = 0
    bytes: int = 0
    cycles: int = 0
    bursts: int = 0
    status: dict = None

    def count(self, completions):
        self.status = self.status or {}
        for done in completions:
            self.commands += 1
            name = Status(done["status"]).name
            self.status[name] = self.status.get(name, 0) + 1
            if done["opcode"] in (Opcode.GATHER, Opcode.SCATTER):
                self.rows += done["entries"]
            elif done["opcode"] in (Opcode.COPY, Opcode.FILL):
                self.bytes += done["bytes"]


def soak(rows, seed=0, rounds=ROUNDS, cards=CARDS, open_device=None, say=lambda text: None):
    """Run sessions until so many rows have been moved.

    Parameters
    ----------
    rows : int
    seed : int
        Of the first session; the next has the next one.
    rounds : int
        Of a session, each a ring of commands at most.
    cards : sequence of Config
        The seed of a session chooses.
    open_device : callable, optional
        Given config and behaviours by port; by default the Verilated device.
    say : callable
        Given a line after every session.

    Returns
    -------
    Tally

    Raises
    ------
    Mismatch
    """
    if open_device is None:
        from ...verilated.transport import Device as open_device

    tally = Tally()
    while tally.rows < rows:
        session(seed, rounds, cards, open_device, tally)
        say(f"seed {seed}: {tally.rows} rows so far, {tally.commands} commands, "
            f"{tally.cycles} cycles")
        seed += 1
    return tally


def session(seed, rounds, cards, open_device, tally):
    """Play the rounds of one seed on the device and on the model; add them to the tally."""
    from ...verilated.transport import port_names

    rng = np.random.default_rng([seed, 1])
    config = cards[seed % len(cards)]
    behaviours = {name: _rough(rng) for name in port_names(config)}
    setup = make_setup(rng, config)
    device = open_device(config, behaviours)
    hosts = [FuzzHost(transport, setup, RINGS_LOG2)
             for transport in (open_model(config=config), device)]
    for number in range(rounds):
        drawn = _round(rng, config, setup.tables)
        model, rtl = (play(host, drawn) for host in hosts)
        unequal = differences(model, rtl) + device.violations()
        if unequal:
            raise Mismatch(
                f"seed {seed}, card {config.name}, round {number}: model and RTL differ, or an AXI "
                "rule was broken:\n" + "\n".join(unequal[:SHOWN]) +
                f"\nrun it again: python -m hotrow_sim.testing.fuzz.soak --card {config.name} "
                f"--seed {seed} --rows 1")
        tally.count(rtl.completions["move"])
    tally.sessions += 1
    tally.cycles += device.cycles
    tally.bursts += sum(device.statistics(name).bursts for name in device.ports
                        if name.startswith("row"))
    device.close()


def _rough(rng):
    """How a port behaves: stalls on all its channels, answers in any order, beats interleaved."""
    return Behaviour(
        latency=int(rng.choice([1, 3, 9, 30])), jitter=int(rng.choice([0, 5, 40])),
        outstanding=int(rng.choice([0, 0, 0, 2])), out_of_order=True,
        interleave=bool(rng.integers(2)),
        **{f"stall_{channel}": float(rng.choice([0, 0.1, 0.3]))
           for channel in ("address", "data", "response")},
        seed=int(rng.integers(1 << 32)))


def _round(rng, config, tables):
    """A ring of moves at most."""
    source = LongLists(rng, config, tables)
    moves = []
    while len(moves) < 1 << RINGS_LOG2 and source.room():
        operands = getattr(source, str(rng.choice(MOVES)))()
        moves.append(source.finish(
            source.malformed(operands) if rng.random() < MALFORMED else operands))
    no = dict.fromkeys(QUEUES, False)
    return Round(source.lists, {"lookup": [], "move": moves}, no, no, bool(rng.random() < 0.05), [])


def main(arguments=None):
    """Run from the command line; 1 where model and RTL differ."""
    parser = argparse.ArgumentParser(prog="python -m hotrow_sim.testing.fuzz.soak",
                                     description=__doc__.split(":")[0] + ".")
    parser.add_argument("--rows", type=int, default=1_000_000, help="to be moved, at least")
    parser.add_argument("--seed", type=int, default=0, help="of the first session")
    parser.add_argument("--card", choices=[card.name for card in (TINY, WIDE)],
                        help="default all of them by turns")
    options = parser.parse_args(arguments)
    cards = [card for card in CARDS if options.card in (None, card.name)]
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    try:
        print(soak(options.rows, options.seed, cards=cards, say=say))
    except Mismatch as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
