"""Simulators that serve several cases: building one takes longer than most cases run.

`built` makes each component once per process, and `Simulation.of` its simulator, which is reset
between the cases. The code that Amaranth generates updates signals whose values stay as they are,
too: most of its time. `_compiled` leaves those calls out. Amaranth computes the width of a layout
whenever a payload is read or set; here each layout and field keeps its own.
"""

import re
from contextlib import suppress
from functools import cached_property, partial
from types import coroutine

from amaranth.lib import data
from amaranth.sim import Simulator, _pyrtl

PERIOD = 1e-8
COMPONENTS = 12  # kept with their simulators, those that were used last
_components: dict = {}


def _compiled(code, *options):
    return compile(re.sub(r"(slots\[\d+\])\.update\((\w+), ",
                          r"\1.next == \2 or \1.update(\2, ", code), *options)


_pyrtl.compile = _compiled
for _kind, _name in (
        (data.Field, "width"), *((each, "size") for each in (
            data.StructLayout, data.UnionLayout, data.ArrayLayout, data.FlexibleLayout))):
    _width = cached_property(getattr(_kind, _name).fget)
    _width.__set_name__(_kind, f"_kept_{_name}")
    setattr(_kind, _name, _width)


def built(make, *arguments, **named):
    """The component that `make` returns for these arguments, the same one in every call.

    A test must not change it but by the signals that it drives.
    """
    key = make, repr((arguments, named))
    _components[key] = dut = _components.pop(key, None) or make(*arguments, **named)
    while len(_components) > COMPONENTS:
        del _components[next(iter(_components))]
    return dut


class Simulation:
    """Amaranth's simulator of a component whose clock is "sync", with coroutines for each run."""

    def __init__(self, dut):
        self._dut, self._coroutines, self._places = dut, [], 0
        self._simulator = Simulator(dut)
        self._simulator.add_clock(PERIOD)

    @classmethod
    def of(cls, dut):
        """The simulation of a component, as after a reset, without coroutines."""
        simulation = vars(dut).get("_simulation")
        if simulation is None:
            simulation = dut._simulation = cls(dut)
        else:
            simulation._simulator.reset()
        simulation._coroutines = []
        return simulation

    def add(self, function, background=False):
        """Add a coroutine function of the simulator's context. The run ends when all have ended but
        those in the `background`; in every cycle they run in the order in which they were added."""
        if len(self._coroutines) == self._places:
            self._simulator.add_testbench(partial(self._play, self._places), background=True)
            self._places += 1
        self._coroutines.append((function, background))

    def run(self):
        """Run until the coroutines have ended. After an error the simulator is not used again."""
        try:
            self._simulator.run()
        except BaseException:
            _components.clear()
            vars(self._dut).pop("_simulation", None)
            raise

    async def _play(self, place, ctx):
        if place >= len(self._coroutines):
            return
        function, background = self._coroutines[place]
        if background:
            await _stepped(function(ctx))
        else:
            with ctx.critical():
                await _stepped(function(ctx))


class _Reset(BaseException):
    """Ends a coroutine that waits while its simulator is reset."""


@coroutine
def _stepped(inner):
    """Await a coroutine and end it by `_Reset`: what awaits a tick does not survive `close`, which
    leaves the asynchronous generator running."""
    try:
        while True:
            yield inner.send(None)
    except StopIteration:
        return
    except GeneratorExit:
        with suppress(_Reset, StopIteration):
            inner.throw(_Reset)
        raise
