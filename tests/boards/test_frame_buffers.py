"""Buffers of frames and datagrams that run out of space: whole ones or none."""

import struct
import zlib

import pytest
from hotrow_boards.ethernet.datagram_fifo import HEADING_WORDS, STORED_WORDS, DatagramFifo
from hotrow_boards.ethernet.layouts import LARGEST_DATAGRAM, WORD_BYTES
from hotrow_boards.link.frame_buffer import FrameBuffer
from hotrow_rtl.contract.link_frames import HEADER, HEADER_BYTES, WITH_PAYLOAD

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

FRAME_DEPTH, FIFO_DEPTH = 2048, 512  # bytes; words


def frame(payload, fill):
    """A valid frame with `payload` bytes, without its CRC and with it."""
    body = bytearray([fill]) * HEADER_BYTES + bytes([fill]) * payload
    body[HEADER["operation"].offset] = min(WITH_PAYLOAD)
    struct.pack_into("<H", body, HEADER["length"].offset, payload)
    return bytes(body), bytes(body) + struct.pack("<I", zlib.crc32(body))


async def collect(ctx, out, found, ready):
    """Bytes of a stream while `ready` is true."""
    while True:
        ctx.set(out.ready, ready())
        _, _, valid, taken, byte = await ctx.tick().sample(out.valid, out.ready, out.p)
        if valid and taken:
            found.append(byte)


@pytest.mark.slow
@pytest.mark.parametrize("room", [-1, 0])
def test_a_frame_longer_than_the_space_left(room):
    """With `room` bytes too many or too few: it is an overrun, or it arrives whole."""
    dut, found, results, reads = built(FrameBuffer, FRAME_DEPTH), [], [], []
    bench = StreamBench(dut)
    # The reader takes one byte into its register; a row stays free.
    space = FRAME_DEPTH - 1 + 1
    first, second = frame(990, 1), frame(900, 2)
    rest = space - len(first[0]) - len(second[0]) - room
    third = frame(rest - HEADER_BYTES - 4, 3)  # its CRC needs space until it is checked

    async def drive(ctx):
        for _, octets in (first, second, third):
            for at, byte in enumerate(octets):
                ctx.set(dut.i.p, {"data": byte, "last": at == len(octets) - 1})
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)
            results.append(await result(ctx))
        reads.append(True)
        await ctx.tick().repeat(2500)

    async def result(ctx):
        while True:
            seen = [name for name in ("good", "bad_crc", "wrong_length", "overrun")
                    if ctx.get(getattr(dut, name))]
            if seen:
                return seen
            await ctx.tick()
    bench.process("frames", drive)
    bench.background(lambda ctx: collect(ctx, dut.o, found, lambda: bool(reads)))
    bench.run(8000)
    fits = room >= 0
    assert results == [["good"], ["good"], ["good" if fits else "overrun"]]
    assert bytes(found) == first[0] + second[0] + third[0] * fits


@pytest.mark.slow
@pytest.mark.parametrize("left", range(STORED_WORDS - 3, STORED_WORDS + 2))
def test_a_datagram_is_stored_whole_or_dropped(left):
    """The largest datagram after two smaller ones that leave `left` words."""
    dut, found, overruns, reads = built(DatagramFifo, FIFO_DEPTH), [], [], []
    bench = StreamBench(dut)
    # The reader takes the first heading and a word, and a row stays free.
    first = FIFO_DEPTH - STORED_WORDS - HEADING_WORDS - 5
    second = FIFO_DEPTH - first - HEADING_WORDS - left
    sizes = [WORD_BYTES * first, WORD_BYTES * second, LARGEST_DATAGRAM]

    async def drive(ctx):
        for number, size in enumerate(sizes):
            count = -(-size // WORD_BYTES)
            for at in range(count):
                ctx.set(dut.i.p, {
                    "data": 0x01010101 * (number + 1), "last": at == count - 1, "length": size,
                    "last_be": 1 << (size - 1) % WORD_BYTES, "error": 0,
                    "peer": {"address": number, "port": number}})
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)
            await ctx.tick().repeat(3)
        reads.append(True)
        await ctx.tick().repeat(4000)

    async def count(ctx):
        while True:
            _, _, overrun = await ctx.tick().sample(dut.overrun)
            overruns.append(overrun)
    bench.process("datagrams", drive)
    bench.background(lambda ctx: collect(ctx, dut.o, found, lambda: bool(reads)))
    bench.background(count)
    bench.run(8000)
    fits = left >= STORED_WORDS
    assert sum(overruns) == (not fits)
    assert bytes(found) == b"".join(
        bytes([number + 1]) * size for number, size in enumerate(sizes[:2 + fits]))
