"""Fetch commands from a ring in memory."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import COMMAND_BYTES, Status
from ..interfaces.records import ReadClient, command_word
from .ring_address import EntryPort, fault_status


class CommandFetch(wiring.Component):
    """Read every command up to `tail` and forward it, word by word.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    enable : In(1)
        While low no further command is fetched.
    space : In(1)
        The validator can accept a command; low in the cycle after a command's last word.
    tail : In(32)
        Number of commands submitted.
    head : Out(32)
        Number of commands fetched.
    commands : Out(stream(command_word(config)))
        A command with a bus error ends without `last`.
    entry : Out(EntryPort(config))
    read : Out(ReadClient(config))
    fault : Out(8)
        Status of a failed access; no further command is fetched.
    faulted : Out(1)
    busy : Out(1)
        An access to memory is in progress.

    Timing
    ------
    3 cycles and the latencies of region check and memory, and for each bus word one cycle and the
    cycles in which it stalls.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "enable": In(1),
            "space": In(1),
            "tail": In(32),
            "head": Out(32),
            "commands": Out(stream.Signature(command_word(config))),
            "entry": Out(EntryPort(config)),
            "read": Out(ReadClient(config)),
            "fault": Out(8),
            "faulted": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        entry, entry_address = self.entry, self.entry.addresses
        request, words = self.read.request, self.read.words
        fault, out, pending, ok = Signal(8), self.commands, Signal(), Signal()
        address = Signal.like(entry_address.p.address, reset_less=True)
        m.d.comb += [
            entry.numbers.p.eq(self.head),
            request.p.address.eq(address),
            request.p.bytes.eq(COMMAND_BYTES),
            self.busy.eq(1),
        ]
        m.d.sync += pending.eq(self.head != self.tail)  # a cycle late, in which `space` is low
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)

        with m.FSM():
            with m.State("IDLE"):
                start = self.enable & self.space & pending
                m.d.comb += [entry.numbers.valid.eq(start), self.busy.eq(0)]
                with m.If(start & entry.numbers.ready):
                    m.next = "ADDRESS"
            with m.State("ADDRESS"):  # Timing: registers the verdict of the region check
                m.d.sync += [
                    fault.eq(entry_address.p.status),
                    ok.eq(entry_address.p.status == Status.OK),
                    address.eq(entry_address.p.address),
                ]
                with m.If(entry_address.valid):
                    m.next = "REQUEST"
            with m.State("REQUEST"):
                with m.If(ok):
                    m.d.comb += request.valid.eq(1)
                    with m.If(request.ready):
                        m.next = "WORDS"
                with m.Else():
                    m.next = "FAULTED"
            with m.State("WORDS"):
                m.d.comb += words.ready.eq(~out.valid)  # the validator is slower than that
                with m.If(words.ready):
                    m.d.sync += [out.p.data.eq(words.p.data), out.p.last.eq(words.p.last)]
                with m.If(words.valid & words.ready):
                    with m.If(words.p.fault == 0):
                        m.d.sync += out.valid.eq(1)
                        with m.If(words.p.last):
                            m.d.sync += self.head.eq(self.head + 1)
                            m.next = "IDLE"
                    with m.Else():
                        m.d.sync += fault.eq(fault_status(words.p.fault))
                        m.next = "DROP"
                        with m.If(words.p.last):
                            m.next = "FAULTED"
            with m.State("DROP"):
                m.d.comb += words.ready.eq(1)
                with m.If(words.valid & words.p.last):
                    m.next = "FAULTED"
            with m.State("FAULTED"):
                m.d.comb += [self.faulted.eq(1), self.fault.eq(fault), self.busy.eq(0)]
        return m
