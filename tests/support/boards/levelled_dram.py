"""Command line of the generator of a controller whose simulated PHY must be levelled."""

import json
from pathlib import Path


def levelled_program(windows) -> list:
    """Arguments of the Python interpreter; see `hotrow_rtl.emit.litex_generator.generate`.

    Parameters
    ----------
    windows : sequence
        Per byte lane (bitslip, first delay, delays) of correct reads, or None if no burst is
        detected.
    """
    return [Path(__file__).with_name("levelled_dram_generator.py"), json.dumps(list(windows))]
