"""Connect streams: one to one, one to several, one of several to one."""

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


def stream_connect(m, source, sink):
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


def stream_mux(m, consumer, *choices):
    """Give `consumer` the one of the (condition, producer) streams whose condition holds."""
    (_, usual), *_ = choices
    m.d.comb += consumer.p.eq(usual.p)  # also where no condition holds: that takes no gates
    for condition, producer in choices:
        with m.If(condition):
            m.d.comb += [
                consumer.valid.eq(producer.valid),
                consumer.p.eq(producer.p),
                producer.ready.eq(consumer.ready),
            ]


def stream_demux(m, producer, *choices):
    """Give `producer`'s stream to the one of the (condition, consumer) whose condition holds."""
    for condition, consumer in choices:
        m.d.comb += consumer.p.eq(producer.p)
        with m.If(condition):
            m.d.comb += [
                consumer.valid.eq(producer.valid),
                producer.ready.eq(consumer.ready),
            ]


def stream_resize(m, producer, consumer):
    """Give `consumer` the low bits of the elements, as wide as its own: those above are 0."""
    m.d.comb += [
        consumer.valid.eq(producer.valid),
        producer.ready.eq(consumer.ready),
        consumer.p.present.eq(producer.p.present),
        consumer.p.last.eq(producer.p.last),
        *(low.eq(Cat(value)) for low, value in zip(consumer.p.values, producer.p.values)),
    ]
