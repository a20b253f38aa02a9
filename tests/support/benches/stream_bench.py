"""Drives and checks streams in Amaranth's simulator.

A `StreamBench` sends payloads with gaps, accepts payloads with pauses, and checks that a valid
payload holds until it is accepted. A bench that does not finish within its limit fails, as does one
whose sinks receive more than they expect within `IDLE_CYCLES` of the end.
"""

from itertools import cycle
from random import Random

from amaranth.hdl import Const, Value

from ..simulation import Simulation

STEADY = (0,)
RAGGED = (0, 0, 3, 1)
IDLE_CYCLES = 12


async def pulse(ctx, signal):
    """Assert a signal for a cycle."""
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


class StreamBench:
    """Test bench around one component.

    Parameters
    ----------
    dut : wiring.Component
        Clocked by "sync"; of `built`, so that cases share its simulator.

    Attributes
    ----------
    cycles : int
        Clock cycles so far.
    """

    def __init__(self, dut):
        self.dut = dut
        self.cycles = 0
        self._unfinished = {}
        self._sinks = []  # (stream, name)
        self._simulation = Simulation.of(dut)
        self._simulation.add(self._count, background=True)

    def source(self, stream, payloads, gaps=STEADY):
        """Send `payloads` (values for `ctx.set`) in order, with `gaps` idle cycles before each.

        A payload that is not valid has random bits, or only few of them, as a small number has.
        """
        bits, rng = Value.cast(stream.payload), Random(len(self._unfinished))

        def noise():
            return rng.randrange(1 << min(len(bits), rng.choice([0, 1, 3, len(bits)])))

        async def drive(ctx):
            for payload, gap in zip(payloads, cycle(gaps), strict=False):
                for _ in range(gap):
                    ctx.set(bits, noise())
                    await ctx.tick()
                ctx.set(stream.payload, payload)
                ctx.set(stream.valid, 1)
                await ctx.tick().until(stream.ready)
                ctx.set(stream.valid, 0)
            ctx.set(bits, noise())
        self.process(f"source of {len(payloads)}", drive)

    def sink(self, stream, count, pauses=STEADY, name="sink", read=None, valid_cycles=None,
             more=False):
        """Accept `count` payloads, with `pauses` cycles without `ready` before each.

        Parameters
        ----------
        stream : stream interface
            If its `ready` is constant, `pauses` is ignored.
        count : int
        pauses : sequence of int
        name : str
            For messages.
        read : callable, optional
            Converts a sampled payload to an element of the result.
        valid_cycles : list, optional
            Receives the first cycle in which each payload is valid.
        more : bool
            Further payloads may follow.

        Returns
        -------
        list
            Filled while the simulation runs.
        """
        received, always = [], isinstance(stream.ready, Const)
        if not more:
            self._sinks.append((stream, name))

        async def drain(ctx):
            held = None
            for pause in cycle(STEADY if always else pauses):
                if len(received) == count:
                    return
                for step in range(pause + 1):
                    if not always:
                        ctx.set(stream.ready, step == pause)
                    _, _, valid, payload = await ctx.tick().sample(stream.valid, stream.payload)
                    bits = payload if isinstance(payload, int) else payload.as_bits()
                    assert held is None or (valid and bits == held), (
                        f"{name}: payload {len(received)} changed or vanished before it was "
                        "accepted")
                    if valid and held is None and valid_cycles is not None:
                        valid_cycles.append(self.cycles)
                    held = bits if valid and step < pause else None
                    if valid and step == pause:
                        received.append(read(payload) if read else payload)
                if not always:
                    ctx.set(stream.ready, 0)
        self.process(f"{name} of {count}", drain)
        return received

    def process(self, name, coroutine):
        """Add a test bench coroutine that must finish."""
        async def watched(ctx):
            await coroutine(ctx)
            del self._unfinished[name]
        while name in self._unfinished:
            name += "'"
        self._unfinished[name] = coroutine
        self._simulation.add(watched)

    def background(self, coroutine):
        """Add a responder, which need not finish."""
        self._simulation.add(coroutine, background=True)

    def run(self, limit):
        """Run until every process has finished; return the cycles used.

        Raises
        ------
        AssertionError
            After `limit` cycles.
        """
        self._limit, ended = limit, []

        async def idle(ctx):
            while self._unfinished:
                await ctx.tick()
            ended.append(self.cycles)
            for _ in range(IDLE_CYCLES):
                for stream, name in self._sinks:
                    assert not ctx.get(stream.valid), f"{name}: a payload more than expected"
                await ctx.tick()
        if self._sinks:
            self._simulation.add(idle)
        self._simulation.run()
        self.cycles = ended[0] if ended else self.cycles
        return self.cycles

    async def _count(self, ctx):
        async for _ in ctx.tick():
            self.cycles += 1
            assert self.cycles <= self._limit or not self._unfinished, (
                f"not finished after {self._limit} cycles: {', '.join(self._unfinished)}")
