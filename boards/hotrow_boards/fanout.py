"""Fan-out: a cell that drives more than a neighbourhood becomes several, each with its own.

A net of a thousand loads spreads over the whole device, and its driver is far from most of them: on
ECP5 such a net alone takes most of a cycle. Neither Yosys nor nextpnr divides one.
"""

from collections import defaultdict, deque
from copy import deepcopy

MOST_LOADS = 128
_OUTPUTS = {"LUT4": "Z", "TRELLIS_FF": "Q"}  # of the cells that can be copied
_CLOCKS = ("CLK", "WCK", "CLKA", "CLKB")  # inputs that the clock networks reach
# Other cells, those of pins and PHYs, may have to share a net with their neighbours.
_MOVABLE = (*_OUTPUTS, "CCU2C", "TRELLIS_DPR16X4", "DP16KD", "MULT18X18D")


def divide_nets(module: dict, most: int = MOST_LOADS) -> int:
    """Divide, in place, every net that drives more than `most` inputs.

    Clocks, which have networks of their own, stay as they are, and so does what is not driven by a
    LUT or a flip-flop, and an asynchronous reset: it ends for all its loads in one cycle.

    Parameters
    ----------
    module : dict
        A flat module of ECP5 cells, as in the JSON that Yosys writes.
    most : int

    Returns
    -------
    int
        Cells added.
    """
    return _Nets(module).divide(most)


class _Nets:
    """The nets of a flat module: which cell drives each, and which inputs it drives."""

    def __init__(self, module):
        self.module, self.cells = module, module["cells"]
        self.driver, self.loads, self.names = {}, defaultdict(list), {}
        for name, net in sorted(module["netnames"].items(), key=lambda item: len(item[0])):
            for bit in net["bits"]:
                self.names.setdefault(bit, name)  # the shortest: that of the outermost unit
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                for place, bit in enumerate(bits):
                    if cell["port_directions"][port] == "output":
                        self.driver[bit] = name
                    elif isinstance(bit, int):  # not a constant
                        self.loads[bit].append((name, port, place))
        self.fresh = 1 + max((bit for bit in (*self.driver, *self.names)
                              if isinstance(bit, int)), default=1)

    def divide(self, most):
        added = 0
        waiting = deque(bit for bit in list(self.loads) if self._too_many(bit, most))
        while waiting:
            bit = waiting.popleft()
            if not self._too_many(bit, most):
                continue
            # Loads of one unit have names that begin alike, and are placed near one another.
            loads = sorted(self.loads[bit], key=self._neighbourhood)
            parts = -(-len(loads) // most)
            each = -(-len(loads) // parts)
            self.loads[bit] = loads[:each]
            for first in range(each, len(loads), each):
                more = self._copy(bit, loads[first:first + each])
                waiting.extend(bit for bit in more if self._too_many(bit, most))
                added += 1
        return added

    def _too_many(self, bit, most):
        driver = self.cells.get(self.driver.get(bit), {"type": None})
        return (driver["type"] in _OUTPUTS and len(self.loads[bit]) > most
                and driver.get("parameters", {}).get("SRMODE") != "ASYNC"
                and all(port not in _CLOCKS and self.cells[name]["type"] in _MOVABLE
                        for name, port, _ in self.loads[bit]))

    def _neighbourhood(self, load):
        """Name of what the cell of a load drives."""
        name = load[0]
        outputs = [bit for port, bits in self.cells[name]["connections"].items()
                   if self.cells[name]["port_directions"][port] == "output" for bit in bits]
        return self.names.get(outputs[0], name) if outputs else name, load

    def _copy(self, bit, loads):
        """Give `loads` a driver of their own; the nets that drive one input more."""
        name = self.driver[bit]
        cell = deepcopy(self.cells[name])
        copy, self.fresh = self.fresh, self.fresh + 1
        copied = f"{name}$load{copy}"
        cell["connections"][_OUTPUTS[cell["type"]]] = [copy]
        self.cells[copied] = cell
        self.driver[copy], self.loads[copy] = copied, loads
        self.names[copy] = self.names.get(bit, name)
        self.module["netnames"][f"{copied}$net"] = {
            "hide_name": 1, "bits": [copy], "attributes": {}}
        for load, port, place in loads:
            self.cells[load]["connections"][port][place] = copy
        inputs = [(port, place, each) for port, bits in cell["connections"].items()
                  if cell["port_directions"][port] == "input"
                  for place, each in enumerate(bits) if isinstance(each, int)]
        for port, place, each in inputs:
            self.loads[each].append((copied, port, place))
        return [each for _, _, each in inputs]
