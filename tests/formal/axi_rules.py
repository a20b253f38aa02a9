"""The AXI4 rules of a master, and a memory that answers it with any legal behaviour.

Source: ARM IHI 0022, AMBA AXI protocol. The memory answers bursts of one id in order, those of
different ids in any order, after any delay.
"""

from amaranth import Cat, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR

from tests.formal.prover import after_reset, any_constant

PAGE_BYTES = 4096  # no burst crosses a multiple


def holds(m, valid, ready, payload):
    """Assert that a valid payload stays unchanged until `ready`, and that reset clears `valid`.

    Parameters
    ----------
    valid, ready : Signal
    payload : list of Signal
    """
    waits, bits = Signal(), Cat(payload)
    before = Signal(len(bits))
    m.d.sync += [waits.eq(valid & ~ready), before.eq(bits)]
    m.d.comb += [
        Assert(~waits | valid & (bits == before)),
        Assert(~after_reset(m) | ~valid),
        Cover(waits & ready),
    ]


def legal_burst(m, config, valid, address, length, size, kind, *, longest):
    """Assert that a burst has the width of the bus, a legal length, and stays within a page."""
    m.d.comb += [
        Assert(size == log2(config.bus_bytes)),
        Assert(kind == BURST_INCR),
    ]
    with m.If(valid):
        m.d.comb += [
            Assert(length < longest),
            Assert(address[:log2(config.bus_bytes)] == 0),
            Assert(address[:log2(PAGE_BYTES)] + (length + 1) * config.bus_bytes <= PAGE_BYTES),
        ]


def restart_ends(m, port, own):
    """Assert that a port which drains waits for its memory until its time-out, and no longer."""
    waits = Signal(6)
    m.d.sync += waits.eq(0)
    with m.If(own.draining & ~port.stopped & ~own.watchdog.progress & ~port.restart):
        m.d.sync += waits.eq(waits + 1)
    m.d.comb += Assert((port.timeout == 0) | (waits <= port.timeout + 1))


def reads(m, config, bus, *, longest, ids, outstanding, words):
    """Assert the rules of a read master; drive the inputs like a memory.

    Parameters
    ----------
    longest : int
        Words of the longest burst.
    ids : int
        Ids in use.
    outstanding, words : int
        Bursts, and words, of one id in flight, at most.

    Returns
    -------
    owed : list of Signal
        Bursts of each id in flight.
    """
    holds(m, bus.arvalid, bus.arready, [bus.arid, bus.araddr, bus.arlen])
    legal_burst(m, config, bus.arvalid, bus.araddr, bus.arlen, bus.arsize, bus.arburst,
                longest=longest)
    m.d.comb += [getattr(bus, name).eq(AnySeq(len(getattr(bus, name))))
                 for name in ("arready", "rvalid", "rid", "rlast", "rresp", "rdata")]
    owed = [Signal(range(2 * outstanding + 2), name=f"owed_bursts{number}")
            for number in range(ids)]
    m.d.comb += Assert(~bus.arvalid | (bus.arid < ids))
    m.d.comb += Assume(~bus.rvalid | (bus.rid < ids))
    for number, bursts in enumerate(owed):
        beats = Signal(range(2 * words + 2), name=f"owed_words{number}")
        asked = bus.arvalid & bus.arready & (bus.arid == number)
        came = bus.rvalid & bus.rready & (bus.rid == number)
        m.d.comb += [
            # Each burst in flight has at least one word to come, and there are no other words.
            Assume(~(bus.rvalid & (bus.rid == number)) | (beats != 0)
                   & (bus.rlast | (beats > bursts)) & (~bus.rlast | (bursts != 1) | (beats == 1))),
            Assert(bursts <= outstanding),
            Assert(beats <= words),
        ]
        m.d.sync += [
            bursts.eq(bursts + asked - (came & bus.rlast)),
            beats.eq(beats + asked * (bus.arlen + 1) - came),
        ]
        # Consequences for the memory.
        m.d.comb += [Assert((bursts == 0) == (beats == 0)), Assert(bursts <= beats)]
    return owed


def writes(m, config, bus, *, longest, ids, outstanding, bursts=8):
    """Assert the rules of a write master; drive the inputs like a memory.

    The proof tracks one arbitrary burst among the first `bursts` and compares its number of beats
    with its address. Data may precede its address.

    Parameters
    ----------
    longest, ids : int
        See `reads`.
    outstanding : int
        Bursts without an answer, at most.

    Returns
    -------
    owed, unpaid : Value
        Bursts with an address and no answer; whether one of them lacks words.
    """
    holds(m, bus.awvalid, bus.awready, [bus.awid, bus.awaddr, bus.awlen])
    holds(m, bus.wvalid, bus.wready, [bus.wdata, bus.wstrb, bus.wlast])
    legal_burst(m, config, bus.awvalid, bus.awaddr, bus.awlen, bus.awsize, bus.awburst,
                longest=longest)
    m.d.comb += [getattr(bus, name).eq(AnySeq(len(getattr(bus, name))))
                 for name in ("awready", "wready", "bvalid", "bid", "bresp")]
    followed = any_constant(m, Signal(range(bursts)))
    width = bursts.bit_length() + 1
    addressed, complete, answered = (Signal(width, name=name)
                                     for name in ("addressed", "complete", "answered"))
    has_length, length, beats = Signal(), Signal(8), Signal(9)
    takes = bus.awvalid & bus.awready
    moves = bus.wvalid & bus.wready
    ends = bus.bvalid & bus.bready
    m.d.sync += [
        addressed.eq(addressed + takes),
        complete.eq(complete + (moves & bus.wlast)),
        answered.eq(answered + ends),
    ]
    with m.If(takes & (addressed == followed)):
        m.d.sync += [has_length.eq(1), length.eq(bus.awlen)]
    with m.If(moves & (complete == followed)):
        m.d.sync += beats.eq(beats + 1)
    over = complete > followed
    m.d.comb += [
        Assume((addressed < bursts) & (complete < bursts)),
        Assert(~(has_length & over) | (beats == length + 1)),
        Assert(~has_length | (beats <= length + 1)),
        Assert(over | (beats < longest)),
        Assert(~bus.awvalid | (bus.awid < ids)),
        Assume(~bus.bvalid | (bus.bid < ids)),
        Assume(~bus.bvalid | (answered < addressed) & (answered < complete)),
        Cover(has_length & over & (beats == longest) & (followed == 1)),
        Cover(answered == 2),
    ]
    owed = Signal(width)
    m.d.comb += [owed.eq(addressed - answered), Assert(owed <= outstanding)]
    for number in range(ids):  # answers have an id with a burst in flight
        its = Signal(width, name=f"owed{number}")
        m.d.sync += its.eq(its + (takes & (bus.awid == number)) - (ends & (bus.bid == number)))
        m.d.comb += Assume(~(bus.bvalid & (bus.bid == number)) | (its != 0))
    return owed, addressed > complete
