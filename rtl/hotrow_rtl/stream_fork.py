"""One stream to several sinks, or to one of them."""

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


def pass_on(m, source, sink):
    """Hand every payload of a stream to a sink, within a condition of module `m` or without.

    Parameters
    ----------
    m : Module
    source, sink : stream
    """
    m.d.comb += [
        sink.valid.eq(source.valid),
        sink.p.eq(source.p),
        source.ready.eq(sink.ready),
    ]
