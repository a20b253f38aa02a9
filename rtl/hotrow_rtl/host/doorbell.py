"""The doorbell of a command queue: the number of commands that the host has submitted."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .ring_address import MAX_ENTRIES_LOG2


class Doorbell(wiring.Component):
    """Accept a doorbell's value if the ring can hold that many commands, else refuse it.

    Attributes
    ----------
    ring : In(1)
        A pulse: the host has submitted commands up to `submitted`.
    submitted, completed : In(32)
        Since the queue was enabled, modulo 2**32.
    entries : In(5)
        log2 of the ring's entries, 1 to 16; with another number all doorbells are refused.
    enable : In(1)
        While low all doorbells are refused.
    tail : Out(32)
        The last value accepted.
    refused : Out(1)
        A pulse: the value is before `tail`, or further than `entries` after `completed`.

    Timing
    ------
    `tail` or `refused` follows 2 cycles after `ring`.
    """

    def __init__(self):
        super().__init__({
            "ring": In(1),
            "submitted": In(32),
            "completed": In(32),
            "entries": In(5),
            "enable": In(1),
            "tail": Out(32),
            "refused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        ring_q, submitted_count, tail_count = Signal(), Signal(32), Signal(32)  # from `completed`
        submitted, ring_size = Signal(32), Signal(MAX_ENTRIES_LOG2 + 1)  # 0 for more entries
        legal = Signal()
        m.d.sync += [
            ring_q.eq(self.ring),
            submitted.eq(self.submitted),
            submitted_count.eq(self.submitted - self.completed),
            tail_count.eq(self.tail - self.completed),
            ring_size.eq(1 << self.entries),
            legal.eq(self.entries != 0),
            self.refused.eq(0),
        ]
        with m.If(ring_q & self.enable & legal & (submitted_count <= ring_size)
                  & (submitted_count >= tail_count)):
            m.d.sync += self.tail.eq(submitted)
        with m.Elif(ring_q):
            m.d.sync += self.refused.eq(1)
        return m
