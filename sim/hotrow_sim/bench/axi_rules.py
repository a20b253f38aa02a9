"""The rules of AXI4, checked on the pins of a master in every cycle.

Written from ARM IHI 0022, AMBA AXI protocol, chapter A3 and A5, and from nothing of the design; the
master under test sends aligned INCR bursts of the bus's width with one value of AxCACHE and AxPROT.
"""

from collections import deque

PAGE = 4096
ADDRESS = ("id", "addr", "len", "size", "burst", "cache", "prot")
READ = (("ar", ADDRESS, True), ("r", ("id", "data", "resp", "last"), False))
WRITE = (("aw", ADDRESS, True), ("w", ("data", "strb", "last"), True),
         ("b", ("id", "resp"), False))
INCR, CACHE, PROT = 0b01, 0b0011, 0b000


class AxiRules:
    """One interface, cycle by cycle.

    Parameters
    ----------
    channels : tuple
        `READ`, `WRITE`, or both.
    bus_bytes : int

    Attributes
    ----------
    broken : list of str
        Each rule that was broken, with its cycle.
    bursts : dict of str to int
        Address handshakes, by channel.
    """

    def __init__(self, channels, bus_bytes):
        self.channels, self.bus_bytes = channels, bus_bytes
        self.broken, self.bursts = [], dict.fromkeys(("ar", "aw"), 0)
        self._cycle, self._was_reset = 0, False
        self._forget()

    def _forget(self):
        self._waiting = {}  # by channel: a valid payload that was not accepted
        self._reads = {}  # by id: the beats to come of each burst
        self._writes = deque()  # ids of the writes with an address and no answer
        self._lengths, self._sent = deque(), deque()  # beats of addresses, and of data bursts
        self._beats = 0  # of the data burst that has begun

    @property
    def pins(self):
        """Names of all signals, as "araddr"."""
        return [channel + name for channel, payload, _ in self.channels
                for name in (*payload, "valid", "ready")]

    @property
    def idle(self):
        """Every burst has been answered, and no beat is without its address."""
        return not (self._reads or self._writes or self._beats or self._sent or self._waiting)

    def cycle(self, pin, reset=False):
        """Check the values before a rising edge; `pin` returns that of a name, or None if it is
        undefined."""
        self._cycle += 1
        if reset:
            self._forget()
        for channel, payload, from_master in () if reset else self.channels:
            self._rule(not (self._was_reset and from_master and pin(f"{channel}valid")),
                       f"{channel}valid is high after reset")
            self._handshake(channel, payload, from_master, pin)
        self._was_reset = reset

    def _rule(self, holds, text):
        if not holds:
            self.broken.append(f"cycle {self._cycle}: {text}")

    def _handshake(self, channel, payload, from_master, pin):
        valid, ready = pin(f"{channel}valid"), pin(f"{channel}ready")
        self._rule(valid is not None and ready is not None, f"{channel}: undefined handshake")
        values = {name: pin(channel + name) for name in payload} if valid else {}
        if from_master:
            waiting = self._waiting.pop(channel, None)
            self._rule(waiting is None or valid, f"{channel}valid fell before {channel}ready")
            for name in values if waiting else ():
                self._rule(values[name] == waiting[name],
                           f"{channel}{name} changed before {channel}ready")
            if valid and not ready:
                self._waiting[channel] = values
            if valid:
                self._rule(None not in values.values(), f"{channel}: undefined payload")
        if valid and ready:
            getattr(self, f"_{channel}")(**values)

    def _address(self, channel, id, addr, len, size, burst, cache, prot):
        self.bursts[channel] += 1
        self._rule(1 << size == self.bus_bytes, f"{channel}size is not the bus's width")
        self._rule(burst == INCR, f"{channel}burst is not INCR")
        self._rule((cache, prot) == (CACHE, PROT), f"{channel}cache {cache}, {channel}prot {prot}")
        self._rule(addr % self.bus_bytes == 0, f"{channel}addr {addr:#x} is not aligned")
        self._rule(addr // PAGE == (addr + (len + 1) * self.bus_bytes - 1) // PAGE,
                   f"{channel}: a burst crosses 4 KiB: {addr:#x}, {len + 1} beats")

    def _ar(self, id, len, **others):
        self._address("ar", id=id, len=len, **others)
        self._reads.setdefault(id, deque()).append(len + 1)

    def _r(self, id, last, **_):
        bursts = self._reads.get(id)
        self._rule(bursts, f"rid {id} has no burst in flight")
        if not bursts:
            return
        bursts[0] -= 1
        self._rule(last == (bursts[0] == 0), f"rlast of id {id} with {bursts[0]} beats to come")
        if not bursts[0]:
            bursts.popleft()
        if not bursts:
            del self._reads[id]

    def _aw(self, id, len, **others):
        self._address("aw", id=id, len=len, **others)
        self._writes.append(id)
        self._lengths.append(len + 1)
        self._pair()

    def _w(self, last, **_):
        self._beats += 1
        if last:
            self._sent.append(self._beats)
            self._beats = 0
        self._pair()
        self._rule(not self._lengths or self._beats < self._lengths[0],
                   "wlast missing on the last beat")

    def _pair(self):
        """Compare addresses with the data bursts that are complete."""
        while self._lengths and self._sent:
            wanted, sent = self._lengths.popleft(), self._sent.popleft()
            self._rule(wanted == sent, f"wlast after {sent} beats of a burst of {wanted}")

    def _b(self, id, **_):
        self._rule(id in self._writes, f"bid {id} has no burst in flight")
        self._rule(len(self._writes) > len(self._lengths), "an answer before the last beat")
        if id in self._writes:
            self._writes.remove(id)
