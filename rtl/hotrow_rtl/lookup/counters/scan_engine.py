"""Counter scans: DECAY and HARVEST over the sets of all count banks."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...contract.encoding import AllFlag, Opcode
from ...interfaces.records import command, harvest_entry, outcome, result
from .bank import CounterBank
from .entry_scanner import EntryScanner
from .set_layout import ScanPort
from .top_k import Harvest


class ScanEngine(wiring.Component):
    """Go through all counters while no lookup is in flight.

    Sets are numbered over all banks, the bank in the lowest bits. A DECAY walks through the entries
    of all banks at a time and halves each, as often as it shifts.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
        DECAY or HARVEST that passed the checks of the queue.
    harvested : Out(stream(result(harvest_entry)))
        The entries of a HARVEST, through the `last` element, which is absent when there is none.
    outcome : Out(stream(outcome))
        One per command. That of a HARVEST follows its last entry and does not know whether the
        entries have landed.
    banks : Out(ScanPort(config)).array(config.banks)
    clear : Out(1)
        A pulse: the banks forget every count.
    cleared : In(1)
        No bank is forgetting.
    restart : In(1)
        A pulse drops the command in progress; the counts stay.

    Timing
    ------
    From taking a command to its outcome, both included. DECAY: entries / banks *
    `entry_walk.pace` for each place that it shifts by, up to `counter_bits`, and 8; of ALL, sets /
    banks + 4. HARVEST: see `Harvest`, and 1.
    """

    _heard = CounterBank.latency + 1  # cycles from a request to what is heard of it

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
        control.submodules.walk = walk = EntryScanner(self.config)
        control.submodules.harvest = harvest = Harvest(self.config)
        connect(control, harvest=harvest.harvested, harvested=flipped(self.harvested))
        given, report = self.command.p, self.outcome.p
        decays, again = Signal(), Signal()
        passes = Signal(range(self.config.counter_bits + 1))  # halving all bits leaves zero
        control.d.comb += [
            harvest.wanted.eq(given.count),
            harvest.threshold.eq(given.threshold),
            walk.begin.eq(harvest.begin),
            walk.alone.eq(harvest.alone),
            walk.go.eq(decays | harvest.go),
            walk.again.eq(decays & again),
        ]
        for number, bank in enumerate(self.banks):
            control.d.comb += [
                bank.active.eq(decays | harvest.active),
                bank.enable.eq(walk.asks & walk.banks[number]),
                bank.halve.eq(walk.asks & decays),
                bank.set.eq(walk.set),
                bank.ways.eq(walk.ways),
                bank.complement.eq(harvest.complement),
            ]

        # What the banks tell, `latency` cycles after it was asked for, and a register behind.
        asked, last = Signal(self._heard), Signal(self._heard)
        quiet = ~asked.any()
        told, heard = [bank.entry for bank in self.banks], harvest.heard
        control.d.sync += [
            asked.eq(Cat(walk.asks, asked)),
            last.eq(Cat(walk.last, last)),
            heard.count.eq(reduce(or_, (entry.count for entry in told))),
            heard.tag.eq(reduce(or_, (entry.tag for entry in told))),
            heard.reach.eq(sum(entry.reaches for entry in told)),
        ]
        control.d.comb += [harvest.heard_valid.eq(asked[-1]), heard.last.eq(last[-1])]
        place = Cat(walk.bank, walk.set)
        for age in range(self._heard):
            register = Signal(len(place), name=f"asked_set{age}", reset_less=True)
            control.d.sync += register.eq(place)
            place = register
        control.d.comb += harvest.set.eq(place)

        def finish(**counts):
            control.d.sync += [self.outcome.valid.eq(1), report.eq(0)]
            control.d.sync += [report[name].eq(count) for name, count in counts.items()]
            control.next = "REPORT"

        # A command is taken in a state of its own: that all memories are at rest is known late.
        # Meanwhile it is told which one it is.
        harvests, forgets = Signal(), Signal()
        control.d.sync += [
            harvests.eq(given.opcode == Opcode.HARVEST),
            forgets.eq((given.flags & AllFlag.ALL).any()),
            self.clear.eq(0),
        ]
        with control.FSM():
            with control.State("IDLE"), control.If(self.command.valid & self.cleared):
                control.next = "TAKE"
            with control.State("TAKE"):
                control.d.comb += self.command.ready.eq(1)
                with control.If(harvests):
                    control.d.comb += harvest.start.eq(1)
                    control.next = "HARVEST"
                with control.Elif(forgets):
                    control.d.sync += self.clear.eq(1)
                    control.next = "CLEAR"
                with control.Else():
                    shift, most = given.shift, self.config.counter_bits
                    control.d.sync += [
                        passes.eq(Mux(shift > most, most, shift)),
                        again.eq(shift > 1),
                        decays.eq(shift != 0),
                    ]
                    control.d.comb += walk.begin.eq(shift != 0)
                    control.next = "DECAY"
            with control.State("HARVEST"), control.If(harvest.done):
                control.next = "HARVESTED"
            with control.State("HARVESTED"), control.If(quiet):
                finish(entries=harvest.entries)
            with control.State("DECAY"):
                with control.If(walk.asks & walk.last):
                    control.d.sync += [passes.eq(passes - 1), again.eq(passes > 2)]
                with control.If(passes == 0):
                    control.d.sync += decays.eq(0)
                    control.next = "DECAYED"
            with control.State("DECAYED"), control.If(quiet):
                finish()
            with control.State("CLEAR"):
                control.next = "CLEARING"  # `cleared` falls a cycle after the pulse
            with control.State("CLEARING"), control.If(self.cleared):
                finish()
            with control.State("REPORT"), control.If(self.outcome.ready):
                control.d.sync += self.outcome.valid.eq(0)
                control.next = "IDLE"
        return m
