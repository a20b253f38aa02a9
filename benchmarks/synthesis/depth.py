"""Logic depth of a mapped netlist: the levels of LUTs between two registers, across modules."""

from dataclasses import dataclass

import numpy as np

_REGISTERS = ("FDRE", "FDSE", "FDCE", "FDPE")
_SAMPLED = ("D", "CE", "R", "S", "CLR", "PRE")  # their inputs but the clock
# Memories of LUTs, whose reads take no clock, and the address of their writes.
_MEMORIES = {"RAM32M16": "ADDRH", "RAM64M8": "ADDRH", "RAM32M": "ADDRD", "RAM64M": "ADDRD"}
_MOST_ROUNDS = 2000  # of the search; more only in a cycle


@dataclass(frozen=True)
class _Graph:
    """One module; its bits are counted from 0.

    Parameters
    ----------
    bits : int
    edges : ndarray of (edges, 3)
        From bit, to bit, levels between.
    ends : ndarray of (ends, 2)
        Bit that a register or memory samples; a bit of its output, or -1.
    instances : list of (str, str, dict)
        Name, module, and the bits of each port, -1 for constants.
    ports : dict of str to list
        The bits of each port.
    names : dict of int to str
        Name of each bit that has one.
    """

    bits: int
    edges: np.ndarray
    ends: np.ndarray
    instances: list
    ports: dict
    names: dict


def deepest(modules: dict, top: str, count: int = 10) -> list[dict]:
    """The deepest paths from register to register, one for each unit in which they end.

    A carry chain, a read of LUT memory and a multiplier count as one level each; block memories
    begin and end paths like registers.

    Parameters
    ----------
    modules : dict
        See `map_modules`.
    top : str
    count : int

    Returns
    -------
    list of dict
        levels, from, to; the deepest first.

    Raises
    ------
    ValueError
        If the logic has a cycle.
    """
    graphs = {name: _graph(module, modules) for name, module in modules.items()}
    expanded, starts, edges, ends = [], [0], [], []

    def expand(name, path, given):
        graph, base = graphs[name], starts[-1]
        numbers = np.arange(base, base + graph.bits)
        for port, outer in given.items():
            for bit, number in zip(graph.ports[port] if outer else (), outer, strict=True):
                if number >= 0 and bit >= 0:
                    numbers[bit] = number
        starts.append(base + graph.bits)
        edges.append(np.column_stack((numbers[graph.edges[:, :2]], graph.edges[:, 2])))
        outputs = np.where(graph.ends[:, 1] < 0, -1, numbers[graph.ends[:, 1]])
        ends.append(np.column_stack((
            numbers[graph.ends[:, 0]], outputs, np.full(len(outputs), len(expanded)))))
        expanded.append((path, graph, numbers))
        for instance, kind, pins in graph.instances:
            expand(kind, (*path, instance), {
                port: [numbers[bit] if bit >= 0 else -1 for bit in bits]
                for port, bits in pins.items()})
    expand(top, (), {})
    from_, to, weights = np.concatenate(edges).T
    sampled, outputs, owners = np.concatenate(ends).T
    levels = _levels(starts[-1], from_, to, weights)

    def name(number, owner):
        path, graph, numbers = expanded[owner]
        local = np.flatnonzero(numbers == number)
        named = next((graph.names[bit] for bit in local if bit in graph.names), "memory")
        return ".".join((*path, named))

    def begin(number):
        while levels[number] > 0:
            into = np.flatnonzero(to == number)
            number = from_[into[np.argmax(levels[from_[into]] + weights[into])]]
        register = np.flatnonzero(outputs == number)
        return name(number, owners[register[0]] if len(register)
                    else np.searchsorted(starts, number, side="right") - 1)

    chosen: dict[tuple, dict] = {}
    for end in np.argsort(-levels[sampled], kind="stable"):
        path = expanded[owners[end]][0]
        unit = tuple(name_.rstrip("0123456789") for name_ in path)
        if unit not in chosen:
            chosen[unit] = {
                "levels": int(levels[sampled[end]]), "from": begin(sampled[end]),
                "to": name(outputs[end], owners[end])}
            if len(chosen) == count:
                break
    return list(chosen.values())


def _levels(bits, from_, to, weights):
    """Levels from the registers to each bit."""
    order = np.argsort(to, kind="stable")
    from_, to, weights = from_[order], to[order], weights[order]
    firsts = np.flatnonzero(np.diff(to, prepend=-1))
    levels = np.zeros(bits, dtype=np.int64)
    for _ in range(_MOST_ROUNDS):
        reached = np.maximum.reduceat(levels[from_] + weights, firsts)
        if (levels[to[firsts]] == reached).all():
            return levels
        levels[to[firsts]] = reached
    raise ValueError("the logic has a cycle")


def _graph(module, modules):
    numbers: dict[int, int] = {}

    def bits(given):
        return [numbers.setdefault(bit, len(numbers)) if isinstance(bit, int) else -1
                for bit in given]

    edges, ends, instances = [], [], []
    inner = 0  # nodes inside cells, numbered after all bits

    def through(sources, targets):
        """All targets depend on all sources: by a node of their own."""
        nonlocal inner
        inner += 1
        edges.extend((bit, -inner, 1) for bit in sources if bit >= 0)
        edges.extend((-inner, bit, 0) for bit in targets if bit >= 0)

    for instance, cell in module["cells"].items():
        kind = cell["type"]
        pins = {port: bits(given) for port, given in cell["connections"].items()}
        if kind in modules:
            instances.append((instance, kind, pins))
        elif kind in _REGISTERS:
            ends.extend((pins[port][0], pins.get("Q", [-1])[0]) for port in _SAMPLED
                        if port in pins and pins[port][0] >= 0)
        elif kind == "CARRY4":
            carries = [bit for port in ("CI", "CYINIT") for bit in pins.get(port, ())]
            for last in range(4):
                for target in (pins[port][last] for port in ("O", "CO") if port in pins):
                    edges.extend((bit, target, 0) for bit in carries if bit >= 0 <= target)
                    edges.extend((bit, target, 1) for port in ("S", "DI")
                                 for bit in pins.get(port, ())[:last + 1] if bit >= 0 <= target)
        else:
            inputs = [port for port, way in cell["port_directions"].items() if way == "input"]
            inputs = [port for port in inputs if port in pins]
            outputs = [bit for port, given in pins.items() if port not in inputs for bit in given]
            if kind in _MEMORIES:
                for letter in "ABCDEFGH":
                    through(pins.get(f"ADDR{letter}", ()), pins.get(f"DO{letter}", ()))
                inputs = [port for port in inputs
                          if port[:2] in ("WE", "DI") or port == _MEMORIES[kind]]
            elif kind.startswith(("RAMB", "URAM")):
                pass
            else:
                through([bit for port in inputs for bit in pins[port]], outputs)
                continue
            ends.extend((bit, -1) for port in inputs for bit in pins[port] if bit >= 0)
    ports = {name: bits(port["bits"]) for name, port in module["ports"].items()}
    names = {number: f"{name}[{place}]" if len(net["bits"]) > 1 else name
             for name, net in sorted(module["netnames"].items(), reverse=True)
             if not net["hide_name"]
             for place, number in enumerate(bits(net["bits"])) if number >= 0}
    table = np.array(edges, dtype=np.int64).reshape(-1, 3)
    nodes = table[:, :2]
    nodes[nodes < 0] = len(numbers) - 1 - nodes[nodes < 0]
    return _Graph(len(numbers) + inner, table, np.array(ends, dtype=np.int64).reshape(-1, 2),
                  instances, ports, names)
