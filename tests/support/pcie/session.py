"""Random sessions of the bridge: reads, writes, registers, faults, bus master enable.

    python -m tests.support.pcie.session --packets 1000000 --seed 1
"""

import argparse
import time
from collections import Counter
from itertools import count

import numpy as np
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from hotrow_rtl.memory.axi import DECERR, OKAY, SLVERR
from hotrow_rtl.pcie.layouts import Type
from hotrow_rtl.pcie.target import LONGEST_READ
from hotrow_sim.golden.pcie.requests import write_requests

from .bench import REGISTER_BITS, BridgeBench
from .damage import UNDEFINED_ENABLES
from .packets import COMPLETIONS, NOT_POSTED, RawPacket, packet, with_digest
from .root_complex import FAULT_BLOCK, FAULTS, HOST, MEMORY, HostRequest, RootComplex

BASES = (0, 0xFFFF_0000, 1 << 40)  # of the memory, which repeats everywhere
READ_SPACE, WRITE_SPACE = MEMORY // 2, MEMORY // 4  # bytes: of all readers, of each writer
PAGE = 4096
RESPONSES = {None: OKAY, "unsupported": DECERR, "aborted": SLVERR, "poisoned": SLVERR,
             "lost": DECERR, "late": DECERR}
# What a session draws; `silent`: requests are lost or late, each of which takes a time-out;
# `ending`: of the packets to the card; `clears`: share of cycles in which bus master enable goes.
STATES = {
    "max_payload": (128, 256, 512), "max_read": (128, 256, 512), "boundary": (64, 128),
    "spread": (0, 40, 200), "splits": (0, 0.5, 1), "strays": (0, 0.02), "damage": (0, 0.3),
    "stalls": (0, 0.1, 0.4), "clears": (0, 0.002, 0.02), "silent": (False, False, False, True),
    "ending": ("exact", "all enabled", "padded")}
RETURNS = 0.02  # share of cycles in which bus master enable comes back
FIRST_STROBES, LAST_STROBES = (0xF, 0xE, 0xC, 0x8), (0xF, 0x7, 0x3, 0x1)
REGISTERS = 1 << REGISTER_BITS - 2
FREE_REGISTER = 3  # the first one without a meaning in `bench.Registers`


class Session:
    """One bridge with random parameters, all drawn from the seed.

    Parameters
    ----------
    seed : int
    bus_bytes : int

    Attributes
    ----------
    cleared : int
        How often bus master enable was cleared.
    """

    def __init__(self, seed, bus_bytes):
        self.rng = rng = np.random.default_rng(seed)
        self.bus_bytes, self.label = bus_bytes, f"seed {seed}, {bus_bytes} bytes"
        self.state = state = {name: values[int(rng.integers(0, len(values)))]
                              for name, values in STATES.items()}
        blocks = rng.permutation(READ_SPACE // FAULT_BLOCK)
        kinds = FAULTS if state["silent"] else FAULTS[:3]
        timeout = 2000 if state["silent"] else 20_000
        drawn = ("max_payload", "max_read", "boundary", "spread", "splits", "strays", "damage")
        self.root = root = RootComplex(
            rng, latency=int(rng.integers(1, 60)), lateness=int(2.2 * timeout),
            faults={int(blocks[idx]): kind for idx, kind in enumerate(kinds)},
            **{name: state[name] for name in drawn})
        self.bench = BridgeBench(bus_bytes, root, rng, self._expected,
                                 stalls=state["stalls"], timeout=timeout)
        self.bench.registers.answered = self._snapshot
        if state["silent"]:  # the link may take longer than that for the data of all tags
            for reader in self.bench.readers:
                reader.patience = timeout
        if state["ending"] == "all enabled":
            self.bench.link.enables = (1 << bus_bytes // 4) - 1
            root.damages = UNDEFINED_ENABLES
        self.bench.link.padded = state["ending"] == "padded"
        self._model, self.cleared = np.zeros(REGISTERS, np.uint32), 0
        self._begin()

    def run(self, steps):
        """Some rounds of traffic; returns the packets, in both directions."""
        try:
            for _ in range(steps):
                self._traffic()
                start = self.bench.link.cycle
                while not self.bench.idle():
                    self._step()
                    assert self.bench.link.cycle - start < 200_000, "no end"
                self._finish()
        except AssertionError as error:
            error.add_note(f"{self.label}, {self.state}")
            raise
        return self.root.packets.total()

    def _step(self):
        mastering, clears = self.bench.mastering, self.state["clears"]
        if clears and self.rng.random() < (clears if mastering.on else RETURNS):
            mastering.on = not mastering.on
            self.cleared += not mastering.on
        self.bench.step()

    def _traffic(self):
        rng, bus_bytes = self.rng, self.bus_bytes
        for reader in self.bench.readers:
            for _ in range(int(rng.integers(0, 40))):
                address, words = self._burst(READ_SPACE)
                reader.bursts.append((self._base() + address, words, int(rng.integers(0, 8))))
        for number, writer in enumerate(self.bench.writers):
            for _ in range(int(rng.integers(0, 40))):
                address, words = self._burst(WRITE_SPACE)
                address += READ_SPACE + number * WRITE_SPACE
                writer.write(self._base() + address, rng.integers(
                    0, 256, words * bus_bytes, np.uint8).tobytes(),
                    self._strobes(words * bus_bytes), int(rng.integers(0, 8)))
        for _ in range(int(rng.integers(0, 40))):
            self._host_request()

    def _base(self):
        return int(self.rng.choice(BASES))

    def _burst(self, space):
        """The address of a burst in the first `space` bytes, and its words."""
        rng, bus_bytes = self.rng, self.bus_bytes
        words = int(rng.choice([1, 2, 64 // bus_bytes, 128 // bus_bytes, rng.integers(1, 257)],
                               p=[0.2, 0.1, 0.4, 0.2, 0.1]))
        words = min(words, PAGE // bus_bytes)
        page = int(rng.integers(0, space // PAGE)) * PAGE
        return page + int(rng.integers(0, PAGE // bus_bytes - words + 1)) * bus_bytes, words

    def _strobes(self, size):
        rng = self.rng
        kind = rng.integers(0, 5)
        strobes = np.ones(size, bool)
        if kind == 1:
            first = int(rng.integers(0, size))
            strobes[:first] = False
            strobes[int(rng.integers(first, size + 1)):] = False
        elif kind == 2:
            strobes = rng.random(size) < rng.choice([0.1, 0.5, 0.95])
        elif kind == 3:
            strobes = np.repeat(rng.random(size // 4) < 0.7, 4)
        elif kind == 4:
            strobes[:] = rng.random() < 0.5
        return strobes

    def _expected(self, address, size):
        where = (address + np.arange(size)) % MEMORY
        return self.root.memory[where].tobytes(), [
            RESPONSES[self.root.faults.get(int(at) // FAULT_BLOCK)]
            for at in where[::self.bus_bytes]]

    def _requests(self, burst):
        """The memory writes of a burst."""
        address, octets, strobes, _ = burst
        return [(write.address, write.payload, write.first_strobes, write.last_strobes)
                for write in write_requests(address, octets, strobes, self.bus_bytes,
                                            self.root.max_payload)]

    def _received(self):
        return len(self.root.writes) - self._before

    def _snapshot(self):
        """Note how many packets the bursts have that were answered with OKAY so far."""
        for number, writer in enumerate(self.bench.writers):
            bursts, packets = self._sent[number]
            packets += sum(len(self._requests(burst)) for burst, response in zip(
                writer.accepted[bursts:], writer.responses[bursts:], strict=False)
                if response == OKAY)
            self._sent[number] = len(writer.responses), packets
        self._snapshots.append(sum(packets for _, packets in self._sent))
        return len(self._snapshots) - 1

    def _host_request(self):
        rng = self.rng
        tlp, drawn = Tlp(), rng.integers(0, 9)
        if drawn == 8:
            self._any_kind()
            return
        tlp.requester_id, tlp.tag = HOST, int(rng.integers(0, 256))
        tlp.attr = type(tlp.attr)(int(rng.integers(0, 4)))
        tlp.length = int(rng.choice([1, 1, 2, 3, LONGEST_READ]))
        number = int(rng.integers(FREE_REGISTER, REGISTERS - 64))
        long = int(rng.integers(0, 2))
        tlp.fmt_type = (TlpType.MEM_READ, TlpType.MEM_READ_64)[long]
        if drawn < 4:  # writes, some of them damaged
            tlp.length = int(rng.choice([1, 1, 2, 9, 32]))
            tlp.fmt_type = (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64)[long]
            tlp.data = rng.integers(0, 256, 4 * tlp.length, np.uint8).tobytes()
            tlp.ep = bool(rng.random() < 0.1)
        tlp.first_be, tlp.last_be = (
            (int(rng.integers(0, 16)), 0) if tlp.length == 1 else
            (int(rng.choice(FIRST_STROBES)), int(rng.choice(LAST_STROBES))))
        status = CplStatus.SC
        if drawn == 4:
            number = int(rng.integers(0, 3))
            tlp.length, tlp.first_be, tlp.last_be = 1, 0xF, 0
            status = (CplStatus.SC, CplStatus.CA, CplStatus.UR)[number]
        elif drawn == 5:
            tlp.length = int(rng.integers(LONGEST_READ + 1, 1025))
            tlp.first_be, tlp.last_be = 0xF, 0xF
            status = CplStatus.CA
        elif drawn == 6:
            tlp.fmt_type, status = TlpType.IO_READ, CplStatus.UR
            tlp.length, tlp.last_be = 1, 0
        tlp.address = (int(rng.integers(1, 1 << 20)) << 32 if long and drawn != 6 else 0) \
            + 0x8000_0000 + 4 * number
        if drawn < 4:
            self._host_write(tlp, number)
            return
        values = self._model[number:number + tlp.length].copy()
        self.root.requests.append(HostRequest(
            tlp, lambda answer: self._check(tlp, number, values, status, answer),
            f"{tlp.fmt_type.name}, {status.name}"))

    def _host_write(self, tlp, number):
        """Poisoned, with a digest, or with more or fewer double words than it says, if at all.

        Fewer only where the ending is exact: else nobody can say what is payload.
        """
        rng, octets, given, kind = self.rng, bytes(tlp.pack()), tlp.length, tlp.fmt_type.name
        drawn = rng.integers(0, 8)
        if drawn == 0:
            octets, kind = with_digest(octets, rng.bytes(4)), f"{kind}, digest"
        elif drawn == 1:
            octets, kind = octets + rng.bytes(4 * int(rng.integers(1, 20))), f"{kind}, long payload"
        elif drawn == 2 and self.state["ending"] == "exact":
            given = int(rng.integers(0, tlp.length))
            octets, kind = octets[:len(octets) - 4 * (tlp.length - given)], f"{kind}, short payload"
        if tlp.ep:
            kind = f"{kind}, poisoned"
        else:
            self._write_model(number, tlp, given)
        self.root.requests.append(HostRequest(RawPacket(octets), kind=kind))

    def _any_kind(self):
        """Any format and type but accesses to memory: answered as unsupported if not posted."""
        rng = self.rng
        fmt, kind = int(rng.integers(0, 8)), int(rng.integers(1, 32))
        tag, length = int(rng.integers(0, 256)), int(rng.integers(1, 9))
        header = [int(HOST) << 16 | tag << 8 | 0xF, *[1] * (fmt & 1), 0x8000_0010]
        if kind in COMPLETIONS:  # of a tag that the card has not
            header[1] = 255 << 8

        def check(answer):
            what = f"{self.label}: {answer!r} to format {fmt}, type {kind}"
            assert (answer.tag, answer.status) == (tag, CplStatus.UR) and not answer.data, what
            assert (answer.fmt_type == TlpType.CPL_LOCKED) == (kind == Type.LOCKED_MEMORY), what
        answered = (fmt, kind) in NOT_POSTED
        self.root.requests.append(HostRequest(
            packet(fmt, kind, length, header, rng.bytes(4 * length) if fmt & 2 else b""),
            check if answered else None, f"other types, {'' if answered else 'not '}answered"))

    def _write_model(self, number, tlp, given):
        for idx in range(given):
            strobes = tlp.first_be if idx == 0 else (
                tlp.last_be if idx == tlp.length - 1 else 0xF)
            for lane in range(4):
                if strobes >> lane & 1:
                    self._model.view(np.uint8)[4 * (number + idx) + lane] = tlp.data[4 * idx + lane]

    def _check(self, tlp, number, values, status, answer):
        what = f"{self.label}: {answer!r} to {tlp!r}"
        assert (answer.tag, answer.status, answer.attr) == (tlp.tag, status, tlp.attr), what
        if status != CplStatus.SC:
            assert not answer.data, what
            return
        assert answer.length == tlp.length, what
        assert answer.byte_count == tlp.get_be_byte_count(), what
        # cocotbext-pcie adds before it masks; source: PCI Express, 2.2.9, lower address.
        skipped = next((place for place in range(4) if tlp.first_be >> place & 1), 0)
        assert answer.lower_address == (tlp.address & 0x7C) + skipped, what
        if number == 0:  # the order: data that the register had seen answered is in the memory
            [index] = np.frombuffer(bytes(answer.data), np.uint32)
            if index < len(self._snapshots):
                assert self._received() >= self._snapshots[index], (
                    f"{self.label}: a completion passed a write")
            return
        for idx in range(tlp.length):
            strobes = tlp.first_be if idx == 0 else (
                tlp.last_be if idx == tlp.length - 1 else 0xF)
            for lane in range(4):
                if strobes >> lane & 1:
                    assert answer.data[4 * idx + lane] == int(values[idx]) >> 8 * lane & 0xFF, what

    def _begin(self):
        self._before, self._snapshots = len(self.root.writes), []
        self._sent = [(0, 0), (0, 0)]  # of each writer: bursts answered, packets of the sound ones
        for writer in self.bench.writers:
            writer.accepted.clear()
            writer.responses.clear()

    def _finish(self):
        """Compare the writes and the registers with the golden model."""
        for _ in range(200):
            self.bench.step()
        found = self.root.writes[self._before:]
        for number, writer in enumerate(self.bench.writers):
            own = [write for write in found
                   if (write[0] % MEMORY - READ_SPACE) // WRITE_SPACE == number]
            for burst, response in zip(writer.accepted, writer.responses, strict=True):
                requests = self._requests(burst)
                sent = [own.pop(0) for request in requests if own[:1] == [request]]
                assert (sent == requests) == (response == OKAY), (
                    f"{self.label}: writer {number}: {len(sent)} of {len(requests)} writes, "
                    f"response {response}")
            assert not own, f"{self.label}: writer {number}: {len(own)} writes more"
        assert np.array_equal(self.bench.registers.values, self._model), (
            f"{self.label}: registers {np.flatnonzero(self.bench.registers.values != self._model)}")
        self._begin()


def main():
    """Run sessions until enough packets have passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packets", type=int, default=20_000, help="in both directions, in all")
    parser.add_argument("--seed", type=int, default=1, help="of the first session")
    options = parser.parse_args()
    packets, cycles, cleared, start = Counter(), 0, 0, time.monotonic()
    for seed in count(options.seed):
        session = Session(seed, (8, 16)[seed % 2])
        session.run(10)
        packets += session.root.packets
        cycles, cleared = cycles + session.bench.link.cycle, cleared + session.cleared
        if packets.total() >= options.packets:
            break
    for kind, number in sorted(packets.items()):
        print(f"{number:9,} {kind}")
    print(f"{packets.total():,} packets in {cycles:,} cycles, bus master enable cleared "
          f"{cleared:,} times, seeds {options.seed} to {seed}, "
          f"{time.monotonic() - start:.0f} s: no difference")


if __name__ == "__main__":
    main()
