"""Flipped bits in the directory of the Verilated card: no result is wrong in silence.

A random process in each memory of the directory flips single bits; a way holds at most one at a
time. Batches are planned and marked at random. A command that ends with OK must agree with the
golden model in every byte; after one that ends with PARITY, REMOVE with ALL empties the directory
of both:

    python -m tests.support.fuzz.flips --flips 100000
"""

import argparse
import os
import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hotrow_rtl.contract.encoding import AllFlag, Opcode, PlanFlag, PlanPolicy, Status
from hotrow_rtl.lookup.directory.payloads import slot_way
from hotrow_rtl.primitives.ram import RAM_VERILOG
from hotrow_sim.model import open_transport as open_model

from .changed_verilog import open_changed, other_memories
from .plan_soak import CARDS, PlanHost
from .sessions import Mismatch, run_sessions

BATCHES = 200  # of a session
CYCLES = 16_000  # from one flip of a memory to its next, in the mean
FLIPS = "flips.txt"  # a line for each flip, in the working directory
_CLOCKED = "      always @(posedge clk) begin\n"
_FLIPPING = """\
      reg [PARTS-1:0] flipped [DEPTH-1:0];
      integer file, row, way, bit_;
      initial begin
        for (row = 0; row < DEPTH; row = row + 1) flipped[row] = 0;
        if (PARTS == {ways} && WIDTH == {width}) file = $fopen("{file}", "a");
      end
      always @(posedge clk) if (PARTS == {ways} && WIDTH == {width}) begin
        for (way = 0; way < PARTS; way = way + 1)
          if (write_enable[way]) flipped[write_address][way] <= 0;
        row = $urandom % DEPTH;
        bit_ = $urandom % WIDTH;
        if ($urandom % {cycles} == 0 && !flipped[row][bit_ / PART] && write_enable == 0) begin
          rows[row][bit_] <= ~rows[row][bit_];
          flipped[row][bit_ / PART] <= 1;
          $fwrite(file, "%0d %0d\\n", row, bit_);
          $fflush(file);
        end
      end
"""


@dataclass
class Tally:
    """Totals: `sessions`, `commands`, `flips`, commands that ended with PARITY (`refused`)."""

    sessions: int = 0
    commands: int = 0
    flips: int = 0
    refused: int = 0


def flipping_memories(config, verilog):
    """The Verilog of a card whose directory's memories flip bits."""
    exact, loose = RAM_VERILOG.split(": loose")
    ways = config.directory_ways
    flipping = _FLIPPING.format(ways=ways, width=ways * slot_way(config).size, file=FLIPS,
                                cycles=CYCLES)
    return other_memories(
        verilog, f"{exact}: loose{loose.replace(_CLOCKED, flipping + _CLOCKED)}")


def open_flipping(config, change=lambda verilog: verilog, **options):
    """A Verilated device whose directory flips bits; `change` changes its Verilog."""
    return open_changed(lambda verilog: change(flipping_memories(config, verilog)), config=config,
                        **options)


def soak(flips, seed=0, card="tiny", open_device=open_flipping, say=lambda text: None) -> Tally:
    """Run sessions until `flips` bits have been flipped.

    Raises
    ------
    Mismatch
    """
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        return run_sessions(lambda seed, tally: _Session(card, seed, open_device, tally).run(),
                            Tally(), "flips", flips, seed, say)


class _Session:
    """Random batches of one seed on device and model."""

    def __init__(self, card, seed, open_device, tally):
        self.card, self.seed, self.tally = card, seed, tally
        self.rng = rng = np.random.default_rng([seed, 23])
        config = CARDS[card]
        self.rows = [max(2, int(config.slots * share)) for share in rng.random(3) * 2]
        self.policy = PlanFlag.POLICY_LOW * PlanPolicy(int(rng.integers(len(PlanPolicy))))
        self.device = open_device(config=config)
        self.hosts = [PlanHost(transport, self.rows)
                      for transport in (open_model(config=config), self.device)]

    def run(self):
        rng, number = self.rng, 0
        for _ in range(BATCHES):
            ids = (np.array(self.rows) * rng.random((int(rng.integers(1, 40)), 3))).astype(int)
            marks = rng.random() < 0.2
            refused = self._both(Opcode.MARK if marks else Opcode.PLAN, number, ids)
            if refused:
                for host in self.hosts:
                    host.run("lookup", opcode=Opcode.REMOVE, flags=int(AllFlag.ALL))
                number = 0
            elif not marks:
                for host in self.hosts:
                    host.write("PLAN_RETIRED", number)
                number += 1
        self.tally.sessions += 1
        self.device.close()
        self.tally.flips += Path(FLIPS).read_text().count("\n")
        os.truncate(FLIPS, 0)

    def _both(self, opcode, number, ids):
        """Run a command on both; whether the device refused it."""
        (expected, _), (found, _) = (
            host.batch(opcode, number, ids, self.policy * (opcode is Opcode.PLAN))
            for host in self.hosts)
        self.tally.commands += 1
        self.tally.refused += (refused := found["status"] == Status.PARITY)
        model, device = self.hosts
        if refused:
            for name, octets in model.results.items():
                device.results[name][:] = octets
        elif expected != found or not all(
                (octets == device.results[name]).all() for name, octets in model.results.items()):
            self.device.close()
            raise Mismatch("flips", {"card": self.card, "seed": self.seed, "flips": 1},
                           f"{opcode.name} of batch {number}: {expected}, {found}")
        return refused


def main(arguments=None):
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.flips",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=10_000, help="least total of all sessions")
    parser.add_argument("--seed", type=int, default=0, help="of the first session")
    parser.add_argument("--card", choices=CARDS, default="tiny")
    options = parser.parse_args(arguments)
    try:
        print(soak(options.flips, options.seed, options.card,
                   say=lambda text: print(text, file=sys.stderr, flush=True)))
    except Mismatch as wrong:
        print(f"{wrong.what}\nrepeat by: {wrong.command}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
