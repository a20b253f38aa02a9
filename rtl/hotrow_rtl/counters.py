"""Counter scans: DECAY and HARVEST over the sets of all count banks."""

from amaranth import Array, Cat, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import Config, log2
from .contract import AllFlag, Opcode
from .counter_set import ScanPort
from .decay import DecaySweep
from .harvest import Harvest
from .layouts import command, harvest_entry, outcome, result


class CounterScans(wiring.Component):
    """Go through all counters while no lookup is in flight.

    Sets are numbered over all banks, the bank in the lowest bits.

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
    From taking a command to its outcome, both included. DECAY: sets + `DecaySweep.latency` + 1; of
    ALL, sets / banks + 3. HARVEST: see `Harvest`, and 1.
    """

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
        control.submodules.decay = decay = DecaySweep(self.config)
        control.submodules.harvest = harvest = Harvest(self.config)
        connect(control, harvest=harvest.harvested, harvested=flipped(self.harvested))
        given, report = self.command.p, self.outcome.p
        control.d.comb += [
            decay.shift.eq(given.shift),
            harvest.wanted.eq(given.count),
            harvest.threshold.eq(given.threshold),
        ]

        bank_bits = log2(self.config.banks)
        enable, read_enable, write_enable = Signal(), Signal(), Signal()
        read_address, write_address = (Signal(log2(self.config.counter_sets), name=name)
                                       for name in ("read_address", "write_address"))
        read_bank = Signal(bank_bits)  # that the data comes from
        words = Array(bank.read_data for bank in self.banks)
        word = Signal.like(self.banks[0].read_data, reset_less=True)
        with control.If(read_enable):
            control.d.sync += [read_bank.eq(read_address[:bank_bits]), word.eq(words[read_bank])]
        control.d.comb += [
            Cat(decay.read_data).eq(word),
            Cat(harvest.read_data).eq(word),
        ]
        for number, bank in enumerate(self.banks):
            control.d.comb += [
                bank.enable.eq(enable),
                bank.read_enable.eq(read_enable),
                bank.read_address.eq(read_address[bank_bits:]),
                bank.write_enable.eq(write_enable & (write_address[:bank_bits] == number)),
                bank.write_address.eq(write_address[bank_bits:]),
                bank.write_data.eq(Cat(decay.write_data)),
            ]

        def finish(**counts):
            control.d.sync += [self.outcome.valid.eq(1), report.eq(0)]
            control.d.sync += [report[name].eq(count) for name, count in counts.items()]
            control.next = "REPORT"

        with control.FSM():
            with control.State("IDLE"):
                control.d.comb += self.command.ready.eq(self.cleared)
                with control.If(self.command.valid & self.command.ready):
                    with control.If(given.opcode == Opcode.HARVEST):
                        control.d.comb += harvest.start.eq(1)
                        control.next = "HARVEST"
                    with control.Elif((given.flags & AllFlag.ALL) != 0):
                        control.d.comb += self.clear.eq(1)
                        control.next = "CLEAR"
                    with control.Else():
                        control.d.comb += decay.start.eq(1)
                        control.next = "DECAY"
            with control.State("HARVEST"):
                control.d.comb += [
                    enable.eq(1),
                    read_enable.eq(harvest.read_enable),
                    read_address.eq(harvest.read_address),
                ]
                with control.If(harvest.done):
                    finish(entries=harvest.entries)
            with control.State("DECAY"):
                control.d.comb += [
                    enable.eq(1),
                    read_enable.eq(1),
                    read_address.eq(decay.read_address),
                    write_enable.eq(decay.write_enable),
                    write_address.eq(decay.write_address),
                ]
                with control.If(decay.done):
                    finish()
            with control.State("CLEAR"):
                control.next = "CLEARING"  # `cleared` falls a cycle after the pulse
            with control.State("CLEARING"):
                with control.If(self.cleared):
                    finish()
            with control.State("REPORT"):
                with control.If(self.outcome.ready):
                    control.d.sync += self.outcome.valid.eq(0)
                    control.next = "IDLE"
        return m
