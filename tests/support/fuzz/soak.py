"""Soak of the row mover: random moves through rough memory, the RTL against the golden model.

Some moves are refused or fault: tables and buffers end where memory answers with an error or
rejects writes (see `setup`). After every round all completions, registers and bytes of memory must
be equal, and the memory ports check the AXI rules on every beat. A card "4x8" has 4 bag units on 8
row ports, moves mostly POOL and UPDATE, and is at times reset amid them. A session draws its setup
and the behaviour of the memory from its seed:

    python -m tests.support.fuzz.soak --rows 1000000
    python -m tests.support.fuzz.soak --card wide --seed 17 --rows 1

The second command repeats one session; a failure prints its card and seed.
"""

import sys
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import QUEUES, Opcode, Status
from hotrow_sim.memory import Behaviour
from hotrow_sim.model import open_transport as open_model

from .commands import CommandSource
from .player import differences, play, reset_amid
from .rounds import Round
from .sessions import Mismatch, command_line, run_sessions
from .setup import FuzzHost, make_setup

ROUNDS, RINGS_LOG2 = 40, 4  # rounds of a session, and log2 of the commands in a ring
MALFORMED = 0.1
MOVES = ("gather", "gather", "gather", "scatter", "scatter", "scatter", "copy", "fill")
BAG_MOVES = (*MOVES[2:4], *3 * ("pool", "update"))  # of a card of BAG_CARDS
TINY = preset("tiny")
WIDE = replace(TINY, name="wide", bus_bytes=64, row_ports=4, outstanding=16, directory_sets=256,
               miss_entries=512, row_bytes=4096)
BAG_CARDS = [replace(TINY, name=f"{units}x{ports}", row_ports=ports, bag_units=units,
                     arithmetic_lanes=max(1, 4 // units), outstanding=16, row_bytes=128,
                     lookup_lanes=1, lane_banks=1, planner=False)
             for ports in (1, 2, 4, 8) for units in (1, 2, 4, 8) if units <= ports]
CARDS = {card.name: card for card in (TINY, WIDE, preset("ecp5"), *BAG_CARDS)}
TINY_SHARE = 3  # of 4 sessions; the wide card simulates more slowly
RESETS, MOST_CYCLES = 0.15, 3000  # rounds with a reset amid commands, and cycles before it
SHOWN = 20  # differences


class LongLists(CommandSource):
    """Commands with long lists of rows."""

    counts = (1, 7, 60, 200, 300)


class BagLists(CommandSource):
    """Commands of bags, mostly of few rows, and some moves of few rows."""

    counts = (1, 7, 60)
    lengths, gradients, long_bags = (0, 1, 1, 2, 2, 3, 5, 9), (1, 1, 2, 3, 9), 0.02


@dataclass
class Tally:
    """Totals: `sessions`, `commands`, `rows` moved or computed, `bytes` of COPY and FILL, `cycles`
    of the device, `bursts` of the row ports, `resets` amid commands, commands by `status`."""

    sessions: int = 0
    commands: int = 0
    rows: int = 0
    bytes: int = 0
    cycles: int = 0
    bursts: int = 0
    resets: int = 0
    status: dict = field(default_factory=dict)

    def count(self, completions):
        for done in completions:
            self.commands += 1
            name = Status(done["status"]).name
            self.status[name] = self.status.get(name, 0) + 1
            if done["opcode"] in (Opcode.GATHER, Opcode.SCATTER, Opcode.POOL, Opcode.UPDATE):
                self.rows += done["entries"]
            elif done["opcode"] in (Opcode.COPY, Opcode.FILL):
                self.bytes += done["bytes"]


def soak(rows, seed=0, rounds=ROUNDS, card=None, open_device=None, say=lambda text: None) -> Tally:
    """Run sessions until `rows` rows have been moved.

    Parameters
    ----------
    rows : int
    seed : int
        Of the first session.
    rounds : int
        Of a session; a round is at most a ring of commands.
    card : str, optional
        One of `CARDS`; by default the seed of a session selects tiny or wide.
    open_device : callable, optional
        Called with `config` and `behaviour`, by port; default the Verilated device.
    say : callable
        Receives a line after every session.

    Raises
    ------
    Mismatch
    """
    if open_device is None:
        from hotrow_sim.verilated.transport import open_transport as open_device

    return run_sessions(partial(_session, rounds, card, open_device), Tally(), "rows", rows, seed,
                        say)


def _session(rounds, card, open_device, seed, tally):
    """Play the rounds of one seed on the device and on the model."""
    rng = np.random.default_rng([seed, 1])
    config = CARDS[card] if card else (TINY if seed % 4 < TINY_SHARE else WIDE)
    behaviours = rough_memory(rng, config)
    setup = make_setup(rng, config)
    device = open_device(config=config, behaviour=behaviours)
    hosts = [FuzzHost(transport, setup, RINGS_LOG2)
             for transport in (open_model(config=config), device)]
    for number in range(rounds):
        drawn = _round(rng, config, setup.tables)
        device.restart_trace()
        if config in BAG_CARDS and rng.random() < RESETS:
            reset_amid(*hosts, _round(rng, config, setup.tables), int(rng.integers(MOST_CYCLES)))
            tally.resets += 1
        model, rtl = (play(host, drawn) for host in hosts)
        unequal = differences(model, rtl) + device.violations()
        if unequal:
            device.close()
            raise Mismatch(
                "soak", {"card": config.name, "seed": seed, "rows": 1},
                f"round {number}: model and RTL differ, or an AXI rule was broken:\n" +
                "\n".join(unequal[:SHOWN]))
        tally.count(rtl.completions["move"])
    tally.sessions += 1
    tally.cycles += device.cycles
    tally.bursts += sum(device.statistics(name).bursts for name in device.ports
                        if name.startswith("row"))
    device.close()


def rough_memory(rng, config):
    """Memory by name of the port: stalls on all channels, reordered and interleaved responses."""
    from hotrow_sim.verilated.transport import port_names

    return {name: _rough(rng) for name in port_names(config)}


def _rough(rng):
    return Behaviour(
        latency=int(rng.choice([1, 3, 9, 30])), jitter=int(rng.choice([0, 5, 40])),
        outstanding=int(rng.choice([0, 0, 0, 2])), out_of_order=True,
        interleave=bool(rng.integers(2)),
        **{f"stall_{channel}": float(rng.choice([0, 0.1, 0.3]))
           for channel in ("address", "data", "response")},
        seed=int(rng.integers(1 << 32)))


def _round(rng, config, tables):
    """At most a ring of moves."""
    lists, kinds = (BagLists, BAG_MOVES) if config in BAG_CARDS else (LongLists, MOVES)
    source, moves = lists(rng, config, tables), []
    while len(moves) < 1 << RINGS_LOG2 and source.room():
        operands = getattr(source, str(rng.choice(kinds)))()
        moves.append(source.finish(
            source.malformed(operands) if rng.random() < MALFORMED else operands))
    no = dict.fromkeys(QUEUES, False)
    return Round(source.lists, {"lookup": [], "move": moves}, no, no, bool(rng.random() < 0.05), [])


main = partial(command_line, soak, "soak", "rows", 1_000_000, __doc__, card=list(CARDS))

if __name__ == "__main__":
    sys.exit(main())
