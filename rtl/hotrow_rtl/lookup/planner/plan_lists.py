"""Plan lists: the fills and victims of a planned batch, and their counts."""

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...interfaces.lookup_payloads import lane_results
from ...interfaces.records import row_entry, row_key
from ...primitives.bits import popcount
from ...primitives.stream_routing import fork
from ..banks.bypass_table import DependencyReducer, newest_age
from ..directory.payloads import set_width
from ..hashing.xorshift_hardware import unhash_key_hw
from ..splitter.miss_numbering import planned_beat

# Counts of a planned batch: unique rows, fills, victims, rows without a slot.
plan_counts = data.StructLayout({
    **dict.fromkeys(("unique", "entries", "evictions", "bypasses", "wait_for"), 32)})


class VictimKey(wiring.Component):
    """Invert the hash of the choice, then the hash of the key.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    enable : In(1)
        Enable of all pipeline registers.
    slot : In(range(config.slots))
        The contract's slot number, see `lookup_payloads.slot_number`.
    tag : In(config.directory_tag_width)
    key : Out(row_key(config))

    Timing
    ------
    One key a cycle, latency `latency` cycles.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "enable": In(1),
            "slot": In(range(config.slots)),
            "tag": In(config.directory_tag_width),
            "key": Out(row_key(config)),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        ways, banks = log2(c.directory_ways), log2(c.banks)
        hashed, bank_key = Signal(c.bank_key_width), Signal(c.bank_key_width, reset_less=True)
        bank = Signal(banks, reset_less=True)
        set_ = self.slot[ways + banks:][:set_width(c)]
        m.d.comb += hashed.eq(Cat(set_[:c.bank_key_width - c.directory_tag_width], self.tag))
        second = self.slot[-1] if c.directory_choices == 2 else 0
        with m.If(self.enable):
            m.d.sync += [
                bank.eq(self.slot[ways:]),
                bank_key.eq(Mux(second, unhash_key_hw(hashed, 1, c.bank_key_width), hashed)),
                self.key.eq(unhash_key_hw(Cat(bank, bank_key), 0, c.key_width)),
            ]
        return m


class Victims(wiring.Component):
    """Recover the keys of victims from slots and tags.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(planned_beat(config)))
    rows : Out(stream(lane_results(config, row_entry)))
        One per beat.
    restart : In(1)
        A pulse drops the beats inside.

    Timing
    ------
    Latency `VictimKey.latency` cycles, one beat a cycle.
    """

    latency = VictimKey.latency

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "beats": In(stream.Signature(planned_beat(config))),
            "rows": Out(stream.Signature(lane_results(config, row_entry))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat, out, valid = self.beats, self.rows, Signal(self.latency)
        ready, flags = Signal(), Cat(beat.p.evicts, beat.p.last)
        m.d.comb += [
            ready.eq(~out.valid | out.ready),
            beat.ready.eq(ready),
            out.valid.eq(valid[-1]),
        ]
        with m.If(ready):
            m.d.sync += valid.eq(Cat(beat.valid, valid))
        for step in range(self.latency):
            register = Signal(len(flags), name=f"flags{step}", reset_less=True)
            with m.If(ready):
                m.d.sync += register.eq(flags)
            flags = register
        m.d.comb += Cat(out.p.present, out.p.last).eq(flags)
        for lane in range(self.config.lanes):
            m.submodules[f"key{lane}"] = key = VictimKey(self.config)
            m.d.comb += [
                key.enable.eq(ready),
                key.slot.eq(beat.p.numbers[lane]),
                key.tag.eq(beat.p.tags[lane]),
                out.p.values[lane].row.eq(key.key.row),
                out.p.values[lane].table.eq(key.key.table),
            ]
        with m.If(self.restart):
            m.d.sync += valid.eq(0)
        return m


class PlanTally(wiring.Component):
    """Count the rows of a planned batch, and find the batch that its fetches wait for.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(planned_beat(config), always_ready=True))
    batch : In(32)
        Number of the batch, stable until the counts are accepted.
    newest : In(newest_age(config)).array(config.banks)
        By bank, complete with the last beat.
    counted : Out(stream(plan_counts))
        Once per batch.
    restart : In(1)
        A pulse drops the batch.

    Timing
    ------
    The counts are valid `config.banks` + 6 cycles after the last beat. The next batch starts after
    they are accepted.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "beats": In(stream.Signature(planned_beat(config), always_ready=True)),
            "batch": In(32),
            "newest": In(newest_age(config)).array(config.banks),
            "counted": Out(stream.Signature(plan_counts)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat, counted = self.beats.p, self.counted
        reducer = DependencyReducer(self.config)
        m.submodules.reducer = ResetInserter(self.restart)(reducer)
        counts = {"unique": beat.first | beat.bypassed, "entries": beat.fetched,
                "evictions": beat.evicts, "bypasses": beat.bypassed}
        valid, last = Signal(2), Signal(2)
        m.d.sync += [
            valid.eq(Cat(self.beats.valid, valid)),
            last.eq(Cat(beat.last, last)),
            reducer.start.eq(valid[1] & last[1]),
        ]
        m.d.comb += [
            reducer.batch.eq(self.batch),
            *(port.eq(newest) for port, newest in zip(reducer.banks, self.newest, strict=True)),
            counted.p.wait_for.eq(reducer.wait_for),
        ]
        done = counted.valid & counted.ready
        for name, lanes in counts.items():
            lanes_q = Signal(len(lanes), name=f"{name}_lanes", reset_less=True)
            count = Signal(range(len(lanes) + 1), name=f"{name}_count", reset_less=True)
            total = Signal(self.config.count_width, name=f"{name}_total")
            m.d.sync += [lanes_q.eq(lanes), count.eq(popcount(m, lanes_q))]
            with m.If(valid[1]):
                m.d.sync += total.eq(total + count)
            with m.If(done | self.restart):
                m.d.sync += total.eq(0)
            m.d.comb += counted.p[name].eq(total)
        with m.If(reducer.done):
            m.d.sync += counted.valid.eq(1)
        with m.Elif(done):
            m.d.sync += counted.valid.eq(0)
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), reducer.start.eq(0), counted.valid.eq(0)]
        return m


class PlanLists(wiring.Component):
    """Send the rows of a planned batch to the lists and to the tally.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(planned_beat(config)))
    fill_slots : Out(stream(lane_results(config, config.slot_word_width)))
        Destination of each row that is fetched: a slot, or `config.slots` plus its position in the
        bypass area.
    victim_slots : Out(stream(lane_results(config, range(config.slots))))
        Slots whose previous row is written back.
    victims : Out(stream(lane_results(config, row_entry)))
        The rows that are written back.
    batch, newest, counted
        See `PlanTally`.
    restart : In(1)
        A pulse drops the batch in progress.

    Timing
    ------
    One beat a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "beats": In(stream.Signature(planned_beat(config))),
            "fill_slots": Out(stream.Signature(lane_results(config, config.slot_word_width))),
            "victim_slots": Out(stream.Signature(lane_results(config, log2(config.slots)))),
            "victims": Out(stream.Signature(lane_results(config, row_entry))),
            "batch": In(32),
            "newest": In(newest_age(config)).array(config.banks),
            "counted": Out(stream.Signature(plan_counts)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        beats, beat = self.beats, self.beats.p
        m.submodules.victims = victims = Victims(self.config)
        m.submodules.tally = tally = PlanTally(self.config)
        fork(m, beats, self.fill_slots, self.victim_slots, victims.beats)
        for out, present in ((self.fill_slots, beat.fetched), (self.victim_slots, beat.evicts)):
            m.d.comb += [
                *(value.eq(number)
                  for value, number in zip(out.p.values, beat.numbers, strict=True)),
                out.p.present.eq(present),
                out.p.last.eq(beat.last),
            ]
        connect(m, victims=victims.rows, own=flipped(self.victims))
        connect(m, tally=tally.counted, own=flipped(self.counted))
        m.d.comb += [
            victims.beats.p.eq(beat),
            victims.restart.eq(self.restart),
            tally.beats.valid.eq(beats.valid & beats.ready),
            tally.beats.p.eq(beat),
            tally.batch.eq(self.batch),
            tally.restart.eq(self.restart),
            *(port.eq(newest) for port, newest in zip(tally.newest, self.newest, strict=True)),
        ]
        return m
