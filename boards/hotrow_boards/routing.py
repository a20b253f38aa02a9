"""From a netlist to a placed and routed design, with nextpnr."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from .tools import run, tool

# The placer that solves for wire length and density together: it leaves fewer places where the
# router, which negotiates for every wire, finds too few.
_METHOD = ("--placer", "static", "--router", "router2")
# What a wire costs more, by each round, that several nets are in demand of; by default 2.0. Nets of
# a dense design then evade each other over ever longer ways, and are in each other's again.
_PRICE = "router2/currCongWeightMult"
PATIENT = {_PRICE: "0.150000"}  # settings of nextpnr, in the netlist
# In a refined placement few tiles are crowded, and there is a way for each: it is found sooner.
BRISK = {_PRICE: "0.450000"}
# A design that can be routed is after 50 to 200 rounds; another never is, and nextpnr goes on.
MOST_ROUNDS = 300
_ROUND = re.compile(r"iter=(\d+) wires=\d+ overused=(\d+)")


class EndlessRouting(ValueError):
    """The router does not come to an end."""


def place_and_route(folder: Path, seed: int, *options: str,
                    refine: Callable[[Path, Path], object] | None = None) -> dict:
    """Place and route `netlist.json` in `folder`; what nextpnr says goes to `routing-SEED.log`.

    With `refine` it places, and says so in `placing-SEED.log`; then a placement that is better is
    routed. nextpnr, which has not packed that itself, counts a carry of two bits twice: the clock
    that it reports is at most too low.

    Parameters
    ----------
    folder : Path
    seed : int
        Of the placement.
    *options : str
        The device, the constraints, and further files to write.
    refine : callable, optional
        Takes the file of a placement and that of a better one, which it writes.

    Returns
    -------
    dict
        nextpnr's report: under fmax, by clock, what is achieved and its constraint in MHz.

    Raises
    ------
    ValueError
        If nextpnr is missing or fails, or the router does not come to an end.
    """
    def watch(line):
        """Of the router: give up when it has had rounds enough."""
        if (found := _ROUND.search(line)) and int(found[1]) >= MOST_ROUNDS:
            raise EndlessRouting(
                f"the router has not come to an end: {found[2]} wires are still in demand by "
                f"several nets after {found[1]} rounds; try another --seed")

    report = folder / f"report-{seed}.json"
    nextpnr = [tool("nextpnr-ecp5"), *options, "--seed", str(seed), *_METHOD, "--timing-allow-fail"]
    netlist = ["--json", "netlist.json"]
    if refine:
        placed, refined = (folder / f"{name}-{seed}.json" for name in ("placed", "refined"))
        run([*nextpnr, *netlist, "--no-route", "--write", placed.name], folder,
            f"placing-{seed}.log")
        refine(placed, refined)
        netlist = ["--json", refined.name, "--no-pack", "--no-place"]

    def route(*more):
        run([*nextpnr, *netlist, "--report", report.name, *more], folder, f"routing-{seed}.log",
            watch)

    if not refine:
        route()
    else:
        try:  # a net that is late is routed anew, not only one in whose wires others are, too
            route("--tmg-ripup")
        except EndlessRouting:  # the clock asked for is out of reach
            route()
    return json.loads(report.read_text())
