"""One harness for every unit with streams: what leaves depends on what enters, not on when.

A unit gets the same payloads several times, at other cycles and with other back-pressure, idle
inputs carrying random payloads. Each output stream must return the same payloads in the same order,
and hold them while its consumer stalls. The first of the runs may begin with a restart of the busy
unit: nothing from before it comes out.
"""

from dataclasses import dataclass

import numpy as np
from amaranth import Cat, Module, Signal, Value

from .restart_harness import Case, _ports
from .simulation import Simulation

RATES = ((1, 1), (0.6, 0.6), (1, 0.2), (0.2, 1))  # shares of cycles of `valid` and of `ready`


@dataclass
class _Payloads:
    """The payloads of every input stream, and how many were accepted."""

    case: Case
    inputs: dict
    seed: int

    def __post_init__(self):
        self.names = [path[:-1] for path in self.inputs if path[-1] == "valid"]
        self.rngs = [np.random.default_rng((self.seed, number)) for number in range(
            len(self.names))]
        self.drawn = {name: [] for name in self.names}

    def get(self, name, number):
        """The payload of a stream with this number."""
        port, drawn = self.inputs.get((*name, "payload")), self.drawn[name]
        while port is not None and number >= len(drawn):
            drawn.append(_draw(self.case, port, self.rngs[self.names.index(name)]))
        return drawn[number] if port is not None else 0


def _draw(case, port, rng):
    name = port.matches(case.inputs)
    if name is not None:
        return int(case.inputs[name](rng))
    return int.from_bytes(rng.bytes(-(-port.width // 8)), "little") & (1 << port.width) - 1


class _Unit:
    """The unit, with all inputs and all outputs in one signal."""

    def __init__(self, case):
        self.case, self.module = case, Module()
        self.module.submodules.unit = unit = case.make()
        self.ports = _ports(unit)
        self.signals = []
        for side in self.ports:
            joined = Cat(Value.cast(port.value) for port in side.values())
            self.signals.append(Signal(len(joined)))
            self.module.d.comb += (joined.eq(self.signals[-1]) if side is self.ports[0]
                                   else self.signals[-1].eq(joined))
        self.name = type(unit).__name__


class _Run:
    """One run of the unit."""

    def __init__(self, unit, seed, rates, busy, cycles):
        self.unit, self.case = unit, unit.case
        self.seed, self.rates, self.busy, self.cycles = seed, rates, busy, cycles
        self.rng = np.random.default_rng((seed, *(int(100 * rate) for rate in rates), busy or 0))
        self.inputs, self.outputs = unit.ports
        self.where = f"{unit.name}, seed {seed}, rates {rates}, restart after {busy}"

    def streams(self):
        """The payloads of each output stream, by its name."""
        simulation = Simulation.of(self.unit.module)
        simulation.add(self._play)
        simulation.run()
        return self.found

    async def _play(self, ctx):
        ready = next((port for port in self.outputs.values() if port.name == self.case.ready), None)
        while ready is not None and not ready.of(await self._step(ctx, 0)):
            pass
        if self.busy is not None:
            await self._traffic(ctx, self.seed + 1, self.busy)
            await self._step(ctx, self._bits(1) | 1 << self.inputs[(self.case.restart,)].offset)
            for _ in range(self.case.settle):
                await self._step(ctx, 0)
        await self._traffic(ctx, self.seed, self.cycles)

    async def _step(self, ctx, bits):
        ctx.set(self.unit.signals[0], bits)
        found = ctx.get(self.unit.signals[1])
        await ctx.tick()
        return found

    def _bits(self, ready_rate):
        """Every input but the streams' `valid` and their payloads."""
        bits = 0
        for path, port in self.inputs.items():
            if path == (self.case.restart,) or path[-1] == "valid":
                continue
            if path[-1] == "payload" or port.matches(self.case.inputs):
                value = _draw(self.case, port, self.rng)
            elif path[-1] == "ready" and (*path[:-1], "valid") in self.outputs:
                value = int(self.rng.random() < ready_rate)
            else:
                value = 0
            bits |= value << port.offset
        return bits

    async def _traffic(self, ctx, seed, cycles):
        payloads = _Payloads(self.case, self.inputs, seed)
        count = dict.fromkeys(payloads.names, 0)
        self.found = {path[:-1]: [] for path in self.outputs if path[-1] == "valid"}
        offered, rests, held = set(), set(), {}
        for cycle in range(cycles):
            bits = self._bits(self.rates[1])
            for name in payloads.names:
                valid, payload = self.inputs[(*name, "valid")], self.inputs.get((*name, "payload"))
                fixed = valid.matches(self.case.inputs)
                if name not in offered | rests and self._owed(name, count) and (
                        self.case.inputs[fixed](self.rng) if fixed
                        else self.rng.random() < self.rates[0]):
                    offered.add(name)
                if name in offered:
                    bits |= 1 << valid.offset
                    if payload is not None:
                        bits &= ~((1 << payload.width) - 1 << payload.offset)
                        bits |= payloads.get(name, count[name]) << payload.offset
            outputs = await self._step(ctx, bits)
            rests = set()
            for name in list(offered):
                ready = self.outputs.get((*name, "ready"))
                if ready is None or ready.of(outputs):
                    offered.remove(name)
                    count[name] += 1
                    if ".".join(map(str, name)) in self.case.rests:
                        rests.add(name)
            held = self._leave(bits, outputs, held, cycle)

    def _owed(self, name, count):
        """Whether an input stream may be valid: it is no reply, or its request was accepted."""
        request = self.case.replies.get(".".join(map(str, name)))
        return request is None or count[name] < len(self.found[tuple(
            int(each) if each.isdigit() else each for each in request.split("."))])

    def _leave(self, bits, outputs, held, cycle):
        """Note what leaves, check what was held, and return what is held."""
        still = {}
        for name, found in self.found.items():
            valid, payload = self.outputs[(*name, "valid")], self.outputs.get((*name, "payload"))
            ready = self.inputs.get((*name, "ready"))
            if payload is not None and payload.matches(self.case.ignore) is not None:
                payload = None
            value = payload.of(outputs) if payload is not None else 0
            if name in held:
                assert valid.of(outputs) and value == held[name], (
                    f"{self.where}: {'.'.join(map(str, name))} did not hold its payload "
                    f"{held[name]:#x} in cycle {cycle}")
            if valid.of(outputs):
                if ready is None or ready.of(bits):
                    found.append(value)
                else:
                    still[name] = value
        return still


def check_stalls(case: Case, *, seed=0, cycles=250, busy=(None,), rates=RATES):
    """Compare what leaves a unit at several paces of its inputs and outputs.

    Parameters
    ----------
    case : Case
        Its `inputs` of streams are drawn once for each payload, all others in every cycle; nothing
        may leave the streams that `ignore` names.
    seed, cycles : int
    busy : sequence of int or None
        Cycles of other traffic before a restart, for one more run each; None for no restart.
    rates : sequence of (float, float)

    Raises
    ------
    AssertionError
        Names the stream, the payload, the seed and the rates.
    """
    unit = _Unit(case)
    expected = _Run(unit, seed, rates[0], None, cycles).streams()
    for after in busy:
        for pace in rates[1:] if after is None else rates[:1]:
            run = _Run(unit, seed, pace, after, cycles)
            for name, found in run.streams().items():
                both = list(zip(expected[name], found, strict=False))
                wrong = next((at for at, (one, other) in enumerate(both) if one != other), None)
                assert wrong is None, (
                    f"{run.where}: payload {wrong} of {'.'.join(map(str, name))} is "
                    f"{both[wrong][1]:#x}, at another pace {both[wrong][0]:#x}")
    silent = {".".join(map(str, name)) for name, found in expected.items() if not found}
    assert silent <= set(case.ignore), f"nothing leaves {sorted(silent - set(case.ignore))}"
