"""A bench that plays the same frames to a link's gateware and to its golden model."""

import zlib

import numpy as np
from hotrow_boards.link.endpoint import LinkEndpoint
from hotrow_rtl.contract.link_frames import HEADER, HEADER_BYTES, LinkStatus
from hotrow_rtl.memory.axi import OKAY, SLVERR
from hotrow_sim.link import endpoint as golden
from hotrow_sim.memory import Behaviour, MemoryModel

from tests.support.axi_responders import read_responder, write_responder
from tests.support.benches.stream_bench import STEADY, StreamBench
from tests.support.simulation import built

BASE, BYTES, BLOCK_LOG2, WINDOW = 0x4000, 0x4000, 8, 4
CARD = {"memory_base": BASE, "memory_bytes": BYTES, "window": WINDOW, "block_log2": BLOCK_LOG2,
        "clock_khz": 50_000}
REGISTER_WIDTH = 9
BAD_REGISTER = 0x80  # answers SLVERR
SESSION = 0x1234_5678


def request(operation, sequence, address=0, payload=b"", length=None, session=SESSION):
    """A request as bytes."""
    body = golden.pack(HEADER, HEADER_BYTES, {
        "session": session, "sequence": sequence, "operation": operation, "address": address,
        "length": len(payload) if length is None else length}) + payload
    return body + zlib.crc32(body).to_bytes(4, "little")


class Target:
    """Registers, memory and written blocks of a card, in Python."""

    def __init__(self, written=()):
        self.registers, self.accesses = {}, []
        self.memory = np.arange(BYTES, dtype=np.uint32).astype(np.uint8)
        self.written = sorted(written)

    def read_register(self, offset):
        if offset >> REGISTER_WIDTH:
            return None
        self.accesses.append(("read", offset))
        return None if offset == BAD_REGISTER else self.registers.get(offset, 0)

    def write_register(self, offset, value):
        if offset >> REGISTER_WIDTH:
            return False
        self.accesses.append(("write", offset, value))
        if offset != BAD_REGISTER:
            self.registers[offset] = value
        return offset != BAD_REGISTER

    def read(self, address, size):
        at = address - BASE
        return bytes(self.memory[at:at + size]) if self._exists(at, size) else None

    def write(self, address, octets):
        at = address - BASE
        if self._exists(at, len(octets)):
            self.memory[at:at + len(octets)] = np.frombuffer(octets, np.uint8)
        return self._exists(at, len(octets))

    def take_written(self, most):
        """Scan rows of 32 blocks while the reply has space for 32 more, as the gateware does."""
        found, word = [], 0
        while word < (BYTES >> BLOCK_LOG2) // 32:
            if len(found) + 32 > most:
                return found, True
            found += [(BASE >> BLOCK_LOG2) + block
                      for block in self.written if block // 32 == word]
            self.written = [block for block in self.written if block // 32 != word]
            word += 1
        return found, False

    def _exists(self, at, size):
        return at >= 0 and at + size <= BYTES


class LinkBench(StreamBench):
    """The gateware with memory, registers and a line.

    Parameters
    ----------
    seed : int
        Seed of the stalls of memory and line; 0 for none.
    written : sequence of int
        Blocks that the card wrote before the first frame.
    memory : LinkStatus
        OK, or the reason that the memory cannot be accessed.
    window : int
        Frames that the card takes before it has answered the first.

    Attributes
    ----------
    model : golden.LinkEndpoint
    """

    @staticmethod
    def endpoint(card):
        """The gateware."""
        return LinkEndpoint(32, 16, REGISTER_WIDTH, card)

    def __init__(self, seed=0, written=(), replaceable=True, memory=LinkStatus.OK,
                 window=WINDOW):
        self.link = built(self.endpoint, CARD | {"window": window})
        super().__init__(self.link)
        self.rng = np.random.default_rng(seed)
        self.seed, self.replaceable, self.status = seed, replaceable, memory
        self.target, self.card = Target(), Target(written)
        self.model = golden.LinkEndpoint(self.card, golden.LinkCard(BASE, BYTES, clock_khz=50_000),
                                         replaceable=lambda: replaceable, memory=memory)
        behaviour = Behaviour() if not seed else Behaviour(
            latency=5, jitter=9, stall_address=0.3, stall_data=0.3, stall_response=0.3, seed=seed)
        self.memory = MemoryModel()
        self.memory.map(self.target.memory, BASE)
        self.background(read_responder(self.link.read_bus, self.memory.read_port(16, behaviour)))
        self.background(write_responder(self.link.write_bus, self.memory.write_port(16, behaviour)))
        self.background(self._registers)
        self.written = list(written)
        self.answers, self._partial = [], bytearray()
        self.background(self._listen)

    def play(self, frames, gaps=STEADY, limit=200_000):
        """Send frames one at a time; compare every reply."""
        expected = [self.expect(frame) for frame in frames]

        async def drive(ctx):
            ctx.set(self.link.replaceable, self.replaceable)
            ctx.set(self.link.memory_ready, self.status is LinkStatus.OK)
            ctx.set(self.link.memory_failed, self.status is LinkStatus.MEMORY_FAILED)
            for block in self.written:
                ctx.set(self.link.marks.p, block)
                ctx.set(self.link.marks.valid, 1)
                await ctx.tick().until(self.link.marks.ready)
                ctx.set(self.link.marks.valid, 0)
            for number, (frame, answer) in enumerate(zip(frames, expected, strict=True)):
                before = len(self.answers)
                await self._send(ctx, frame, gaps)
                if answer is None:
                    await ctx.tick().repeat(self.settling(frame))
                    assert len(self.answers) == before, f"frame {number} was answered"
                    continue
                for _ in range(60_000):
                    if len(self.answers) > before:
                        break
                    await ctx.tick()
                assert self.answers[before:] == [answer], f"answer to frame {number}"
        self.process(f"host of {len(frames)} frames", drive)
        self.run(limit)
        self.memory.check()
        assert self.target.accesses == self.card.accesses
        assert (self.target.memory == self.card.memory).all()

    def expect(self, frame):
        """The golden model's reply, or None."""
        return self.model.answer(frame)

    @staticmethod
    def settling(frame):
        """Cycles that the gateware needs for a frame without a reply."""
        return len(frame) + 60

    async def _send(self, ctx, frame, gaps):
        for number, byte in enumerate(frame):
            await ctx.tick().repeat(gaps[number % len(gaps)]) if gaps[number % len(gaps)] else None
            ctx.set(self.link.frames.requests.p, {"data": byte, "last": number == len(frame) - 1})
            ctx.set(self.link.frames.requests.valid, 1)
            await ctx.tick().until(self.link.frames.requests.ready)
            ctx.set(self.link.frames.requests.valid, 0)

    async def _listen(self, ctx):
        held, replies = None, self.link.frames.replies
        while True:
            ready = not self.seed or self.rng.random() < 0.6
            ctx.set(replies.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(replies.valid, replies.p)
            current = payload.data, payload.last
            assert held is None or (valid and current == held), "a stalled byte changed"
            held = current if valid and not ready else None
            if valid and ready:
                self._partial.append(payload.data)
                if payload.last:
                    self.answers.append(bytes(self._partial))
                    self._partial.clear()

    async def _registers(self, ctx):
        bus = self.link.registers
        while True:
            for _ in range(int(self.rng.integers(0, 5)) if self.seed else 0):
                await ctx.tick()
            if ctx.get(bus.awvalid & bus.wvalid):
                done = self.target.write_register(ctx.get(bus.awaddr), ctx.get(bus.wdata))
                await self._shake(ctx, bus.awready, bus.wready)
                ctx.set(bus.bresp, OKAY if done else SLVERR)
                ctx.set(bus.bvalid, 1)
                await ctx.tick().until(bus.bready)
                ctx.set(bus.bvalid, 0)
            elif ctx.get(bus.arvalid):
                value = self.target.read_register(ctx.get(bus.araddr))
                await self._shake(ctx, bus.arready)
                ctx.set(bus.rresp, SLVERR if value is None else OKAY)
                ctx.set(bus.rdata, 0xBAD if value is None else value)
                ctx.set(bus.rvalid, 1)
                await ctx.tick().until(bus.rready)
                ctx.set(bus.rvalid, 0)
            else:
                await ctx.tick()

    @staticmethod
    async def _shake(ctx, *ready):
        for each in ready:
            ctx.set(each, 1)
        await ctx.tick()
        for each in ready:
            ctx.set(each, 0)
