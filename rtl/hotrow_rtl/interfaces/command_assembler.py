"""From the parts of a command to the command."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .records import COMMAND_PART, COMMAND_PARTS, command, command_part


def keep_part(m, held, number, part):
    """Write a part of a command in its place in `held`."""
    with m.Switch(number):
        for each in range(COMMAND_PARTS):
            with m.Case(each):
                m.d.sync += Cat(held).word_select(each, COMMAND_PART).eq(part)


class CommandAssembler(wiring.Component):
    """Put a command together, and keep it for the engine that carries it out.

    What the engine does not read of a command takes no flip-flops.

    Members
    -------
    parts : In(stream(command_part))
        Of one command after the other. One that was cut off by a restart of the queue leaves
        nothing behind: the parts of the next one take its place.
    command : Out(stream(command))
        From its last part on until it is taken; the next one's parts wait until then.

    Timing
    ------
    A cycle for each part, and one more.
    """

    def __init__(self):
        super().__init__({
            "parts": In(stream.Signature(command_part)),
            "command": Out(stream.Signature(command)),
        })

    def elaborate(self, platform):
        m = Module()
        parts, given = self.parts, self.command
        held = Signal(command, reset_less=True)
        m.d.comb += [parts.ready.eq(~given.valid), given.p.eq(held)]
        with m.If(given.valid):
            m.d.sync += given.valid.eq(~given.ready)
        with m.Elif(parts.valid):
            m.d.sync += given.valid.eq(parts.p.last)
            keep_part(m, held, parts.p.number, parts.p.data)
        return m
