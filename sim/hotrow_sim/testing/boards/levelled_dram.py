"""How to call the generator of a controller whose simulated PHY must be levelled."""

import json
from pathlib import Path


def levelled_program(windows) -> list:
    """Arguments of the Python interpreter; see `hotrow_rtl.emit.litex_generator.generate`.

    Parameters
    ----------
    windows : sequence
        Of each byte lane (bitslip, first delay, delays) at which its reads are right, or None for
        one where no burst is ever detected.
    """
    return [Path(__file__).with_name("levelled_dram_generator.py"), json.dumps(list(windows))]
