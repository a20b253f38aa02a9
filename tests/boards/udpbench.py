"""A bench that plays the same datagrams to a link's gateware with a UDP port and to its model."""

from dataclasses import dataclass

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped
from hotrow_boards.ethernet.layouts import PEER_BYTES, WORD_BYTES
from hotrow_boards.ethernet.port import UdpPort
from hotrow_boards.link.endpoint import LinkEndpoint

from tests.boards.linkbench import REGISTER_WIDTH, LinkBench
from tests.support.benches.stream_bench import STEADY


@dataclass(frozen=True)
class Datagram:
    """A frame from a peer (address, port), with errors of the network."""

    frame: bytes
    peer: tuple = (0xC0A8_0101, 40_000)
    length: int | None = None
    error: bool = False

    @property
    def whole(self) -> bytes:
        """The frame that the card receives; empty if the length and the number of words differ.

        LiteEth drops bytes after `length` within the last word.
        """
        size = len(self.frame)
        length = size if self.length is None else self.length
        wrong = self.error or length > size or _words(size) > _words(length)
        return b"" if wrong else self.frame[:length]


def _words(octets):
    return -(-octets // WORD_BYTES)


class UdpEndpoint(wiring.Component):
    """`UdpPort` and `LinkEndpoint`, wired; it has the ports of both."""

    def __init__(self, card):
        self.port = UdpPort(card["window"])
        self.link = LinkEndpoint(32, 16, REGISTER_WIDTH, card, PEER_BYTES)
        inner = self.link.signature.members
        super().__init__({
            **{name: self.port.signature.members[name] for name in ("received", "sent")},
            **{name: inner[name] for name in (
                "replaceable", "registers", "read_bus", "write_bus", "marks", "host_active",
                "memory_ready", "memory_failed")}})

    def elaborate(self, platform):
        m = Module()
        m.submodules.port, m.submodules.link = port, link = self.port, self.link
        connect(m, flipped(self.received), port.received)
        connect(m, port.sent, flipped(self.sent))
        connect(m, port.frames, link.frames)
        for name in ("registers", "read_bus", "write_bus", "marks"):
            connect(m, flipped(getattr(self, name)), getattr(link, name))
        m.d.comb += [
            link.replaceable.eq(self.replaceable), self.host_active.eq(link.host_active),
            link.memory_ready.eq(self.memory_ready), link.memory_failed.eq(self.memory_failed),
        ]
        return m


class UdpBench(LinkBench):
    """A `LinkBench` that plays datagrams and also compares the destination of replies.

    Parameters
    ----------
    See `LinkBench`.

    Attributes
    ----------
    host_active : int
        Number of frames of the bound host.
    """

    endpoint = UdpEndpoint

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.host_active = 0
        self.background(self._hear)

    async def _hear(self, ctx):
        async for _, _, active in ctx.tick().sample(self.link.host_active):
            self.host_active += active

    def play(self, *arguments, **options):
        super().play(*arguments, **options)
        assert self.host_active == self.model.received

    def expect(self, datagram):
        """The golden model's reply and its peer, or None."""
        answer = self.model.answer(datagram.whole, datagram.peer)
        return answer and (answer, datagram.peer)

    @staticmethod
    def settling(datagram):
        return len(datagram.frame) * 5 // 4 + 100

    async def _send(self, ctx, datagram, gaps=STEADY):
        link, frame = self.link, datagram.frame or bytes(WORD_BYTES)  # LiteEth's empty one
        length = len(datagram.frame) if datagram.length is None else datagram.length
        address, port = datagram.peer
        for at in range(0, len(frame), WORD_BYTES):
            gap = gaps[at // WORD_BYTES % len(gaps)]
            await ctx.tick().repeat(gap) if gap else None
            last = at + WORD_BYTES >= len(frame)
            ctx.set(link.received.p, {
                "data": int.from_bytes(frame[at:at + WORD_BYTES], "little"), "last": last,
                "last_be": 1 << (len(frame) - 1) % WORD_BYTES if last else 0,
                "error": datagram.error and last, "length": length,
                "peer": {"address": address, "port": port}})
            ctx.set(link.received.valid, 1)
            await ctx.tick().until(link.received.ready)
            ctx.set(link.received.valid, 0)

    async def _listen(self, ctx):
        link, held, frame = self.link, None, bytearray()
        while True:
            ready = not self.seed or self.rng.random() < 0.6
            ctx.set(link.sent.ready, ready)
            _, _, valid, word = await ctx.tick().sample(link.sent.valid, link.sent.p)
            assert held is None or (valid and word.as_bits() == held), "a word changed"
            held = word.as_bits() if valid and not ready else None
            if valid and ready:
                count = word.last_be.bit_length() if word.last else WORD_BYTES
                assert not word.last or word.last_be == 1 << (count - 1)
                frame += word.data.to_bytes(WORD_BYTES, "little")[:count]
                if word.last:
                    assert word.length == len(frame)
                    self.answers.append((bytes(frame), (word.peer.address, word.peer.port)))
                    frame.clear()
