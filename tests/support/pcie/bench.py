"""The bridge between masters, registers and a root complex, with random stalls."""

import math
from collections import deque

import numpy as np
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR, DECERR, OKAY, AXI4Read, AXI4Write
from hotrow_rtl.pcie.bridge import Bridge
from hotrow_rtl.pcie.layouts import Type

from ..units.pins import PinnedUnit
from .root_complex import CARD

REGISTER_BITS = 12
TIMEOUT = 600  # cycles
IN_ARBITER = 2  # packets that it may have accepted before
FRAMING = 8  # bytes of the link in addition to a packet


def bridge(bus_bytes, readers=2, writers=2):
    """A bridge with masters of different id widths."""
    bus = {"address_width": 64, "bus_bytes": bus_bytes}
    return Bridge([AXI4Read(id_width=3 + number, **bus) for number in range(readers)],
                  [AXI4Write(id_width=3 + number, **bus) for number in range(writers)],
                  REGISTER_BITS)


class Stall:
    """Random bits, high in a share of the cycles; a change of the bit is rare."""

    def __init__(self, rng, share):
        self.rng, self.share, self._drawn = rng, share, []

    def __call__(self):
        if not self.share:
            return False
        if not self._drawn:
            self._drawn = (self.rng.random(1000) < self.share).tolist()
        return self._drawn.pop()


class Mastering:
    """Bus master enable, and the last cycle in which it was low."""

    def __init__(self, unit):
        self.unit, self.on, self.cycle, self.low_at = unit, True, 0, -1

    def drive(self):
        self.unit.set("master", self.on)

    def sample(self):
        if not self.on:
            self.low_at = self.cycle
        self.cycle += 1


class ReadMaster:
    """Sends bursts and checks the words, the response and the order of the answers.

    `expect(address, size)` returns the data and the response of each word of a burst. The response
    may be DECERR as well if `mastering` was low since the burst was accepted, or `patience` cycles
    have passed since.
    """

    def __init__(self, unit, number, bus_bytes, expect, stall, mastering):
        self.unit, self.bus_bytes, self.expect, self.stall = unit, bus_bytes, expect, stall
        self.mastering, self.refused, self.patience = mastering, 0, math.inf
        self._since = deque()  # cycle in which the burst of each word in `owed` was accepted
        self.name, self.bursts, self.owed, self.words = f"read_{number}", deque(), deque(), 0
        self._held = None
        unit.set(f"{self.name}_arsize", log2(bus_bytes))
        unit.set(f"{self.name}_arburst", BURST_INCR)

    def idle(self):
        return not self.bursts and not self.owed

    def drive(self):
        unit, name = self.unit, self.name
        self._valid = bool(self.bursts) and (self._held or not self.stall())
        unit.set(f"{name}_arvalid", self._valid)
        if self._valid and not self._held:
            address, words, identity = self.bursts[0]
            unit.set(f"{name}_araddr", address)
            unit.set(f"{name}_arlen", words - 1)
            unit.set(f"{name}_arid", identity)
        self._ready = not self.stall()
        unit.set(f"{name}_rready", self._ready)

    def sample(self):
        unit, name = self.unit, self.name
        self._held = self._valid and not unit.get(f"{name}_arready")
        if self._valid and not self._held:
            self._accept(*self.bursts.popleft())
        if not unit.get(f"{name}_rvalid"):
            return
        assert self.owed, f"{name}: a word that no burst asked for"
        if self._ready:
            found = tuple(unit.get(f"{name}_{field}") for field in ("rid", "rlast", "rresp"))
            identity, last, response, data, address = self.owed.popleft()
            cycle = self._since.popleft()
            if found[2] == DECERR != response and (
                    self.mastering.low_at >= cycle
                    or self.mastering.cycle - cycle > self.patience):
                response = DECERR
                self.refused += 1
            assert found == (identity, last, response), (
                f"{name}: id, last, response {found}, not {(identity, last, response)}, of the "
                f"word at {address:#x}")
            assert response or unit.get(f"{name}_rdata") == data, f"{name}: data at {address:#x}"
            self.words += 1

    def _accept(self, address, words, identity):
        octets, responses = self.expect(address, words * self.bus_bytes)
        for word in range(words):
            at = word * self.bus_bytes
            self.owed.append((identity, int(word == words - 1), responses[word],
                              int.from_bytes(octets[at:at + self.bus_bytes], "little"),
                              address + at))
            self._since.append(self.mastering.cycle - 1)


class WriteMaster:
    """Sends bursts of (address, octets, strobes, id).

    Attributes
    ----------
    accepted : list
        Bursts.
    responses : list of int
        Of the first of them. DECERR is right only if `mastering` was low in the meantime.
    """

    def __init__(self, unit, number, bus_bytes, stall, mastering):
        self.unit, self.bus_bytes, self.stall, self.mastering = unit, bus_bytes, stall, mastering
        self.name, self.addresses, self.words, self.owed = f"write_{number}", deque(), deque(), []
        self.accepted, self.responses = [], []
        self._held_address = self._held_word = False
        unit.set(f"{self.name}_awsize", log2(bus_bytes))
        unit.set(f"{self.name}_awburst", BURST_INCR)

    def write(self, address, octets, strobes, identity):
        self.addresses.append((address, octets, strobes, identity))
        enabled = np.packbits(strobes, bitorder="little").tobytes()
        for at in range(0, len(octets), self.bus_bytes):
            end = at + self.bus_bytes
            self.words.append((int.from_bytes(octets[at:end], "little"),
                               int.from_bytes(enabled[at // 8:end // 8], "little"),
                               end == len(octets)))

    def idle(self):
        return not self.addresses and not self.words and not self.owed

    def drive(self):
        unit, name = self.unit, self.name
        self._address = bool(self.addresses) and (self._held_address or not self.stall())
        unit.set(f"{name}_awvalid", self._address)
        if self._address and not self._held_address:
            address, octets, _, identity = self.addresses[0]
            unit.set(f"{name}_awaddr", address)
            unit.set(f"{name}_awlen", len(octets) // self.bus_bytes - 1)
            unit.set(f"{name}_awid", identity)
        self._word = bool(self.words) and (self._held_word or not self.stall())
        unit.set(f"{name}_wvalid", self._word)
        if self._word and not self._held_word:
            data, strobes, last = self.words[0]
            unit.set(f"{name}_wdata", data)
            unit.set(f"{name}_wstrb", strobes)
            unit.set(f"{name}_wlast", last)
        self._ready = not self.stall()
        unit.set(f"{name}_bready", self._ready)

    def sample(self):
        unit, name = self.unit, self.name
        self._held_address = self._address and not unit.get(f"{name}_awready")
        if self._address and not self._held_address:
            burst = self.addresses.popleft()
            self.accepted.append(burst)
            self.owed.append((burst[3], self.mastering.cycle - 1))
        self._held_word = self._word and not unit.get(f"{name}_wready")
        if self._word and not self._held_word:
            self.words.popleft()
        if unit.get(f"{name}_bvalid"):
            assert self.owed, f"{name}: an answer that no burst asked for"
            if self._ready:
                identity, cycle = self.owed.pop(0)
                response = unit.get(f"{name}_bresp")
                assert unit.get(f"{name}_bid") == identity, name
                assert response == OKAY or (
                    response == DECERR and self.mastering.low_at >= cycle), f"{name}: {response}"
                self.responses.append(response)


class Registers:
    """Registers of 32 bits that count the answered bursts in register 0.

    Register 1 answers SLVERR and register 2 DECERR.
    """

    def __init__(self, unit, stall, answered):
        self.unit, self.stall, self.answered = unit, stall, answered
        self.values = np.zeros(1 << REGISTER_BITS - 2, np.uint32)
        self._read = self._address = self._data = None
        self._response = self._open = False

    def drive(self):
        unit = self.unit
        unit.set("registers_arready", self._read is None)
        unit.set("registers_rvalid", self._read is not None)
        if self._read is not None:
            value, response = self._read
            unit.set("registers_rdata", value)
            unit.set("registers_rresp", response)
        self._open = not self.stall()
        unit.set("registers_awready", self._open and self._address is None)
        unit.set("registers_wready", self._open and self._data is None)
        unit.set("registers_bvalid", self._response)

    def sample(self):
        unit = self.unit
        if self._read is not None:
            if unit.get("registers_rready"):
                self._read = None
        elif unit.get("registers_arvalid"):
            number = unit.get("registers_araddr") // 4
            value = self.answered() if number == 0 else int(self.values[number])
            self._read = value, {1: 2, 2: 3}.get(number, 0)
        if self._response:
            if unit.get("registers_bready"):
                self._response, self._address, self._data = False, None, None
            return
        if self._open and self._address is None and unit.get("registers_awvalid"):
            self._address = unit.get("registers_awaddr")
        if self._open and self._data is None and unit.get("registers_wvalid"):
            self._data = unit.get("registers_wdata"), unit.get("registers_wstrb")
        if self._address is not None and self._data is not None:
            value, strobes = self._data
            mask = sum(0xFF << 8 * lane for lane in range(4) if strobes >> lane & 1)
            number = self._address // 4
            self.values[number] = int(self.values[number]) & ~mask | value & mask
            self._response = True


class Link:
    """The stream of the PHY: packets to and from a root complex.

    Attributes
    ----------
    enables : int
        Double words that are enabled in every beat to the card.
    padded : bool
        Packets to the card end with a multiple of 16 bytes, if need be by a beat without double
        words.
    """

    def __init__(self, unit, bus_bytes, root, stall, mastering, pace=0.0):
        self.unit, self.bus_bytes, self.root, self.stall = unit, bus_bytes, root, stall
        self.mastering, self._in_arbiter = mastering, IN_ARBITER
        self.cycle, self.pace, self.enables, self.padded = 0, pace, 0, False
        self._packet, self._beats, self._held, self._free_at = b"", deque(), False, 0.0

    def drive(self):
        unit = self.unit
        self._ready = not self.stall()
        unit.set("sent_ready", self._ready)
        if not self._beats and self.cycle >= self._free_at and (
                packet := self.root.send(self.cycle)):
            self._queue(packet)
        self._valid = bool(self._beats) and (self._held or not self.stall())
        unit.set("received_valid", self._valid)
        if self._valid and not self._held:
            unit.set("received_payload", self._beats[0])

    def _queue(self, packet):
        if self.pace:  # bytes a cycle of the link, with the framing of a packet
            self._free_at = max(self._free_at, self.cycle - 1) + (
                len(packet) + FRAMING) / self.pace
        width = 8 * self.bus_bytes
        size = -(-len(packet) // 16) * 16 if self.padded else len(packet)
        for at in range(0, size, self.bus_bytes):
            piece = packet[at:at + self.bus_bytes]
            data = 0
            for dword in range(0, len(piece), 4):
                data |= int.from_bytes(piece[dword:dword + 4], "big") << 8 * dword
            keep = (1 << len(piece) // 4) - 1 | self.enables
            last = at + self.bus_bytes >= size
            self._beats.append(data | keep << width | last << width + self.bus_bytes // 4)

    def sample(self):
        unit = self.unit
        self._held = self._valid and not unit.get("received_ready")
        if self._valid and not self._held:
            self._beats.popleft()
        if self._ready and unit.get("sent_valid"):
            value, width = unit.get("sent_payload"), 8 * self.bus_bytes
            keep, last = value >> width & (1 << self.bus_bytes // 4) - 1, value >> (
                width + self.bus_bytes // 4)
            count = keep.bit_length()
            assert keep == (1 << count) - 1 and (last or count == self.bus_bytes // 4), "keep"
            if not self._packet and value >> 24 & 0x1F == Type.MEMORY and not self.mastering.on:
                self._in_arbiter -= 1
                assert self._in_arbiter >= 0, "a request without bus master enable"
            for dword in range(count):
                self._packet += (value >> 32 * dword & 0xFFFFFFFF).to_bytes(4, "big")
            if last:
                self.root.receive(self._packet, self.cycle)
                self._packet = b""
        if self.mastering.on:
            self._in_arbiter = IN_ARBITER
        self.cycle += 1


class BridgeBench:
    """A bridge and all that it is connected to.

    Parameters
    ----------
    bus_bytes : int
    root : RootComplex
    rng : numpy.random.Generator
    expect : callable
        See `ReadMaster`.
    stalls : float
        Share of cycles in which each side stalls.
    pace : float
        Bytes a cycle that the link carries to the card; 0 for the width of the stream.
    timeout : int
    """

    def __init__(self, bus_bytes, root, rng, expect, *, stalls=0.0, pace=0.0, timeout=TIMEOUT):
        self.unit, self.root, self.rng = PinnedUnit(bridge, bus_bytes), root, rng
        unit, stall = self.unit, Stall(rng, stalls)
        for name, value in (("identity", int(CARD)), ("max_read_bytes", root.max_read),
                            ("max_payload_bytes", root.max_payload), ("timeout", timeout)):
            unit.set(name, value)
        for _ in range(4):
            unit.step(reset=1)
        self.mastering = mastering = Mastering(unit)
        self.readers = [ReadMaster(unit, number, bus_bytes, expect, stall, mastering)
                        for number in range(2)]
        self.writers = [WriteMaster(unit, number, bus_bytes, stall, mastering)
                        for number in range(2)]
        self.link = Link(unit, bus_bytes, root, stall, mastering, pace)
        self.registers = Registers(unit, stall, lambda: sum(
            len(writer.responses) for writer in self.writers))
        self.agents = [mastering, *self.readers, *self.writers, self.registers, self.link]

    def step(self):
        """Run a cycle."""
        for agent in self.agents:
            agent.drive()
        self.unit.step()
        for agent in self.agents:
            agent.sample()

    def idle(self):
        return (all(master.idle() for master in (*self.readers, *self.writers))
                and not self.root.parts and not self.root.requests and not self.root.expected)

    def run(self, limit):
        """Run until everything is answered; return the cycles.

        Raises
        ------
        AssertionError
            After `limit` cycles.
        """
        start = self.link.cycle
        while not self.idle():
            self.step()
            assert self.link.cycle - start < limit, (
                f"not finished after {limit} cycles: {len(self.root.parts)} reads in flight, "
                f"owed {[len(master.owed) for master in (*self.readers, *self.writers)]}")
        return self.link.cycle - start
