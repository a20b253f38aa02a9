"""A host at the other end of a link: memory, faults, and accesses to the card's registers.

The headers are packed and unpacked by cocotbext-pcie, a model that knows nothing of the bridge.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId
from hotrow_rtl.pcie.layouts import Type

from .damage import DAMAGES, damaged
from .packets import packet

MEMORY = 1 << 16  # bytes, repeated in the whole address space
FAULT_BLOCK = 512  # bytes that share a fault
HOST, CARD = PcieId(0, 0, 0), PcieId(3, 0, 0)
FAULTS = ("unsupported", "aborted", "poisoned", "lost", "late")
READS = (TlpType.MEM_READ, TlpType.MEM_READ_64)
WRITES = (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64)
TAG_LIMIT = 32


@dataclass
class HostRequest:
    """A request to the card, and the status and data of the answer that it expects.

    `check` is None for a request that has no answer, else it receives the completion.
    """

    tlp: Tlp
    check: object = None
    kind: str = "request"


@dataclass
class RootComplex:
    """Answers the card's requests in any legal way.

    Parameters
    ----------
    rng : numpy.random.Generator
    max_payload, max_read : int
        Bytes that the card may write, and request, at once.
    boundary : int
        64 or 128: completions are split there.
    latency : int
        Cycles from a request to its first completion.
    spread : int
        Further random cycles for each request, so that later ones overtake it.
    splits : float
        Share of boundaries at which a completion ends.
    faults : dict of int to str
        One of `FAULTS` by number of the block of `FAULT_BLOCK` bytes in the memory.
    lateness : int
        Cycles more for "late" completions.
    strays : float
        Share of cycles with a completion that belongs to no request.
    damage : float
        Share of the completions with data before which a damaged one is sent.
    damages : tuple of str
        Of which kinds.

    Attributes
    ----------
    memory : uint8[MEMORY]
    writes : list of (int, bytes, int, int)
        Address, payload, byte enables of the first and the last double word.
    in_flight : int
        Most requests in flight at once.
    packets : Counter of str
        In both directions, by kind.
    """

    rng: np.random.Generator
    max_payload: int = 128
    max_read: int = 512
    boundary: int = 64
    latency: int = 20
    spread: int = 0
    splits: float = 0.5
    faults: dict = field(default_factory=dict)
    lateness: int = 0
    strays: float = 0
    damage: float = 0
    damages: tuple = tuple(DAMAGES)

    def __post_init__(self):
        self.memory = self.rng.integers(0, 256, MEMORY, np.uint8)
        self.writes, self.packets, self.in_flight = [], Counter(), 0
        self.asked = {}  # by tag: parts that the card still expects
        self.parts = {}  # by tag: (cycle, parts) still to be sent
        self.requests, self.expected = deque(), deque()

    def receive(self, octets: bytes, cycle: int) -> None:
        """Accept a packet of the card."""
        tlp = Tlp.unpack(octets)
        self.packets[f"from the card: {tlp.fmt_type.name}"] += 1
        assert tlp.check() and len(octets) == tlp.get_size(), f"a wrong packet: {tlp!r}"
        if tlp.fmt_type in (TlpType.CPL, TlpType.CPL_DATA, TlpType.CPL_LOCKED):
            assert self.expected, f"a completion that nothing asked for: {tlp!r}"
            assert tlp.requester_id == HOST and tlp.completer_id == CARD, repr(tlp)
            self.expected.popleft()(tlp)
            return
        assert tlp.requester_id == CARD, repr(tlp)
        long = tlp.fmt_type in (TlpType.MEM_READ_64, TlpType.MEM_WRITE_64)
        assert long == (tlp.address >= 1 << 32), f"the wrong header for the address: {tlp!r}"
        if tlp.length > 1:
            assert tlp.first_be in (0xF, 0xE, 0xC, 8) and tlp.last_be in (0xF, 7, 3, 1), repr(tlp)
        else:
            assert tlp.last_be == 0, repr(tlp)
        if tlp.fmt_type in WRITES:
            self._write(tlp)
        else:
            assert tlp.fmt_type in READS, repr(tlp)
            self._read(tlp, cycle)

    def _write(self, tlp):
        assert 4 * tlp.length <= self.max_payload, f"more than the largest payload: {tlp!r}"
        self.writes.append((tlp.address, bytes(tlp.data), tlp.first_be, tlp.last_be))
        for idx, octet in enumerate(tlp.data):
            strobes = tlp.first_be if idx < 4 else (
                tlp.last_be if idx >= len(tlp.data) - 4 else 0xF)
            if strobes >> idx % 4 & 1:
                self.memory[(tlp.address + idx) % MEMORY] = octet

    def _read(self, tlp, cycle):
        assert 4 * tlp.length <= self.max_read, f"more than the largest read: {tlp!r}"
        assert tlp.tag < TAG_LIMIT and tlp.tag not in self.parts, f"a tag in use: {tlp!r}"
        start = cycle + self.latency + int(self.rng.integers(0, self.spread + 1))
        fault = self.faults.get(tlp.address % MEMORY // FAULT_BLOCK)
        parts = self._parts(tlp, fault)
        if fault == "late":
            start += self.lateness
        if parts:
            self.parts[tlp.tag] = (start, parts)
        self.in_flight = max(self.in_flight, len(self.parts))

    def _parts(self, tlp, fault):
        """The completions of a read; damaged, if it has a fault."""
        size, done, parts = 4 * tlp.length, 0, deque()
        octets = self.memory[(tlp.address + np.arange(size)) % MEMORY].tobytes()
        while done < size:
            part = self.boundary - (tlp.address + done) % self.boundary
            while part < size - done and part + self.boundary <= self.max_payload \
                    and self.rng.random() >= self.splits:
                part += self.boundary
            part = min(part, size - done)
            completion = Tlp.create_completion_data_for_tlp(tlp, HOST)
            completion.byte_count = size - done
            completion.lower_address = tlp.address + done & 0x7F
            completion.set_data(octets[done:done + part])
            parts.append(completion)
            done += part
        bad = int(self.rng.integers(0, len(parts)))
        if fault == "poisoned":
            parts[bad].ep = True
        elif fault in ("unsupported", "aborted"):
            status = CplStatus.UR if fault == "unsupported" else CplStatus.CA
            completion = Tlp.create_completion_for_tlp(tlp, HOST, False, status)
            completion.byte_count = parts[bad].byte_count
            completion.lower_address = parts[bad].lower_address
            parts = deque([*list(parts)[:bad], completion])
        elif fault == "lost":
            parts = deque(list(parts)[:bad])
        return parts

    def send(self, cycle: int):
        """The bytes of the next packet to the card, or None."""
        if self.strays and self.rng.random() < self.strays:
            return self._stray()
        if self.requests and (not self.parts or self.rng.random() < 0.5):
            request = self.requests.popleft()
            if request.check:
                self.expected.append(request.check)
            self.packets[request.kind] += 1
            return bytes(request.tlp.pack())
        due = [tag for tag, (start, _) in self.parts.items() if start <= cycle]
        if not due:
            return None
        tag = due[int(self.rng.integers(0, len(due)))] if self.spread else due[0]
        _, parts = self.parts[tag]
        octets = bytes(parts[0].pack())
        if self.damage and parts[0].data and self.rng.random() < self.damage:
            kind = self.damages[int(self.rng.integers(0, len(self.damages)))]
            self.packets[f"completion, {kind}"] += 1
            return damaged(octets, kind, self.rng)
        poisoned = ", poisoned" if parts[0].ep else ""
        self.packets[f"completion, {parts[0].status.name}{poisoned}"] += 1
        parts.popleft()
        if not parts:
            del self.parts[tag]
        return octets

    def _stray(self):
        """A completion of a tag that is free, or with the byte count of no part, or locked, or a
        failure of a tag that the card has not."""
        rng = self.rng
        free = sorted(set(range(256)) - set(self.parts))
        kind, tag, fmt, status = Type.COMPLETION, int(rng.choice(free)), 2, 0
        count = 64 if tag >= TAG_LIMIT else 4095
        drawn = int(rng.integers(0, 4))
        if drawn == 1:
            kind, tag = Type.LOCKED_COMPLETION, int(rng.integers(0, 256))
        if drawn > 1:
            kind = (Type.COMPLETION, Type.LOCKED_COMPLETION)[drawn - 2]
            fmt, status = 0, int(rng.integers(0, 8))
            tag = int(rng.integers(TAG_LIMIT if drawn == 2 else 0, 256))
        self.packets[f"stray {'' if fmt else 'failed '}{kind.name}".lower()] += 1
        length = 16 if fmt else 0
        return packet(fmt, kind, length, [status << 13 | count, int(CARD) << 16 | tag << 8],
                      bytes(4 * length)).pack()
