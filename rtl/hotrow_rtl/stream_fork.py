"""One stream to several sinks."""

from amaranth import Cat


def fork(m, source, *sinks):
    """Hand every payload of a stream to several sinks, all in the same cycle.

    A sink's `ready` must not depend on its `valid`.

    Parameters
    ----------
    m : Module
    source : stream
    sinks : stream
        Payloads are not connected, since each sink may want another part of the source's.
    """
    readies = [sink.ready for sink in sinks]
    m.d.comb += source.ready.eq(Cat(readies).all())
    for place, sink in enumerate(sinks):
        others = readies[:place] + readies[place + 1:]
        m.d.comb += sink.valid.eq(source.valid & Cat(others).all())
