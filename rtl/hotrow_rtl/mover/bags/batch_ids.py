"""The ids of a batch that a POOL takes in the place of a list of rows."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...interfaces.records import element, row_entry
from .payloads import batch_setting


class BatchIds(wiring.Component):
    """Split pairs of ids, read as list entries, into the rows of a list.

    Entry i holds ids 2 * i and 2 * i + 1. Every id becomes a row of table `first_table`; the units
    that know its bag add the column. The rows of other commands pass unchanged.

    Parameters
    ----------
    config : Config
    lanes : int
        A power of two. Element i of a list comes and goes in lane i mod `lanes`.

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    batch : In(batch_setting(config))
        Stable from `start` until the command completes.
    entries : In(stream(element(row_entry))).array(lanes)
    rows : Out(stream(element(row_entry))).array(lanes)

    Timing
    ------
    Combinational; an id per lane and cycle.
    """

    def __init__(self, config: Config, lanes: int):
        self.config = config
        rows = stream.Signature(element(row_entry))
        super().__init__({
            "start": In(1),
            "batch": In(batch_setting(config)),
            "entries": In(rows).array(lanes),
            "rows": Out(rows).array(lanes),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, batch = len(self.rows), self.batch
        # The halves of the entry in each lane that have left it.
        sent = [Signal(2, name=f"sent_{number}") for number in range(lanes)]
        fires = [Signal(2, name=f"fires_{number}") for number in range(lanes)]
        for number, (entry, halves, fired) in enumerate(zip(
                self.entries, sent, fires, strict=True)):
            done, only_one = Signal(name=f"done_{number}"), Signal(name=f"only_one_{number}")
            m.d.comb += [
                only_one.eq(entry.p.last & batch.odd),
                done.eq((halves | fired) == Mux(only_one, 1, 3)),
                entry.ready.eq(Mux(batch.valid, done, self.rows[number].ready)),
            ]
            m.d.sync += halves.eq(Mux(done, 0, halves | fired))
        for number, row in enumerate(self.rows):
            # The ids of a lane come from two entry lanes alternately, always from the same half,
            # or with one lane from both halves of the same.
            second = Signal(name=f"second_{number}")
            with m.If(row.valid & row.ready):
                m.d.sync += second.eq(~second)
            with m.If(self.start):
                m.d.sync += second.eq(0)
            sources = [divmod(place, 2) for place in (number, number + lanes)]
            with m.If(batch.valid):
                for at, (lane, half) in enumerate(sources):
                    entry, is_last = self.entries[lane], Signal(name=f"is_last_{number}_{at}")
                    with m.If(second == at):
                        m.d.comb += [
                            is_last.eq(entry.p.last & (batch.odd ^ half)),
                            row.valid.eq(entry.valid & ~sent[lane][half]
                                         & ~(entry.p.last & batch.odd & half)),
                            row.p.last.eq(is_last),
                            row.p.fault.eq(entry.p.fault),
                            row.p.value.row.eq(entry.p.value.as_value().word_select(half, 32)),
                            row.p.value.table.eq(batch.first_table),
                            fires[lane][half].eq(row.valid & row.ready),
                        ]
            with m.Else():
                m.d.comb += [row.valid.eq(self.entries[number].valid),
                             row.p.eq(self.entries[number].p)]
        with m.If(self.start):
            m.d.sync += [halves.eq(0) for halves in sent]
        return m


class BagColumn(wiring.Component):
    """Return the column of each bag of one unit, which has every `bag_units`-th bag of a batch.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    unit : In(range(config.bag_units))
        Number of the first bag, constant; with several units.
    start : In(1)
        A pulse before each command.
    batch : In(batch_setting(config))
        Stable from `start` until the command completes.
    next : In(1)
        A pulse: the next bag.
    column : Out(config.table_width)
        0 if the command has no batch.
    ready : Out(1)
        `column` is valid. High if the command has no batch.

    Timing
    ------
    `ready` rises `bag_units` + 2 cycles after `start` of a batch; then a bag per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            **({"unit": In(range(config.bag_units))} if config.bag_units > 1 else {}),
            "start": In(1),
            "batch": In(batch_setting(config)),
            "next": In(1),
            "column": Out(config.table_width),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        units, samples = self.config.bag_units, self.batch.samples
        position = data.StructLayout({"sample": len(samples), "column": self.config.table_width})
        here, step = Signal(position), Signal(position)
        seeded = Signal()
        counted = Signal(range(units + 1))  # bags that `step` is ahead of the first
        beyond = Signal(len(samples) + 1)
        m.d.comb += [
            self.ready.eq(seeded | ~self.batch.valid),
            self.column.eq(Mux(self.batch.valid, here.column, 0)),
            beyond.eq(here.sample + step.sample),
        ]
        with m.If(self.start):
            m.d.sync += [seeded.eq(0), counted.eq(0), step.eq(0)]
        with m.Elif(~seeded):
            m.d.sync += [counted.eq(counted + 1), step.sample.eq(step.sample + 1)]
            with m.If(step.sample + 1 == samples):
                m.d.sync += [step.sample.eq(0), step.column.eq(step.column + 1)]
            with m.If(counted == (self.unit if units > 1 else 0)):
                m.d.sync += here.eq(step)
            with m.If(counted == units):
                m.d.sync += [seeded.eq(1), step.eq(step)]
        with m.Elif(self.next):
            m.d.sync += [here.sample.eq(beyond), here.column.eq(here.column + step.column)]
            with m.If(beyond >= samples):
                m.d.sync += [here.sample.eq(beyond - samples),
                             here.column.eq(here.column + step.column + 1)]
        return m
