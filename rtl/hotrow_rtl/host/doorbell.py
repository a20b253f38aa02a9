"""The doorbell of a command queue: how many commands the host has submitted."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .ring_address import MOST_ENTRIES_LOG2


class Doorbell(wiring.Component):
    """Take a doorbell's value if the ring can hold that many commands, refuse it otherwise.

    Members
    -------
    ring : In(1)
        A pulse: the host has submitted commands up to `submitted`.
    submitted, completed : In(32)
        Since the queue was enabled, modulo 2**32.
    entries : In(5)
        log2 of the ring's entries, 1 to 16; with another number every doorbell is refused.
    enable : In(1)
        While low every doorbell is refused.
    tail : Out(32)
        The last value taken.
    refused : Out(1)
        A pulse: the value was behind `tail` or more than the entries ahead of `completed`.

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
        rung, ahead, already = Signal(), Signal(32), Signal(32)
        submitted, room = Signal(32), Signal(MOST_ENTRIES_LOG2 + 1)
        legal = Signal()  # and beyond the most entries there is no room
        m.d.sync += [
            rung.eq(self.ring),
            submitted.eq(self.submitted),
            ahead.eq(self.submitted - self.completed),
            already.eq(self.tail - self.completed),
            room.eq(1 << self.entries),
            legal.eq(self.entries != 0),
            self.refused.eq(0),
        ]
        with m.If(rung & self.enable & legal & (ahead <= room) & (ahead >= already)):
            m.d.sync += self.tail.eq(submitted)
        with m.Elif(rung):
            m.d.sync += self.refused.eq(1)
        return m
