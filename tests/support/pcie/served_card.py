"""A process that serves a simulated card on a socket."""

import subprocess
import sys
import time
from contextlib import contextmanager

COMMAND = """\
import argparse, sys
from hotrow_sim.pcie.cli import card
parser = argparse.ArgumentParser()
card(parser.add_subparsers())
options = parser.parse_args(sys.argv[1:])
try:
    sys.exit(options.run(options))
except KeyboardInterrupt:
    pass
"""
PATIENCE = 900  # seconds; the first use builds the card


@contextmanager
def served_card(folder, preset):
    """The path of the socket of a card, and the process that serves it."""
    path = folder / "card.sock"
    process = subprocess.Popen([sys.executable, "-c", COMMAND, "card", "--socket", str(path),
                                "--preset", preset])
    try:
        deadline = time.monotonic() + PATIENCE
        while not path.is_socket():
            assert process.poll() is None and time.monotonic() < deadline, "the card is not served"
            time.sleep(0.05)
        yield path, process
    finally:
        process.kill()
        process.wait(60)
