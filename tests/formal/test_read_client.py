"""A client of the list port: the room in its buffer adds up for all time, across restarts."""

import pytest
from amaranth import Elaboratable, Module, Mux, Signal
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.memory.read_client import ReadClientBuffer

from tests.formal.prover import free_inputs, mutated, opened, verify
from tests.formal.small import SMALL

WORDS, LONGEST = 4, 2


class Room(Elaboratable):
    """Bursts are reserved while there is space for the longest; their words arrive later, and none
    after a restart. What is free, stored, owed or being counted is the whole buffer."""

    def __init__(self, client):
        self.client = client

    def elaborate(self, platform):
        m = Module()
        m.submodules.client = client = self.client
        free_inputs(m, client)
        own = opened(client)
        fifo = opened(own.buffer)
        owed, arrives = Signal(range(WORDS + LONGEST + 1)), client.beats.valid
        burst = client.reserve_len_minus_1 + 1
        m.d.comb += [
            Assume(~client.stopped),
            Assume(~client.reserve | client.space_for_one & (burst <= LONGEST)),
            Assume(~arrives | (owed != 0) & own.remaining_valid),
            Assume(~(client.restart & (client.reserve | arrives))),
            Assert(own.space + own.word_read + own.buffer.level + owed == WORDS),
            Assert(~own.fire | own.buffer.i.ready),
            Cover(own.space == 0),
            Cover(client.restart & (owed != 0) & client.client.words.valid),
        ]
        m.d.sync += owed.eq(Mux(client.restart, 0, owed + Mux(client.reserve, burst, 0) - arrives))
        m.d.comb += [  # invariants of the FIFO, which has a proof of its own
            Assert((fifo.write_row - fifo.read_row)[:2] == fifo.stored[:2]),
            Assert(fifo.stored <= WORDS),
            Assert(fifo.not_empty == (fifo.stored != 0)),
            Assert(fifo.full == (fifo.stored == WORDS)),
            Assert(~own.timeout_word),
        ]
        return m


BUGS = {
    "a word read is counted again": ("space.eq(self.depth), word_read.eq(0)]",
                                     "space.eq(self.depth)]"),
    "space is not given back": ("space.eq(self.depth), word_read.eq(0)]", "word_read.eq(0)]"),
    "one word too few": ("self.reserve_len_minus_1 - 1)", "self.reserve_len_minus_1)"),
}


def test_room(tmp_path):
    assert verify(Room(ReadClientBuffer(SMALL, WORDS, LONGEST)), tmp_path, depth=3) == "PASS"


def test_room_reaches(tmp_path):
    assert verify(Room(ReadClientBuffer(SMALL, WORDS, LONGEST)), tmp_path, mode="cover",
                  depth=14) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_room_bug(bug, tmp_path):
    client = mutated(ReadClientBuffer, *BUGS[bug])(SMALL, WORDS, LONGEST)
    assert verify(Room(client), tmp_path, mode="bmc", depth=14) == "FAIL"
