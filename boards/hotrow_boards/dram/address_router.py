"""Send the bursts of a master to one of two memories by the highest bit of their address."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.memory.axi import AXI4Read, AXI4Write

MOST = 255  # outstanding bursts of a master


class _Router(wiring.Component):
    """Bursts of one memory at a time: a burst to the other waits for all responses.

    So responses keep the order of their requests, whatever their IDs.

    Parameters
    ----------
    signature : AXI4Read or AXI4Write

    Attributes
    ----------
    master : In(signature)
    low, high : Out(signature)
        Memories at addresses without and with the highest bit, which `high` gets cleared. They
        accept an address before its data.

    Timing
    ------
    No cycles, but the data of a write comes at least one cycle after its address. A burst to the
    other memory comes one cycle after the last response.
    """

    channel = ""
    kind: type

    def __init__(self, signature):
        if not isinstance(signature, self.kind):
            raise TypeError(f"expected a signature of {self.kind.__name__}, not {signature!r}")
        super().__init__({"master": In(signature), "low": Out(signature), "high": Out(signature)})

    def route(self, m, ended):
        """Route addresses, and return the memory of the outstanding bursts."""
        channel, master = self.channel, self.master
        valid, ready, address = (f"{channel}{name}" for name in ("valid", "ready", "addr"))
        wanted, current = getattr(master, address)[-1], Signal()
        outstanding, allowed, accepted = Signal(range(MOST + 1)), Signal(), Signal()
        m.d.comb += [
            allowed.eq((outstanding == 0) | (current == wanted) & (outstanding != MOST)),
            accepted.eq(getattr(master, valid) & getattr(master, ready)),
        ]
        m.d.sync += outstanding.eq(outstanding + accepted - ended)
        with m.If(accepted):
            m.d.sync += current.eq(wanted)
        for bit, memory in enumerate((self.low, self.high)):
            for name in memory.signature.members:
                if name.startswith(channel) and name not in (valid, ready, address):
                    m.d.comb += getattr(memory, name).eq(getattr(master, name))
            m.d.comb += [
                getattr(memory, address).eq(getattr(master, address)[:-1]),
                getattr(memory, valid).eq(getattr(master, valid) & allowed & (wanted == bit)),
            ]
        m.d.comb += getattr(master, ready).eq(
            allowed & Mux(wanted, getattr(self.high, ready), getattr(self.low, ready)))
        return current

    def answer(self, m, current, names, valid, ready):
        """Connect the responses of the current memory."""
        for bit, memory in enumerate((self.low, self.high)):
            m.d.comb += getattr(memory, ready).eq(getattr(self.master, ready) & (current == bit))
        for name in (*names, valid):
            m.d.comb += getattr(self.master, name).eq(
                Mux(current, getattr(self.high, name), getattr(self.low, name)))


class ReadRouter(_Router):
    __doc__ = _Router.__doc__
    channel, kind = "ar", AXI4Read

    def elaborate(self, platform):
        m, master = Module(), self.master
        current = self.route(m, master.rvalid & master.rready & master.rlast)
        self.answer(m, current, ("rid", "rdata", "rresp", "rlast"), "rvalid", "rready")
        return m


class WriteRouter(_Router):
    __doc__ = _Router.__doc__
    channel, kind = "aw", AXI4Write

    def elaborate(self, platform):
        m, master = Module(), self.master
        current = self.route(m, master.bvalid & master.bready)
        self.answer(m, current, ("bid", "bresp"), "bvalid", "bready")
        # Bursts whose data has not ended; data waits for its address.
        sending = Signal(range(MOST + 1))
        accepted = master.awvalid & master.awready
        m.d.sync += sending.eq(
            sending + accepted - (master.wvalid & master.wready & master.wlast))
        for bit, memory in enumerate((self.low, self.high)):
            m.d.comb += [
                memory.wdata.eq(master.wdata), memory.wstrb.eq(master.wstrb),
                memory.wlast.eq(master.wlast),
                memory.wvalid.eq(master.wvalid & (sending != 0) & (current == bit)),
            ]
        m.d.comb += master.wready.eq(
            (sending != 0) & Mux(current, self.high.wready, self.low.wready))
        return m
