"""Connect streams: one to one, one to several, one of several to one."""

from amaranth import Cat


def fork(m, source, *sinks):
    """Connect the handshake of a stream to several sinks, which all fire in the same cycle.

    A sink's `ready` must not depend on its `valid`.

    Parameters
    ----------
    m : Module
    source : stream
    sinks : stream
        The caller connects the payloads, since each sink may use another part of the source's.
    """
    readies = [sink.ready for sink in sinks]
    m.d.comb += source.ready.eq(Cat(readies).all())
    for idx, sink in enumerate(sinks):
        others = readies[:idx] + readies[idx + 1:]
        m.d.comb += sink.valid.eq(source.valid & Cat(others).all())


def stream_connect(m, source, sink):
    """Connect a stream to a sink, also inside an `m.If` or `m.Case` of module `m`.

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
    """Connect `consumer` to the producer whose condition holds.

    Parameters
    ----------
    m : Module
    consumer : stream
    choices : (Value, stream)
        Conditions, of which at most one holds, and producers.
    """
    (_, default), *_ = choices
    m.d.comb += consumer.p.eq(default.p)  # without a condition the payload is free: no gates
    for condition, producer in choices:
        with m.If(condition):
            stream_connect(m, producer, consumer)


def stream_demux(m, producer, *choices):
    """Connect `producer` to the consumer whose condition holds.

    Parameters
    ----------
    m : Module
    producer : stream
    choices : (Value, stream)
        Conditions, of which at most one holds, and consumers.
    """
    for condition, consumer in choices:
        m.d.comb += consumer.p.eq(producer.p)
        with m.If(condition):
            m.d.comb += [
                consumer.valid.eq(producer.valid),
                producer.ready.eq(consumer.ready),
            ]


def stream_resize(m, producer, consumer):
    """Connect two streams of `lane_results`; elements are truncated, or extended with zeros."""
    m.d.comb += [
        consumer.valid.eq(producer.valid),
        producer.ready.eq(consumer.ready),
        consumer.p.present.eq(producer.p.present),
        consumer.p.last.eq(producer.p.last),
        *(element.eq(Cat(value)) for element, value in zip(
            consumer.p.values, producer.p.values, strict=True)),
    ]
