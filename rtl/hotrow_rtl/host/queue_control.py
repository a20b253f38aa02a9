"""The registers of a command queue."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..contract.registers import QueueStateBits, shift
from ..interfaces.records import packed_address


def register_layout(fields) -> data.FlexibleLayout:
    """The layout of a register by the enumeration of its fields, their names in lower case."""
    return data.FlexibleLayout(max(field.bit_length() for field in fields), {
        field.name.lower(): data.Field(field.bit_length() - shift(field), shift(field))
        for field in fields})


def fields_of(fields, value) -> data.View:
    """The fields of a register in `value`, which has at least their bits."""
    layout = register_layout(fields)
    return data.View(layout, value[:layout.size])


queue_state = register_layout(QueueStateBits)


class QueueControl(wiring.Signature):
    """The registers of one queue, seen from the register block.

    Attributes
    ----------
    commands, completions : Out(packed_address)
        The two rings.
    entries : Out(5)
        log2 of the entries of both rings.
    enable, halt_on_error : Out(1)
    start, abort, resume : Out(1)
        Pulses: `enable` rose; abort the WAIT in progress; continue after a halt.
    doorbell : Out(1)
        A pulse: the host has written `submitted` to TAIL.
    submitted : Out(32)
    tail, head, completed : In(32)
    state : In(queue_state)
    refused : In(1)
        A pulse: the doorbell was out of bounds and is ignored.
    completed_pulse : In(1)
        A pulse: `completed` has increased.
    """

    def __init__(self):
        super().__init__({
            "commands": Out(packed_address),
            "completions": Out(packed_address),
            "entries": Out(5),
            "enable": Out(1),
            "halt_on_error": Out(1),
            "start": Out(1),
            "abort": Out(1),
            "resume": Out(1),
            "doorbell": Out(1),
            "submitted": Out(32),
            "tail": In(32),
            "head": In(32),
            "completed": In(32),
            "state": In(queue_state),
            "refused": In(1),
            "completed_pulse": In(1),
        })
