"""Arbitration of AXI4 address channels for a slave that serves one burst at a time."""

from amaranth import Cat


def accept_address(m, arbiter, owner, ports, channel, keep):
    """Accept an address from one of the masters, inside a state of an FSM for that purpose.

    Parameters
    ----------
    m : Module
    arbiter : RoundRobinArbiter
    owner : Signal
        Register for the one-hot number of the master.
    ports : sequence of AXI4Read or AXI4Write
        The masters' ports, seen from the slave.
    channel : str
        The address channel, "ar" or "aw".
    keep : callable
        Given the number and the port of a master, returns the statements that register its address.

    Returns
    -------
    Value
        High if an address is accepted in this cycle.
    """
    m.d.comb += [
        arbiter.requests.eq(Cat(getattr(port, f"{channel}valid") for port in ports)),
        arbiter.accept.eq(1),
    ]
    m.d.sync += owner.eq(arbiter.grant)
    for number, port in enumerate(ports):
        m.d.comb += getattr(port, f"{channel}ready").eq(arbiter.grant[number])
        with m.If(arbiter.grant[number]):
            m.d.sync += keep(number, port)
    return arbiter.grant.any()
