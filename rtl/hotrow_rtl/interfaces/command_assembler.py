"""Assembles a command from its parts."""

from amaranth import Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .records import COMMAND_PART, COMMAND_PARTS, command, command_part


def keep_part(m, register, number, part):
    """Write a part of a command into a register of a command."""
    with m.Switch(number):
        for each in range(COMMAND_PARTS):
            with m.Case(each):
                m.d.sync += Value.cast(register).word_select(each, COMMAND_PART).eq(part)


class CommandAssembler(wiring.Component):
    """Assemble a command, and store it while an engine executes it.

    Fields that the engine does not read take no flip-flops.

    Attributes
    ----------
    parts : In(stream(command_part))
        The parts of each command in order. If a restart of the queue truncates a command, the parts
        of the next one overwrite it.
    command : Out(stream(command))
        Valid from the last part on; the parts of the next command stall until it is accepted.

    Timing
    ------
    One cycle for each part, and one cycle more.
    """

    def __init__(self):
        super().__init__({
            "parts": In(stream.Signature(command_part)),
            "command": Out(stream.Signature(command)),
        })

    def elaborate(self, platform):
        m = Module()
        parts, out = self.parts, self.command
        assembled = Signal(command, reset_less=True)
        m.d.comb += [parts.ready.eq(~out.valid), out.p.eq(assembled)]
        with m.If(out.valid):
            m.d.sync += out.valid.eq(~out.ready)
        with m.Elif(parts.valid):
            m.d.sync += out.valid.eq(parts.p.last)
            keep_part(m, assembled, parts.p.number, parts.p.data)
        return m
