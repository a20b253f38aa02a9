"""Driving and checking streams in Amaranth's simulator.

A `StreamBench` feeds payloads with gaps, takes them with pauses, checks at every sink the rule
that a valid payload holds until it is taken, and always ends: a bench that does not finish within
its limit fails by name.
"""

from itertools import cycle

from amaranth.sim import Simulator

STEADY = (0,)
RAGGED = (0, 0, 3, 1)
PERIOD = 1e-8


async def pulse(ctx, signal):
    """High for a cycle."""
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


class StreamBench:
    """Test bench around one component.

    Parameters
    ----------
    dut : wiring.Component
        Clocked by "sync".
    """

    def __init__(self, dut):
        self.dut = dut
        self.cycles = 0
        self._unfinished = {}
        self._simulator = Simulator(dut)
        self._simulator.add_clock(PERIOD)
        self._simulator.add_testbench(self._count, background=True)

    def source(self, stream, payloads, gaps=STEADY):
        """Offer `payloads` (what `ctx.set` takes) in order, idle for `gaps` cycles before each."""
        async def drive(ctx):
            for payload, gap in zip(payloads, cycle(gaps)):
                for _ in range(gap):
                    await ctx.tick()
                ctx.set(stream.payload, payload)
                ctx.set(stream.valid, 1)
                await ctx.tick().until(stream.ready)
                ctx.set(stream.valid, 0)
        self.process(f"source of {len(payloads)}", drive)

    def sink(self, stream, count, pauses=STEADY, name="sink", read=None):
        """Take `count` payloads, deaf for `pauses` cycles before each; return the list they fill.

        `read(payload)` turns the sampled payload into what is kept; default the sample itself.
        """
        taken = []

        async def drain(ctx):
            held = None
            for pause in cycle(pauses):
                if len(taken) == count:
                    return
                for step in range(pause + 1):
                    ctx.set(stream.ready, step == pause)
                    _, _, valid, payload = await ctx.tick().sample(stream.valid, stream.payload)
                    bits = payload if isinstance(payload, int) else payload.as_bits()
                    assert held is None or (valid and bits == held), (
                        f"{name}: payload {len(taken)} changed or vanished before it was taken")
                    held = bits if valid and step < pause else None
                    if valid and step == pause:
                        taken.append(read(payload) if read else payload)
                ctx.set(stream.ready, 0)
        self.process(f"{name} of {count}", drain)
        return taken

    def process(self, name, coroutine):
        """Add a test bench coroutine that must finish."""
        async def watched(ctx):
            await coroutine(ctx)
            del self._unfinished[name]
        while name in self._unfinished:
            name += "'"
        self._unfinished[name] = coroutine
        self._simulator.add_testbench(watched)

    def background(self, coroutine):
        """Add a responder that may run for ever."""
        self._simulator.add_testbench(coroutine, background=True)

    def run(self, limit):
        """Run until every process has finished, at most `limit` cycles; return the cycles used."""
        self._limit = limit
        self._simulator.run()
        return self.cycles

    async def _count(self, ctx):
        async for _ in ctx.tick():
            self.cycles += 1
            assert self.cycles <= self._limit, (
                f"not finished after {self._limit} cycles: {', '.join(self._unfinished)}")
