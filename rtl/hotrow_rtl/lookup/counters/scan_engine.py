"""Scan engine: DECAY and HARVEST over the sets of all counter banks."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...contract.encoding import AllFlag, Opcode
from ...interfaces.records import command, harvest_entry, outcome, result
from ...primitives.bits import delay
from .bank import CounterBank
from .entry_scanner import EntryScanner
from .set_layout import ScanPort
from .top_k import TopK


class ScanEngine(wiring.Component):
    """Scan all counters while no lookup is in flight.

    A DECAY halves every entry of all banks, once per place of its shift. Sets are numbered over all
    banks, with the bank in the lowest bits.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    command : In(stream(command))
        A DECAY or HARVEST that passed the checks of the queue.
    harvested : Out(stream(result(harvest_entry)))
        The entries of a HARVEST, through the `last` element, which is absent if there is none.
    outcome : Out(stream(outcome))
        One per command. That of a HARVEST follows its last entry; it does not include the fault of
        the write.
    banks : Out(ScanPort(config)).array(config.banks)
    clear : Out(1)
        A pulse: the banks clear every count.
    cleared : In(1)
        No bank is being cleared.
    restart : In(1)
        A pulse drops the command in progress; the counts stay.

    Timing
    ------
    From the acceptance of a command to its outcome, both included. DECAY: entries / banks *
    `entry_scanner.pace` for each place of the shift, up to `counter_bits`, and 9 - `pace`, or 4 if
    the shift is 0; with ALL, sets / banks + 4. HARVEST: see `TopK`, and 3 to 5.
    """

    _result_latency = CounterBank.latency + 1  # cycles from a request to its result

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "outcome": Out(stream.Signature(outcome)),
            "banks": Out(ScanPort(config)).array(config.banks),
            "clear": Out(1),
            "cleared": In(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m, control = Module(), Module()
        m.submodules.control = ResetInserter(self.restart)(control)
        control.submodules.scanner = scanner = EntryScanner(self.config)
        control.submodules.top_k = top_k = TopK(self.config)
        connect(control, top_k=top_k.harvested, harvested=flipped(self.harvested))
        p, report = self.command.p, self.outcome.p
        decays, repeat = Signal(), Signal()
        passes = Signal(range(self.config.counter_bits + 1))  # as many shift every bit out
        control.d.comb += [
            top_k.wanted.eq(p.count),
            top_k.threshold.eq(p.threshold),
            scanner.begin.eq(top_k.begin),
            scanner.single.eq(top_k.single),
            scanner.enable.eq(decays | top_k.enable),
            scanner.repeat.eq(decays & repeat),
        ]
        for number, bank in enumerate(self.banks):
            control.d.comb += [
                bank.active.eq(decays | top_k.active),
                bank.enable.eq(scanner.request & scanner.banks[number]),
                bank.halve.eq(scanner.request & decays),
                bank.set.eq(scanner.set),
                bank.ways.eq(scanner.ways),
                bank.complement.eq(top_k.complement),
            ]
        idle = self._collect(control, scanner, top_k)

        def finish(**counts):
            control.d.sync += [self.outcome.valid.eq(1), report.eq(0)]
            control.d.sync += [report[name].eq(count) for name, count in counts.items()]
            control.next = "REPORT"

        # Timing: a command is decoded in registers, and accepted one state after the late
        # `cleared`.
        harvests, clears = Signal(), Signal()
        control.d.sync += [
            harvests.eq(p.opcode == Opcode.HARVEST),
            clears.eq((p.flags & AllFlag.ALL).any()),
            self.clear.eq(0),
        ]
        with control.FSM():
            with control.State("IDLE"), control.If(self.command.valid & self.cleared):
                control.next = "ACCEPT"
            with control.State("ACCEPT"):
                control.d.comb += self.command.ready.eq(1)
                with control.If(harvests):
                    control.d.comb += top_k.start.eq(1)
                    control.next = "HARVEST"
                with control.Elif(clears):
                    control.d.sync += self.clear.eq(1)
                    control.next = "CLEAR"
                with control.Else():
                    shift, most = p.shift, self.config.counter_bits
                    control.d.sync += [
                        passes.eq(Mux(shift > most, most, shift)),
                        repeat.eq(shift > 1),
                        decays.eq(shift != 0),
                    ]
                    control.d.comb += scanner.begin.eq(shift != 0)
                    control.next = "DECAY"
            with control.State("HARVEST"), control.If(top_k.done):
                control.next = "HARVESTED"
            with control.State("HARVESTED"), control.If(idle):
                finish(entries=top_k.entries)
            with control.State("DECAY"):
                with control.If(scanner.request & scanner.last):
                    control.d.sync += [passes.eq(passes - 1), repeat.eq(passes > 2)]
                with control.If(passes == 0):
                    control.d.sync += decays.eq(0)
                    control.next = "DECAYED"
            with control.State("DECAYED"), control.If(idle):
                finish()
            with control.State("CLEAR"):
                control.next = "CLEARING"  # `cleared` falls one cycle after the pulse
            with control.State("CLEARING"), control.If(self.cleared):
                finish()
            with control.State("REPORT"), control.If(self.outcome.ready):
                control.d.sync += self.outcome.valid.eq(0)
                control.next = "IDLE"
        return m

    def _collect(self, m, scanner, top_k):
        """Register the results of all banks; return whether no request is in flight."""
        request, last = Signal(self._result_latency), Signal(self._result_latency)
        entries, result_ = [bank.entry for bank in self.banks], top_k.scan_result
        m.d.sync += [
            request.eq(Cat(scanner.request, request)),
            last.eq(Cat(scanner.last, last)),
            result_.count.eq(reduce(or_, (entry.count for entry in entries))),
            result_.tag.eq(reduce(or_, (entry.tag for entry in entries))),
            result_.reach.eq(sum(entry.reaches for entry in entries)),
        ]
        m.d.comb += [
            top_k.result_valid.eq(request[-1]),
            result_.last.eq(last[-1]),
            top_k.set.eq(delay(m, Cat(scanner.bank, scanner.set), self._result_latency,
                               "request_set")[-1]),
        ]
        return ~request.any()
