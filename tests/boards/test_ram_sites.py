"""Where block RAMs go: on sites that the device has, each near those that it works with."""

import json
import re

import numpy as np
import pytest
from hotrow_boards.board import ECP5_25, ECP5_45, ECP5_85
from hotrow_boards.ram_sites import place_rams, ram_sites
from hotrow_boards.tools import run

from tests.boards.real_tools import real_tool

DEVICES = [("--25k", ECP5_25), ("--45k", ECP5_45), ("--85k", ECP5_85)]


def ram(reads, *writes):
    return {"type": "DP16KD", "parameters": {}, "attributes": {"keep": "1"},
            "port_directions": {"CLKA": "input", "ADA0": "input",
                                **{f"DOA{place}": "output" for place in range(len(writes))}},
            "connections": {"CLKA": [2], "ADA0": [reads],
                            **{f"DOA{place}": [bit] for place, bit in enumerate(writes)}}}


def buffer(reads, writes):
    return {"type": "LUT4", "parameters": {"INIT": "1010101010101010"}, "attributes": {},
            "port_directions": {"A": "input", "Z": "output"},
            "connections": {"A": [reads], "Z": [writes]}}


def ring(count):
    """Block RAMs, each behind the LUT behind the one before it, in an order that tells nothing."""
    order = np.random.default_rng(1).permutation(count).tolist()
    cells = {}
    for number, before in enumerate(np.roll(order, 1).tolist()):
        cells[f"ram{order[number]}"] = ram(1000 + before, 3 + order[number])
        cells[f"lut{order[number]}"] = buffer(3 + order[number], 1000 + order[number])
    return {"attributes": {"top": "1"}, "cells": cells, "netnames": {},
            "ports": {"clk": {"direction": "input", "bits": [2]}}}, order


def places(module):
    """Column and row of each block RAM, by its number in the name."""
    return {int(name[3:]): tuple(map(int, re.findall(r"\d+", cell["attributes"]["BEL"])[:2]))
            for name, cell in module["cells"].items() if cell["type"] == "DP16KD"}


@pytest.mark.parametrize("option, capacity", DEVICES)
def test_nextpnr_knows_the_sites(option, capacity, tmp_path):
    """All block RAMs of the device in use: each goes where it was told to."""
    nextpnr = real_tool("nextpnr-ecp5")
    module, _ = ring(capacity["bram"])
    place_rams(module, capacity["bram"])
    wanted = {name: cell["attributes"]["BEL"] for name, cell in module["cells"].items()
              if cell["type"] == "DP16KD"}
    assert sorted(wanted.values()) == sorted(name for *_, name in ram_sites(capacity["bram"]))
    (tmp_path / "netlist.json").write_text(json.dumps({"modules": {"top": module}}))
    run([nextpnr, option, "--json", "netlist.json", "--write", "placed.json", "--no-route",
         "--lpf-allow-unconstrained"], tmp_path, "placing.log")
    cells = json.loads((tmp_path / "placed.json").read_text())["modules"]["top"]["cells"]
    assert {name: cells[name]["attributes"]["NEXTPNR_BEL"] for name in wanted} == wanted


@pytest.mark.parametrize("count", [2, 20, 56])
def test_neighbours_are_near(count):
    """The squares of a ring's wires, beside those of sites by chance."""
    module, order = ring(count)
    place_rams(module, ECP5_25["bram"])
    at = places(module)
    path = np.array([at[number] for number in order])
    assert len(set(at.values())) == count
    near = ((path - np.roll(path, 1, axis=0)) ** 2).sum()
    random = np.random.default_rng(2)
    sites = np.array([site[:2] for site in ram_sites(ECP5_25["bram"])])
    by_chance = [((some - np.roll(some, 1, axis=0)) ** 2).sum()
                 for some in (random.permutation(sites)[:count] for _ in range(20))]
    assert near < np.mean(by_chance) / 8


def test_the_same_seed_the_same_sites():
    one, other, third = (ring(20)[0] for _ in range(3))
    place_rams(one, ECP5_25["bram"], seed=1)
    place_rams(other, ECP5_25["bram"], seed=1)
    place_rams(third, ECP5_25["bram"], seed=2)
    assert places(one) == places(other) != places(third)


def test_without_wires():
    """Block RAMs that nothing reads, and none at all."""
    module = {"cells": {f"ram{number}": ram("0", 3 + number) for number in range(3)}}
    place_rams(module, ECP5_25["bram"])
    assert len(set(places(module).values())) == 3
    place_rams({"cells": {"lut": buffer(2, 3)}}, ECP5_25["bram"])


def test_a_net_of_many_pins_pulls_nothing():
    """Of a hundred block RAMs on one net, two are at the two ends of another."""
    cells = {f"ram{number}": ram(1000, 3 + number) for number in range(100)}
    cells["ram99"]["connections"]["ADA0"] = [3]  # what ram0 writes
    module = {"cells": cells}
    place_rams(module, ECP5_45["bram"])
    at = places(module)
    assert abs(at[0][0] - at[99][0]) <= 3 and at[0][1] == at[99][1]
