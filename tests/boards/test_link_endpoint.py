"""A link's gateware replies to every frame as its golden model does, and ignores hostile ones."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from hotrow_boards.link.endpoint import LinkCounters
from hotrow_boards.link.frame_buffer import FrameBuffer
from hotrow_boards.link.layouts import counter_events
from hotrow_boards.link.reply_store import ReplyStore
from hotrow_boards.link.written_blocks import WrittenBlocks
from hotrow_rtl.contract.link_frames import COUNTERS_BYTES, LARGEST_PAYLOAD, LinkStatus, Operation

from tests.boards.linkbench import BAD_REGISTER, BASE, BYTES, SESSION, LinkBench, request

BIND, READ, WRITE = Operation.BIND, Operation.READ_MEMORY, Operation.WRITE_MEMORY
TAKE, COUNT = Operation.TAKE_WRITTEN, Operation.READ_COUNTERS
READ_REGISTER, WRITE_REGISTER = Operation.READ_REGISTER, Operation.WRITE_REGISTER


def conversation(*asked, first=0, session=SESSION):
    """A BIND and requests, each (operation, address, payload or length)."""
    frames = [request(BIND, first, session=session)]
    for number, (operation, address, what) in enumerate(asked, first + 1):
        given = {"payload": what} if isinstance(what, bytes) else {"length": what}
        frames.append(request(operation, number % (1 << 16), address, session=session, **given))
    return frames


def counters(bench):
    """Counters in the last reply, by name."""
    values = np.frombuffer(bench.answers[-1][16:-4], "<u2").tolist()
    return dict(zip(bench.model.counters, values, strict=True))


EVERYTHING = (
    (WRITE_REGISTER, 0x10, (0xDEADBEEF).to_bytes(4, "little")), (READ_REGISTER, 0x10, 4),
    (READ_REGISTER, BAD_REGISTER, 4), (WRITE_REGISTER, BAD_REGISTER, bytes(4)),
    (READ_REGISTER, 0x200, 4), (WRITE_REGISTER, 0x8000_0010, bytes(4)),
    (READ_REGISTER, 0x10, 8), (WRITE_REGISTER, 0x10, bytes(8)), (READ_REGISTER, 0x10, 0),
    (WRITE, BASE, b"x"), (WRITE, BASE + 15, b"yz"), (WRITE, BASE + 3, bytes(range(70))),
    (READ, BASE, 100), (READ, BASE + 17, 1), (READ, BASE + 31, 2),
    (WRITE, BASE + BYTES - 5, b"12345"), (WRITE, BASE + BYTES - 5, b"123456"),
    (WRITE, BASE - 1, b"12"), (READ, BASE - 1, 1), (READ, BASE + BYTES - 1, 1),
    (READ, BASE + BYTES - 1, 2), (READ, BASE, 0), (WRITE, BASE, b""), (READ, 0xFFFF_FFFF, 2),
    (READ, BASE, LARGEST_PAYLOAD + 1), (TAKE, 0, 127), (TAKE, 0, 130),
    (TAKE, 0, LARGEST_PAYLOAD + 4), (TAKE, 0, 128), (TAKE, 0, 128), (TAKE, 0, 256), (TAKE, 0, 256),
    (COUNT, 0, 2), (99, 5, 7), (0, 0, 0), (0x82, 0, 4), (BIND, 0, 3), (COUNT, 0, COUNTERS_BYTES),
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.long), 1])
def test_every_operation(seed):
    bench = LinkBench(seed, written=[0, 3, 31, 33, 63])
    bench.play(conversation(*EVERYTHING, first=65_530), gaps=(0, 2, 0, 1) if seed else (0,))
    assert not any(counters(bench).values())
    assert bench.target.registers == {0x10: 0xDEADBEEF}


@pytest.mark.slow
@pytest.mark.parametrize("memory", [
    LinkStatus.MEMORY_STARTING, pytest.param(LinkStatus.MEMORY_FAILED, marks=pytest.mark.slow)])
def test_a_card_whose_memory_cannot_be_accessed(memory):
    """The reply to a BIND carries the state of the memory; accesses fail, registers work."""
    bench = LinkBench(memory=memory)
    bench.play(conversation(
        (WRITE, BASE, b"lost"), (READ, BASE, 4), (READ, BASE - 1, 4), (WRITE, BASE, b""),
        (WRITE_REGISTER, 0x10, b"kept"), (READ_REGISTER, 0x10, 4), (TAKE, 0, 128), (BIND, 0, 0)))
    statuses = [answer[7] for answer in bench.answers]
    assert statuses == [memory, memory, memory, memory, LinkStatus.BAD_LENGTH, 0, 0, 0, memory]
    assert bytes(bench.target.memory[:4]) != b"lost"


@pytest.mark.slow
def test_the_largest_frames():
    octets = np.random.default_rng(2).integers(0, 256, LARGEST_PAYLOAD, np.uint8).tobytes()
    bench = LinkBench()
    bench.play(conversation((WRITE, BASE + 5, octets), (READ, BASE + 5, LARGEST_PAYLOAD)))
    assert bench.answers[-1][16:-4] == octets


@pytest.mark.slow
def test_hostile_frames_change_nothing_and_are_counted():
    good = conversation((WRITE_REGISTER, 0x10, b"abcd"), (WRITE, BASE, b"efgh"))
    flipped = [bytes([*good[2][:byte], good[2][byte] ^ 1 << byte % 8, *good[2][byte + 1:]])
               for byte in range(len(good[2]))]  # one bit per byte
    cut = [good[2][:size] for size in (1, 3, 4, 5, 15, 16, 19, 20, len(good[2]) - 1)]
    longer = [good[2] + b"\0", good[2] + bytes(1100)]
    lying = [request(WRITE, 2, BASE, b"efgh", length=size) for size in (0, 3, 5, 65_535)]
    lying.append(request(READ, 2, BASE, b"efgh"))
    foreign = [request(WRITE, 2, BASE, b"evil", session=session) for session in (0, 1, SESSION ^ 1)]
    foreign += [request(BIND, 2, session=0), request(READ, 2, BASE, length=4, session=9)]
    ahead = [request(WRITE, number, BASE, b"late") for number in (3, 4, 100, 65_535, 40_000)]
    bench = LinkBench()
    frames = [*good[:2], *flipped, *cut, *longer, *lying, *foreign, *ahead, good[2],
              request(COUNT, 3, length=COUNTERS_BYTES)]
    bench.play(frames)
    found = counters(bench)
    assert found == bench.model.counters
    assert found["bad_crc"] and found["wrong_length"] == len(
        [size for size in map(len, cut) if size < 20]) + 1 + len(lying)
    assert (found["foreign"], found["out_of_order"], found["replayed"]) == (5, 5, 0)
    assert bytes(bench.target.memory[:4]) == b"efgh"
    assert bench.target.accesses == [("write", 0x10, int.from_bytes(b"abcd", "little"))]


@pytest.mark.slow
@pytest.mark.slow
def test_counters_saturate():
    unit, most = LinkCounters(), (1 << 16) - 1

    async def bench(ctx):
        ctx.set(unit.events.bad_crc, 1)
        ctx.set(unit.events.foreign, 1)
        await ctx.tick().repeat(most + 1)
        counts = ctx.get(unit.values).to_bytes(COUNTERS_BYTES, "little")
        assert np.frombuffer(counts, "<u2").tolist() == [
            most * (name in ("bad_crc", "foreign")) for name in counter_events.members]
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.slow
def test_a_request_that_comes_again_is_answered_again_and_not_carried_out():
    asked = conversation(*((READ_REGISTER, 4 * number, 4) for number in range(6)))
    repeats = [asked[6], asked[3], asked[4], asked[3]]  # the last four replies are stored
    bench = LinkBench()
    bench.play([asked[0], asked[0], *asked[1:], *repeats, asked[2], asked[0]])
    assert len(bench.target.accesses) == 6, "each register was read once"
    assert bench.model.counters["replayed"] == 5 and bench.model.counters["out_of_order"] == 2


@pytest.mark.parametrize("replaceable", [
    True, pytest.param(False, marks=pytest.mark.slow)])
def test_another_host_binds_only_where_it_may(replaceable):
    mine, other = conversation((WRITE, BASE, b"mine"), (READ, BASE, 4)), conversation(
        (WRITE, BASE, b"hers"), session=77, first=9)
    bench = LinkBench(replaceable=replaceable)
    bench.play([*mine[:2], *other, mine[2]])
    assert bytes(bench.target.memory[:4]) == (b"hers" if replaceable else b"mine")
    assert bench.model.counters["foreign"] == (1 if replaceable else 2)


@pytest.mark.slow
def test_replies_to_the_session_before_are_not_sent_again():
    """Nor is what was never asked for: requests before the BIND of a session are out of order."""
    mine = conversation(*((READ_REGISTER, 4 * number, 4) for number in range(4)))
    bind, read = conversation((READ_REGISTER, 0x10, 4), session=77, first=9)
    before = [request(READ_REGISTER, number, length=4, session=77) for number in (8, 7, 6, 5)]
    bench = LinkBench()
    bench.play([*mine, bind, *before, bind, read, *before])
    assert bench.model.counters["replayed"] == 1 and bench.model.counters["out_of_order"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_random_frames(seed):
    """Valid, repeated, damaged and foreign frames in any order."""
    rng = np.random.default_rng(seed)
    sequence, frames = 0, [request(BIND, 0)]
    for _ in range(60):
        kind = rng.integers(0, 10)
        if kind < 6:
            sequence += 1
            size, at = int(rng.integers(1, 80)), BASE + int(rng.integers(0, BYTES - 80))
            frames.append([
                request(READ, sequence, at, length=size),
                request(WRITE, sequence, at, rng.integers(0, 256, size, np.uint8).tobytes()),
                request(READ_REGISTER, sequence, 4 * (size % 32), length=4),
                request(WRITE_REGISTER, sequence, 4 * (size % 32), rng.bytes(4)),
            ][rng.integers(0, 4)])
        elif kind < 8:
            frames.append(frames[rng.integers(0, len(frames))])
        else:
            spoilt = bytearray(frames[rng.integers(0, len(frames))])
            spoilt[rng.integers(0, len(spoilt))] ^= 1 << rng.integers(0, 8)
            frames.append(bytes(spoilt))
    LinkBench(seed + 1).play(frames, gaps=(0, 0, 3))


@pytest.mark.filterwarnings("ignore::amaranth.UnusedElaboratable")
@pytest.mark.parametrize("unit, parameter, message", [
    (FrameBuffer, 1000, "depth must be a power of two above 1012, not 1000"),
    (ReplyStore, 1, "slots must be a power of two of at least 2, not 1"),
    (WrittenBlocks, 32, "blocks must be a power of two of at least 64, not 32"),
])
def test_parameters_that_cannot_be(unit, parameter, message):
    with pytest.raises(ValueError, match=message):
        unit(parameter)
