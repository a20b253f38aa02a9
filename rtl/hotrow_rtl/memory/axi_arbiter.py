"""Several AXI4 masters take turns: the first step of what serves one burst at a time."""

from amaranth import Cat


def take_turn(m, turns, turn, ports, channel, keep):
    """Accept the next address of one of the masters, within a state that does nothing else.

    Parameters
    ----------
    m : Module
    turns : RoundRobinArbiter
    turn : Signal
        Takes the one-hot number of the master.
    ports : sequence of AXI4Read or AXI4Write
        Of the masters, seen from their slave.
    channel : str
        Of the address, "ar" or "aw".
    keep : callable
        Given number and port of a master, what registers take of its address.

    Returns
    -------
    Value
        An address has been accepted.
    """
    m.d.comb += [
        turns.requests.eq(Cat(getattr(port, f"{channel}valid") for port in ports)),
        turns.accept.eq(1),
    ]
    m.d.sync += turn.eq(turns.grant)
    for number, port in enumerate(ports):
        m.d.comb += getattr(port, f"{channel}ready").eq(turns.grant[number])
        with m.If(turns.grant[number]):
            m.d.sync += keep(number, port)
    return turns.grant.any()
