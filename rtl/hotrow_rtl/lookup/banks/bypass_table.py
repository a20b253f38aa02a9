"""Bypass table: the last batch that bypassed a row, whose write-back a later fetch must wait for.

The table has no tags: rows that share an entry also wait for each other.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...contract.encoding import NO_BATCH
from ...primitives.ram import ClearedRam


def bypass_entry(config: Config) -> data.StructLayout:
    """The number of a batch, if `valid`."""
    return data.StructLayout({"batch": 32, "valid": 1})


def newest_age(config: Config) -> data.StructLayout:
    """Age of an unretired batch relative to the planned batch, if `valid`."""
    return data.StructLayout({"age": log2(config.sweep_batches), "valid": 1})


def entry_width(config: Config) -> int:
    """Bits of the number of an entry within a bank: the lowest bits of `bank_key`."""
    return log2(config.bypass_stamps // config.banks)


class BypassTable(wiring.Component):
    """Find the newest unretired batch that bypassed an entry of the rows that a batch fetches.

    If the planned batch itself bypassed the entry before, it did so for another row and overwrote
    the entry: the table then assumes the batch before.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    begin : In(1)
        A pulse before the first row of a batch.
    batch : In(32)
        The planned batch. Stable from `begin` to the last row, as is `unretired`.
    unretired : In(range(config.sweep_batches + 1))
        Number of batches that are not retired, the planned one included.
    valid : In(1)
        A row that the batch must fetch.
    entry : In(entry_width(config))
        Entry of the row.
    bypassed : In(1)
        The row has no slot.
    newest : Out(newest_age(config))
        Over the rows of the batch so far.
    clear : In(1)
        A pulse clears every entry. Only while no row is in the pipeline.
    ready : Out(1)
        Low during a clear.

    Timing
    ------
    One row a cycle; `newest` includes it `latency` cycles later.
    """

    latency = 4  # read, subtract, compare with `unretired`, compare with `newest`

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "begin": In(1),
            "batch": In(32),
            "unretired": In(range(config.sweep_batches + 1)),
            "valid": In(1),
            "entry": In(entry_width(config)),
            "bypassed": In(1),
            "newest": Out(newest_age(config)),
            "clear": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.entries = entries = ClearedRam(
            bypass_entry(self.config), 1 << len(self.entry))
        valid = {name: Signal(name=f"{name}_valid") for name in ("read", "age", "newer")}
        write, forward, is_own = Signal(), Signal(), Signal()
        entry = Signal.like(self.entry, name="read_entry", reset_less=True)
        age = Signal(32, reset_less=True)
        newer = Signal(newest_age(self.config), reset_less=True)
        # An entry is written in the cycle of its read: `forward` replaces the stale read data.
        m.d.comb += [
            entries.clear.eq(self.clear),
            self.ready.eq(entries.ready),
            entries.read_address.eq(self.entry),
            entries.write_enable.eq(write),
            entries.write_address.eq(entry),
            entries.write_data.batch.eq(self.batch),
            entries.write_data.valid.eq(1),
        ]
        row_age = Mux(is_own | (age == 0), 1, age)
        m.d.sync += [
            valid["read"].eq(self.valid),
            write.eq(self.valid & self.bypassed),
            entry.eq(self.entry),
            forward.eq(write & (entry == self.entry)),
            valid["age"].eq(valid["read"] & (forward | entries.read_data.valid)),
            is_own.eq(forward),
            age.eq(self.batch - entries.read_data.batch),
            valid["newer"].eq(valid["age"] & (row_age < self.unretired)),
            newer.age.eq(row_age),
        ]
        with m.If(self.begin):
            m.d.sync += self.newest.eq(0)
        with m.Elif(valid["newer"] & (~self.newest.valid | (newer.age < self.newest.age))):
            m.d.sync += [self.newest.valid.eq(1), self.newest.age.eq(newer.age)]
        return m


class DependencyReducer(wiring.Component):
    """Reduce the `newest` of all banks to the contract's `wait_for`.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    banks : In(newest_age(config)).array(config.banks)
    batch : In(32)
        The batch to which the ages relate.
    start : In(1)
        A pulse when `banks` are complete.
    wait_for : Out(32)
        Number of the newest batch, or NO_BATCH.
    done : Out(1)
        A pulse when `wait_for` is valid; it stays so until the next start.

    Timing
    ------
    `config.banks` + 2 cycles from `start` to `done`, one bank a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "banks": In(newest_age(config)).array(config.banks),
            "batch": In(32),
            "start": In(1),
            "wait_for": Out(32),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        banks, shape = self.config.banks, newest_age(self.config)
        busy, bank, selected = Signal(2), Signal(range(banks)), Signal(shape, reset_less=True)
        newest = Signal(shape)
        with m.Switch(bank):
            for number, each in enumerate(self.banks):
                with m.Case(number):
                    m.d.sync += selected.eq(each)
        m.d.sync += [
            busy.eq(Cat(self.start | busy[0] & ~bank.all(), busy[0])),
            bank.eq(Mux(busy[0], bank + 1, 0)),
            self.done.eq(busy[1] & ~busy[0]),
        ]
        with m.If(self.start):
            m.d.sync += newest.eq(0)
        with m.Elif(busy[1] & selected.valid & (~newest.valid | (selected.age < newest.age))):
            m.d.sync += newest.eq(selected)
        m.d.comb += self.wait_for.eq(Mux(newest.valid, self.batch - newest.age, NO_BATCH))
        return m
