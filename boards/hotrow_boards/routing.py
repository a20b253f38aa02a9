"""Place and route a netlist with nextpnr."""

import json
import re
from pathlib import Path

from .tools import run, tool

# The static placer optimises wire length and density together, which leaves router2 fewer
# congested tiles.
_METHOD = ("--placer", "static", "--router", "router2")
# Settings that nextpnr reads from the netlist. router2 raises the cost of a wire that several nets
# want by this weight per round (default 2.0). In a dense design the default sends nets on ever
# longer detours, on which they collide again.
ROUTER_SETTINGS = {"router2/currCongWeightMult": "0.150000"}
# A routable design converges within 50 to 200 rounds; on any other, nextpnr never stops.
MOST_ROUNDS = 300
_ROUND = re.compile(r"iter=(\d+) wires=\d+ overused=(\d+)")


class NotRouted(ValueError):
    """The router did not converge, or a clock is too slow; another seed may do."""


def place_and_route(folder: Path, seed: int, *options: str) -> dict:
    """Place and route `netlist.json` in `folder`; nextpnr's output goes to `routing-SEED.log`.

    Parameters
    ----------
    folder : Path
    seed : int
        Seed of the placement.
    *options : str
        nextpnr's options for the device, the constraints and further output files.

    Returns
    -------
    dict
        nextpnr's report; `fmax` holds, by clock, the achieved and the required MHz.

    Raises
    ------
    ValueError
        If nextpnr is missing or fails.
    NotRouted
        If the router does not converge.
    """
    def check_round(line):
        if (found := _ROUND.search(line)) and int(found[1]) >= MOST_ROUNDS:
            raise NotRouted(f"routing did not converge: several nets still want {found[2]} of the "
                            f"wires after {found[1]} rounds; try other --seeds")

    report = folder / f"report-{seed}.json"
    run([tool("nextpnr-ecp5"), *options, "--seed", str(seed), *_METHOD, "--timing-allow-fail",
         "--json", "netlist.json", "--report", report.name], folder, f"routing-{seed}.log",
        check_round)
    return json.loads(report.read_text())
