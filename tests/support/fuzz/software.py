"""The card in software, with what a fuzzer asks of the Verilated device."""

import time

from hotrow.transports.cpu import CpuTransport
from hotrow_sim.memory import Statistics

SECONDS_PER_CYCLE = 1e-6  # that `run` waits


class SoftwareCard(CpuTransport):
    """Plays a simulated device; it has no cycles, no memory ports and no waveform.

    Parameters
    ----------
    config : Config
    behaviour : optional
        Ignored.
    """

    ports, cycles = (), 0

    def __init__(self, config, behaviour=None):
        super().__init__(config, threads=2)

    def run(self, cycles):
        """Let the card work for the time of some cycles."""
        time.sleep(cycles * SECONDS_PER_CYCLE)

    def restart_trace(self):
        """Nothing is recorded."""

    def violations(self):
        """A list without entries: there is no bus."""
        return []

    def statistics(self, name):
        """Of a port without traffic."""
        return Statistics()
