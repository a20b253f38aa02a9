"""The rules of AXI4 for a master, and the freedom of the memory that answers it.

Source: ARM IHI 0022, AMBA AXI protocol. The memory may answer bursts of one id in order, those of
unlike ids in any order, whenever it likes.
"""

from amaranth import Cat, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR

from tests.formal.prover import after_reset, any_constant

PAGE_BYTES = 4096  # that no burst crosses


def holds(m, valid, ready, payload):
    """State that what is valid stays, unchanged, until it is taken, and that reset ends it.

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
    """State that a burst is as wide as the bus, not too long, and stays within its page."""
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


def reads(m, config, bus, *, longest, ids, outstanding, words):
    """The rules of a read master, and a memory that reads.

    Parameters
    ----------
    longest : int
        Words of the longest burst.
    ids : int
        Ids in use.
    outstanding, words : int
        Most bursts, and words, of one id that are owed.

    Returns
    -------
    owed : list of Signal
        Bursts of each id without their last word.
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
            # At least a word is left to each burst, and none without one.
            Assume(~(bus.rvalid & (bus.rid == number)) | (beats != 0)
                   & (bus.rlast | (beats > bursts)) & (~bus.rlast | (bursts != 1) | (beats == 1))),
            Assert(bursts <= outstanding),
            Assert(beats <= words),
        ]
        m.d.sync += [
            bursts.eq(bursts + asked - (came & bus.rlast)),
            beats.eq(beats + asked * (bus.arlen + 1) - came),
        ]
        # What a memory like that comes to.
        m.d.comb += [Assert((bursts == 0) == (beats == 0)), Assert(bursts <= beats)]
    return owed


def writes(m, config, bus, *, longest, ids, outstanding, bursts=8):
    """The rules of a write master, and a memory that writes.

    One burst of the first `bursts`, any, is followed: its beats are as many as its address says.
    Data may come before its address.

    Parameters
    ----------
    longest, ids : int
        As of `reads`.
    outstanding : int
        Most bursts without an answer.

    Returns
    -------
    owed, unpaid : Value
        Bursts with an address and no answer; whether one has not all its words.
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
    for number in range(ids):  # of its id
        its = Signal(width, name=f"owed{number}")
        m.d.sync += its.eq(its + (takes & (bus.awid == number)) - (ends & (bus.bid == number)))
        m.d.comb += Assume(~(bus.bvalid & (bus.bid == number)) | (its != 0))
    return owed, addressed > complete
