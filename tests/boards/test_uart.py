"""A serial line: rate detection, noise, and frames at several rates."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from hotrow.transports.link.serial_line import Decoder, encode
from hotrow_boards.uart.port import Receiver, UartPort
from hotrow_rtl.contract.link_frames import IDLE_BYTE, SYNC_BYTE

SYNC = bytes([SYNC_BYTE]) * 4 + bytes([IDLE_BYTE]) * 2


def on_line(octets, cycles_per_bit, gap=0.0, at=0.0):
    """(cycle, level) of every change of a line that carries these bytes from cycle `at` on."""
    changes = []
    for byte in octets:
        for bit in (0, *(byte >> number & 1 for number in range(8)), 1):
            changes.append((at, bit))
            at += cycles_per_bit
        at += gap * cycles_per_bit
    return changes, at


def decode_line(levels, cycles_per_bit):
    """Decode the bytes of a line from its level in each cycle."""
    octets, at = [], 1
    while at < len(levels):
        if levels[at] or not levels[at - 1]:
            at += 1
            continue
        places = [int(at + (0.5 + bit) * cycles_per_bit) for bit in range(10)]
        if places[-1] >= len(levels):
            break
        bits = [levels[place] for place in places]
        assert not bits[0] and bits[9], f"no byte at cycle {at}"
        octets.append(sum(bit << number for number, bit in enumerate(bits[1:9])))
        at = places[9]
    return bytes(octets)


class Line:
    """A `UartPort` that returns every valid frame; `frames` are the received ones."""

    def __init__(self, is_valid=lambda frame: True):
        self.port, self.is_valid, self.frames, self.levels = UartPort(), is_valid, [], []

    def play(self, segments, tail):
        """Run segments of (bytes, cycles per bit, gap), then `tail` cycles more."""
        waves, at = [], 40.0
        for octets, cycles_per_bit, gap in segments:
            wave, at = on_line(octets, cycles_per_bit, gap, at)
            waves += wave
        port, end = self.port, int(at) + tail
        requests, replies = port.frames.requests, port.frames.replies

        async def run(ctx):
            index, frame, echo = 0, [], []
            for cycle in range(end):
                while index < len(waves) and waves[index][0] <= cycle:
                    ctx.set(port.rx, waves[index][1])
                    index += 1
                ctx.set(requests.ready, 1)
                ctx.set(replies.valid, bool(echo))
                if echo:
                    ctx.set(replies.p, echo[0])
                _, _, tx, valid, byte, ready = await ctx.tick().sample(
                    port.tx, requests.valid, requests.p, replies.ready)
                self.levels.append(tx)
                if echo and ready:
                    echo.pop(0)
                ctx.set(port.frames.good, 0)
                ctx.set(port.frames.bad, 0)
                if valid:
                    frame.append(byte.data)
                    if byte.last:
                        whole = self.is_valid(bytes(frame))
                        ctx.set(port.frames.good if whole else port.frames.bad, 1)
                        self.frames.append(bytes(frame))
                        echo += [{"data": each, "last": number == len(frame) - 1}
                                 for number, each in enumerate(frame) if whole]
                        frame = []

        simulator = Simulator(port)
        simulator.add_clock(1e-8)
        simulator.add_testbench(run)
        simulator.run()


FRAMES = [bytes(range(0xB8, 0xE0)), b"\x00\xff\x55\xc0\xdb\xdc\xdd\x55", b"x"]


@pytest.mark.slow
@pytest.mark.parametrize("cycles_per_bit", [
    4.34, pytest.param(4, marks=pytest.mark.slow),
    *(pytest.param(rate, marks=pytest.mark.long) for rate in (5.5, 16.67, 41.3))])
def test_frames_at_any_rate(cycles_per_bit):
    line = Line(lambda frame: frame in FRAMES)
    octets = SYNC + b"".join(encode(frame) for frame in FRAMES)
    size = sum(map(len, FRAMES))
    line.play([(octets, cycles_per_bit, 0)], tail=int((size + 20) * 12 * cycles_per_bit))
    assert line.frames[-3:] == FRAMES, "sync bytes may precede the frames"
    decoder = Decoder()
    assert decoder.feed(decode_line(line.levels, cycles_per_bit)) == FRAMES


@pytest.mark.slow
def test_the_rate_is_kept_until_several_frames_in_a_row_were_bad():
    frame = b"\x33\x33\x33 payload"  # has the falling edges of a slower sync byte
    good = Line(lambda each: each == frame)
    good.play([(SYNC + encode(frame) + encode(frame), 8, 0),
               (b"\x33" * 9, 8, 1.0), (encode(frame), 8, 0)], tail=3000)
    assert good.frames[-1] == frame and good.frames.count(frame) >= 2

    moved = Line(lambda each: each == frame)
    again = SYNC + encode(frame)
    moved.play([(again, 8, 0), *[(again, 13, 0)] * 6], tail=3000)
    assert moved.frames[-3::2] == [frame, frame], "the host changed to a slower rate"


@pytest.mark.slow
@pytest.mark.parametrize("skew", [pytest.param(-0.03, marks=pytest.mark.long), 0.03])
def test_a_host_whose_clock_is_off(skew):
    """Frames at a rate 3 % from that of the sync bytes."""
    line = Line(lambda frame: frame in FRAMES)
    line.play([(SYNC, 10, 0), (b"".join(map(encode, FRAMES)), 10 * (1 + skew), 0.1)],
              tail=2000)
    assert line.frames[-3:] == FRAMES


@pytest.mark.slow
def test_noise_is_no_frame():
    rng = np.random.default_rng(5)
    line = Line(lambda frame: frame == b"after")
    line.play([(SYNC, 6, 0), (bytes(rng.integers(0, 256, 80, np.uint8)), 4.7, 0.3),
               *[(SYNC + encode(b"after"), 6, 3.0)] * 6], tail=1500)
    assert line.frames[-1] == b"after"


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4])
def test_a_glitch_is_no_start_bit(share):
    """A low pulse shorter than half a bit gives no byte, and the next byte is right."""
    cycles, receiver, found = 40, Receiver(), []

    async def run(ctx):
        ctx.set(receiver.period, 8 * cycles)
        ctx.set(receiver.o.ready, 1)
        line, _ = on_line(b"\x5A", cycles, at=4 * cycles)
        line = [(0, 1), (cycles, 0), (cycles + int(share * cycles), 1), *line]
        for cycle in range(16 * cycles):
            while line and line[0][0] <= cycle:
                ctx.set(receiver.line, line.pop(0)[1])
            _, _, valid, byte, error = await ctx.tick().sample(
                receiver.o.valid, receiver.o.p, receiver.framing_error)
            assert not error
            if valid:
                found.append(byte)
    simulator = Simulator(receiver)
    simulator.add_clock(1e-6)
    simulator.add_testbench(run)
    simulator.run()
    assert found == [0x5A]
