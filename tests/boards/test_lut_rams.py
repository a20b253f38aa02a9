"""LUT RAMs packed: what is read is what it was, and no cell is there in vain."""

import random
from copy import deepcopy

import pytest
from hotrow_boards.lut_rams import pack_lut_rams

OUTPUTS = {"TRELLIS_DPR16X4": ("DO",), "TRELLIS_FF": ("Q",)}


def cell(kind, parameters=None, **connections):
    return {"type": kind, "parameters": parameters or {}, "connections": connections,
            "port_directions": {port: "output" if port in OUTPUTS[kind] else "input"
                                for port in connections}}


def ram(given, told, read=(1, 2, 3, 4), write=(5, 6, 7, 8), enable=9, **parameters):
    return cell("TRELLIS_DPR16X4", {"WCKMUX": "WCK", **parameters}, RAD=list(read),
                WAD=list(write), WRE=[enable], WCK=[10], DI=list(given), DO=list(told))


def design(outputs, **cells):
    return {"cells": cells, "ports": {"q": {"direction": "output", "bits": outputs}},
            "netnames": {}}


def run(module, inputs, seed):
    """What the outputs are, over cycles in which wires without driver have random values."""
    draw, rows, held, seen = random.Random(seed), {}, {}, []
    driven = {bit for each in module["cells"].values() for port in OUTPUTS[each["type"]]
              for bit in each["connections"].get(port, ())}
    for _ in range(200):
        values = {bit: draw.randrange(2) for bit in inputs}
        assert not driven & set(inputs)

        def value(bit):
            return int(bit) if isinstance(bit, str) and bit in "01" else values.get(bit, 0)

        values |= held
        for name, each in module["cells"].items():
            wires = each["connections"]
            if each["type"] == "TRELLIS_DPR16X4":
                at = tuple(value(bit) for bit in wires["RAD"])
                values |= {bit: rows.get((name, at, place), 0)
                           for place, bit in enumerate(wires["DO"]) if isinstance(bit, int)}
        seen.append([value(bit) for bit in module["ports"]["q"]["bits"]])
        for name, each in module["cells"].items():
            wires = each["connections"]
            if each["type"] == "TRELLIS_FF":
                held[wires["Q"][0]] = value(wires["DI"][0])
            elif value(wires["WRE"][0]):
                at = tuple(value(bit) for bit in wires["WAD"])
                for place, bit in enumerate(wires["DI"]):
                    rows[name, at, place] = value(bit)
    return seen


def packed(module, inputs):
    """The module packed, which does what it did."""
    after = deepcopy(module)
    left_out = pack_lut_rams(after)
    assert left_out == len(module["cells"]) - len(after["cells"])
    for seed in range(3):
        assert run(after, inputs, seed) == run(module, inputs, seed), f"{seed=}"
    return after["cells"]


INPUTS = [*range(1, 10), 20, 21, 22, 23]


def test_bits_that_are_zero_or_alike():
    """Of 12 bits in three cells four are left, in one."""
    module = design(list(range(31, 43)),
                    one=ram((20, "0", 20, 21), (31, 32, 33, 34)),
                    two=ram(("0", "0", "0", "0"), (35, 36, 37, 38)),
                    three=ram((21, 22, 23, 20), (39, 40, 41, 42)))
    cells = packed(module, INPUTS)
    assert list(cells) == ["one"]
    assert cells["one"]["connections"]["DI"] == [20, 21, 22, 23]


def test_bits_that_no_one_reads():
    module = design([31, 34], one=ram((20, 21, 22, 23), (31, "x", "x", "x")),
                    two=ram((20, 21, 22, 23), ("x", "x", "x", 34)))
    assert packed(module, INPUTS)["one"]["connections"]["DO"] == [31, 34, "x", "x"]


def test_flip_flops_of_zero():
    """One behind the other; not one that is set, nor one of what is not zero."""
    module = design([52, 53, 54], memory=ram(("0", 20, 21, 22), (31, 32, 33, 34)),
                    first=cell("TRELLIS_FF", DI=[31], Q=[51]),
                    second=cell("TRELLIS_FF", {"REGSET": "RESET"}, DI=[51], Q=[52]),
                    set=cell("TRELLIS_FF", {"REGSET": "SET"}, DI=[51], Q=[53]),
                    other=cell("TRELLIS_FF", DI=[32], Q=[54]))
    assert set(packed(module, INPUTS)) == {"memory", "set", "other"}


@pytest.mark.parametrize("changed", [
    {"read": (1, 2, 3, 9)}, {"write": (5, 6, 7, 9)}, {"enable": 8}, {"WCKMUX": "INV"}])
def test_other_memories_stay_apart(changed):
    module = design([31, 35], one=ram((20,), (31,)), two=ram((20,), (35,), **changed))
    assert set(packed(module, INPUTS)) == {"one", "two"}


def test_contents_are_kept():
    """A memory that has some from the start is none to pack."""
    module = design([31, 32], one=ram(("0", "0"), (31, 32), INITVAL="x" * 63 + "1"))
    assert pack_lut_rams(module) == 0 and module["ports"]["q"]["bits"] == [31, 32]


@pytest.mark.parametrize("rows_log2", [1, 2, 3])
def test_addresses_of_small_memories(rows_log2):
    """No address bit is a constant, and every row has a place of its own."""
    zeros = ("0",) * (4 - rows_log2)
    module = design([31], one=ram((20,), (31,), read=(*range(1, rows_log2 + 1), *zeros),
                                  write=(*range(5, rows_log2 + 5), *zeros)))
    wires = packed(module, INPUTS)["one"]["connections"]
    assert "0" not in wires["RAD"] + wires["WAD"]
