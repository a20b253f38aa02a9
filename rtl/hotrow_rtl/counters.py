"""Access counters: how often each of the hottest rows was looked up.

Source: the access logger of Hotline (ISCA 2024), here set-associative with exact counts; the
replacement is that of frequency-aware caches: the least counted row leaves.
"""

from amaranth import Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import Config
from .contract import AllFlag, Opcode
from .count_pipeline import CountPipeline
from .counter_set import counter_set
from .decay import DecaySweep
from .harvest import Harvest
from .layouts import command, harvest_entry, ordered_lookup, outcome, result
from .ram import ClearedRam


class AccessCounters(wiring.Component):
    """A set-associative table of saturating counts: OBSERVE, DECAY and HARVEST.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
        OBSERVE, DECAY or HARVEST that passed the checks of the queue.
    lookups : In(stream(ordered_lookup(config)))
        The batch of an OBSERVE, through its `last` element; taken only during one.
    harvested : Out(stream(result(harvest_entry)))
        The entries of a HARVEST, through the `last` element, which is absent when there is none.
    outcome : Out(stream(outcome))
        One per command. That of a HARVEST follows its last entry and does not know whether the
        entries have landed.
    restart : In(1)
        A pulse drops the command in progress; the counts stay, those of the lookups in flight
        apart.
    ready : Out(1)
        High once the counts are cleared after reset.

    Timing
    ------
    From taking a command to its outcome, both included. OBSERVE: one cycle per lookup, on any
    trace, and `CountPipeline.latency` + 1. DECAY: sets + `DecaySweep.latency` + 1; of ALL,
    sets + 3. HARVEST: see `Harvest`, and 1.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "lookups": In(stream.Signature(ordered_lookup(config))),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m, control = Module(), Module()
        m.submodules.sets = sets = ClearedRam(counter_set(self.config), self.config.counter_sets)
        m.submodules.control = ResetInserter(self.restart)(control)
        with m.If(sets.ready):
            m.d.sync += self.ready.eq(1)  # a DECAY of ALL is a command like others

        control.submodules.pipeline = pipeline = CountPipeline(self.config)
        control.submodules.decay = decay = DecaySweep(self.config)
        control.submodules.harvest = harvest = Harvest(self.config)
        connect(control, harvest=harvest.harvested, harvested=flipped(self.harvested))
        given, report = self.command.p, self.outcome.p
        control.d.comb += [
            pipeline.lookup.eq(self.lookups.p),
            decay.shift.eq(given.shift),
            harvest.wanted.eq(given.count),
            harvest.threshold.eq(given.threshold),
        ]
        for unit in (pipeline, decay, harvest):
            control.d.comb += unit.read_data.eq(sets.read_data)

        def use(unit, writes):
            """Give the memory to one unit."""
            control.d.comb += sets.read_address.eq(unit.read_address)
            if writes:
                control.d.comb += [
                    sets.write_enable.eq(unit.write_enable),
                    sets.write_address.eq(unit.write_address),
                    sets.write_data.eq(unit.write_data),
                ]

        observing = Signal()  # the batch's last lookup is still to come
        control.d.comb += [
            self.lookups.ready.eq(observing),
            pipeline.enable.eq(observing & self.lookups.valid),
        ]
        with control.If(pipeline.enable & self.lookups.p.last):
            control.d.sync += observing.eq(0)

        def finish(**counts):
            control.d.sync += [self.outcome.valid.eq(1), report.eq(0)]
            control.d.sync += [report[name].eq(count) for name, count in counts.items()]
            control.next = "REPORT"

        with control.FSM():
            with control.State("IDLE"):
                control.d.comb += self.command.ready.eq(sets.ready)
                with control.If(self.command.valid & self.command.ready):
                    with control.Switch(given.opcode):
                        with control.Case(Opcode.OBSERVE):
                            control.d.comb += pipeline.begin.eq(1)
                            control.d.sync += observing.eq(1)
                            control.next = "OBSERVE"
                        with control.Case(Opcode.HARVEST):
                            control.d.comb += harvest.start.eq(1)
                            control.next = "HARVEST"
                        with control.Default():
                            with control.If((given.flags & AllFlag.ALL) != 0):
                                control.d.comb += sets.clear.eq(1)
                                control.next = "CLEAR"
                            with control.Else():
                                control.d.comb += decay.start.eq(1)
                                control.next = "DECAY"
            with control.State("OBSERVE"):
                use(pipeline, writes=True)
                with control.If(pipeline.done):
                    finish(status=pipeline.status, error_index=pipeline.refused_at,
                           lookups=pipeline.hits + pipeline.misses,
                           hits=pipeline.hits, misses=pipeline.misses)
            with control.State("HARVEST"):
                use(harvest, writes=False)
                control.d.comb += sets.read_enable.eq(harvest.read_enable)
                with control.If(harvest.done):
                    finish(entries=harvest.entries)
            with control.State("DECAY"):
                use(decay, writes=True)
                with control.If(decay.done):
                    finish()
            with control.State("CLEAR"):
                with control.If(sets.ready):
                    finish()
            with control.State("REPORT"):
                with control.If(self.outcome.ready):
                    control.d.sync += self.outcome.valid.eq(0)
                    control.next = "IDLE"
        return m
