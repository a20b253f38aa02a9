"""A unit that is restarted at any moment equals one that never ran.

Two instances run side by side. The first is busy, with its outputs held back or not, until it is
restarted; the second is idle, and is reset when the first is restarted. From then on both get the
same random inputs, and their outputs must agree in every cycle: handshakes, and payloads while
valid. That is repeated with every number of busy cycles, several restarts in a row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from amaranth import Cat, Const, Module, ResetInserter, Shape, Signal, Value
from amaranth.lib.wiring import In

from .simulation import Simulation


@dataclass(frozen=True)
class Case:
    """A unit, and what its inputs may be.

    Attributes
    ----------
    make : callable
        Returns an instance.
    restart : str
        The input under test, of which all bits rise.
    inputs : dict of str to callable
        By path ("clients.0.words.ready", or its last names): a function of the random generator
        that returns the input's value in a cycle. Other inputs are random bits, one-bit inputs high
        in a quarter of the cycles; valid payloads hold until they are accepted.
    after : dict of str to callable
        The functions of `inputs` that differ after the restart.
    replies : dict of str to str
        By path of an input stream: the output stream whose payloads it answers, one for each.
    rests : tuple of str
        Input streams that are not valid in the cycle after one of their payloads is accepted.
    ignore : tuple of str
        Outputs that need not agree.
    qualified : dict of str to str
        Outputs that must agree only while another output is high.
    silent : tuple of str
        Outputs that are low in the cycle of the restart: nothing leaves or is accepted in it.
    reset : bool
        The second instance is reset; otherwise it is restarted while idle, as the unit has a
        memory that a restart keeps, and that `inputs` do not change, or that takes time to clear.
    mirror : tuple of str
        Inputs that the second instance receives while the first one is busy, too.
    then : str or None
        An input that is high in the cycle after the restart: the host clears the unit's memory.
    hold : int
        Cycles for which the restart is high, with idle inputs after the first.
    settle : int
        Cycles from the restart until the unit is as after a reset, while inputs are idle.
    ready : str or None
        Output that is high once the unit has cleared its memories.
    """

    make: Callable
    restart: str = "restart"
    inputs: Mapping = field(default_factory=dict)
    after: Mapping = field(default_factory=dict)
    replies: Mapping = field(default_factory=dict)
    rests: tuple = ()
    ignore: tuple = ()
    qualified: Mapping = field(default_factory=dict)
    silent: tuple = ()
    reset: bool = True
    mirror: tuple = ()
    then: str | None = None
    hold: int = 1
    settle: int = 0
    ready: str | None = None


class _Port:
    """A leaf of a signature: its path, its value, its bits in the sum of inputs or outputs."""

    def __init__(self, path, value, offset):
        self.path, self.name = path, ".".join(map(str, path))
        self.value, self.offset, self.width = value, offset, len(Value.cast(value))

    def of(self, bits):
        return bits >> self.offset & (1 << self.width) - 1

    def matches(self, names):
        """The longest of `names` that ends this path, or None."""
        found = [name for name in names if f".{self.name}".endswith(f".{name}")]
        return max(found, key=len, default=None)


def _ports(dut):
    """Inputs and outputs of a component, by path."""
    ports, offsets = ({}, {}), [0, 0]
    for path, member, value in dut.signature.flatten(dut):
        if isinstance(value, Const):
            continue
        side = int(member.flow is not In)
        ports[side][path] = _Port(path, value, offsets[side])
        offsets[side] += len(Value.cast(value))
    return ports


class _Twins:
    """Both instances, with all inputs and all outputs of each in one signal."""

    def __init__(self, case):
        self.module = m = Module()
        self.reset = Signal()
        self.inputs, self.outputs = [], []
        for number, dut in enumerate((case.make(), case.make())):
            m.submodules[f"unit{number}"] = (
                ResetInserter(self.reset)(dut) if number and case.reset else dut)
            self.ports = _ports(dut)
            for side, signals in zip(self.ports, (self.inputs, self.outputs), strict=True):
                joined = Cat(Value.cast(port.value) for port in side.values())
                signals.append(Signal(len(joined), name=f"side{number}"))
                m.d.comb += (joined.eq(signals[-1]) if signals is self.inputs
                                else signals[-1].eq(joined))


class _Driver:
    """Random inputs that keep the rules of streams."""

    def __init__(self, case, ports, rng):
        self.case, self.rng = case, rng
        self.inputs, self.outputs = ports
        self.forget()

    def forget(self):
        self.held = {}  # bits of a valid payload that was not accepted
        self.owed = dict.fromkeys(self.case.replies, 0)

    def draw(self, pause):
        """The inputs of a cycle; `pause`: every consumer stalls."""
        bits = 0
        for path, port in self.inputs.items():
            bits |= self._value(path, port, pause) << port.offset
        return bits

    def accepted(self, bits, outputs):
        """Note which payloads were accepted."""
        self.held = {}
        ports = {port.name: port.of(each) for side, each in (
            (self.inputs, bits), (self.outputs, outputs)) for port in side.values()}
        for reply, request in self.case.replies.items():
            self.owed[reply] += ports[f"{request}.valid"] & ports[f"{request}.ready"]
            self.owed[reply] -= ports[f"{reply}.valid"] & ports.get(f"{reply}.ready", 1)
        for path, port in self.inputs.items():
            if path[-1] != "valid" or not port.of(bits):
                continue
            ready = self.outputs.get((*path[:-1], "ready"))
            if ready is not None and not ready.of(outputs):
                payload = self.inputs.get((*path[:-1], "payload"))
                self.held[path[:-1]] = payload.of(bits) if payload else 0

    def _value(self, path, port, pause):
        if port.name in (self.case.restart, self.case.then):
            return 0
        stream, last = path[:-1], path[-1]
        if stream in self.held and last in ("valid", "payload"):
            return 1 if last == "valid" else self.held[stream]
        if pause and last == "ready" and (*stream, "valid") in self.outputs:
            return 0
        if last == "valid" and self.owed.get(".".join(map(str, stream)), 1) == 0:
            return 0
        name = port.matches(self.case.inputs)
        if name is not None:
            return int(self.case.inputs[name](self.rng))
        if last in ("valid", "ready"):
            return int(self.rng.random() < 0.7)
        if port.width == 1 and last != "payload":
            return int(self.rng.random() < 0.25)
        return int.from_bytes(self.rng.bytes(-(-port.width // 8)), "little") & (
            (1 << port.width) - 1)


def check_restart(case: Case, *, seed=0, busy=range(24), in_a_row=2, compare=60):
    """Restart a unit after each number of busy cycles, and compare it with a unit that was reset.

    Raises
    ------
    AssertionError
        Names the output, the cycle after the restart, the seed and the number of busy cycles.
    """
    twins = _Twins(case)
    inputs, outputs = twins.ports
    _check_names(case, inputs, outputs)
    rng = np.random.default_rng(seed)
    port = inputs[(case.restart,)]
    restart = (1 << port.width) - 1 << port.offset
    then = 1 << inputs[(case.then,)].offset if case.then else 0
    quiet = _Driver(replace(case, inputs={**case.inputs, **case.after}), twins.ports, rng)
    drawn = {port: case.inputs[name] for port in inputs.values()
             if (name := port.matches(case.inputs)) is not None}
    idle = sum(draw(rng) << port.offset for port, draw in drawn.items() if draw in CONSTANT)

    pauses = [*[idle | restart] * (case.hold - 1),
              *(idle | (then if cycle == 0 else 0) for cycle in range(case.settle))]
    mirrored = sum((1 << port.width) - 1 << port.offset for port in inputs.values()
                   if port.matches(case.mirror) is not None)

    async def step(ctx, *bits):
        for signal, value in zip(twins.inputs, bits, strict=True):
            ctx.set(signal, value)
        found = [ctx.get(signal) for signal in twins.outputs]
        await ctx.tick()
        return found

    async def play(ctx):
        ready = next((port for port in outputs.values() if port.name == case.ready), None)
        while ready and not all(ready.of(bits) for bits in await step(ctx, idle, idle)):
            pass
        for cycles in busy:
            for turn in range(in_a_row):
                driver, pause = _Driver(case, twins.ports, rng), turn % 2 == 0
                for _ in range(cycles):
                    bits = driver.draw(pause)
                    found, _ = await step(ctx, bits, idle | bits & mirrored)
                    driver.accepted(bits, found)
                ctx.set(twins.reset, turn == in_a_row - 1)
                bits = driver.draw(pause) | restart
                found, _ = await step(ctx, bits, idle | restart | bits & mirrored)
                loud = [port.name for port in outputs.values()
                        if port.matches(case.silent) is not None and port.of(found)]
                assert not loud, (f"{type(case.make()).__name__}: {loud} high in the cycle of a "
                                  f"restart; {cycles} busy cycles, seed {seed}")
                ctx.set(twins.reset, 0)
                for bits in pauses:
                    await step(ctx, bits, bits)
            driver = quiet
            driver.forget()
            for cycle in range(compare):
                bits = driver.draw(cycle < compare // 3 and cycles % 3 == 0)
                found = await step(ctx, bits, bits)
                for port in outputs.values():
                    one, other = (port.of(each) for each in found)
                    if one != other and _counts(case, port, outputs, found):
                        raise AssertionError(
                            f"{type(case.make()).__name__}: {port.name} is {one:#x}, {other:#x} "
                            f"after a reset, {cycle + 1} cycles after a restart; {cycles} busy "
                            f"cycles, seed {seed}")
                driver.accepted(bits, found[0])

    simulation = Simulation.of(twins.module)
    simulation.add(play)
    simulation.run()


def _check_names(case, inputs, outputs):
    """Every name of a case is that of a port or stream of the unit."""
    for side, names in ((inputs, {**case.inputs, **case.after}), (inputs, case.mirror),
                        (outputs, (*case.ignore, *case.silent, *case.qualified))):
        for name in names:
            assert any(port.matches([name]) for port in side.values()), (
                f"{type(case.make()).__name__} has no port {name}")
    for reply, request in case.replies.items():
        assert any(port.name == f"{reply}.valid" for port in inputs.values()), reply
        assert any(port.name == f"{request}.valid" for port in outputs.values()), request


def _counts(case, port, outputs, found):
    """Whether both instances must agree about an output in this cycle."""
    if port.matches(case.ignore) is not None:
        return False
    name = port.matches(case.qualified)
    if name is not None:
        by = next(each for each in outputs.values() if each.name == case.qualified[name])
    else:
        by = outputs.get((*port.path[:-1], "valid")) if port.path[-1] == "payload" else None
    return by is None or any(by.of(bits) for bits in found)


def constant(value):
    """An input that has one value, also while the unit is idle."""
    def draw(rng):
        return value
    CONSTANT.add(draw)
    return draw


def below(limit):
    """An input with random values below a limit."""
    return lambda rng: rng.integers(limit)


def payload(layout, **fields):
    """A random payload with some fields drawn by functions or constant.

    Parameters
    ----------
    layout : data.Layout
    fields : dict of str to int or callable
        By path with "__" between names; "all" selects every element of an array.
    """
    width = Shape.cast(layout).width
    found = [(each, field_width, value) for path, value in fields.items()
             for each, field_width in _fields(layout, path.split("__"))]

    def draw(rng):
        bits = int.from_bytes(rng.bytes(-(-width // 8)), "little") & (1 << width) - 1
        for offset, size, value in found:
            mask = (1 << size) - 1 << offset
            bits = bits & ~mask | (int(value(rng) if callable(value) else value) << offset & mask)
        return bits
    return draw


def _fields(layout, path):
    """(offset, width) of the fields at a path."""
    if not path:
        return [(0, Shape.cast(layout).width)]
    names = [name for name, _ in layout] if path[0] == "all" else [path[0]]
    return [(layout[name].offset + offset, width) for name in names
            for offset, width in _fields(layout[name].shape, path[1:])]


CONSTANT: set = set()
