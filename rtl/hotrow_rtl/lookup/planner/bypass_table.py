"""Bypass table: the last batch that bypassed a row, whose write-back a later fetch waits for.

The table has no tags: rows that share an entry wait for one another.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...contract.encoding import NO_BATCH
from ...primitives.ram import ClearedRam


def stamp() -> data.StructLayout:
    """The number of a batch, if `valid`."""
    return data.StructLayout({"batch": 32, "valid": 1})


def newest_age(config: Config) -> data.StructLayout:
    """Distance from the planned batch back to an unretired batch, if `valid`."""
    return data.StructLayout({"age": log2(config.sweep_batches), "valid": 1})


def entry_width(config: Config) -> int:
    """Bits of an entry index within a bank: the lowest bits of the bank key."""
    return log2(config.bypass_stamps // config.banks)


class BypassTable(wiring.Component):
    """Find the newest batch that bypassed an entry of any row that the batch fetches.

    A stamp of the batch itself belongs to another row and has overwritten an unknown stamp: it
    counts as a stamp of the previous batch.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    begin : In(1)
        A pulse before the first row of a batch.
    batch : In(32)
        The batch; stable from `begin` to its last row, like `unretired`.
    unretired : In(range(config.sweep_batches + 1))
        Number of batches that are not retired, including this one.
    enter : In(1)
        `entry` is of a row that the batch fetches.
    entry : In(entry_width(config))
        Index of the stamp.
    bypassed : In(1)
        The row has no slot.
    newest : Out(newest_age(config))
        Over the rows of the batch so far.
    clear : In(1)
        A pulse clears the table; only while `enter` is low.
    ready : Out(1)
        Low while the table is cleared.

    Timing
    ------
    One row a cycle; `newest` includes it `latency` cycles later.
    """

    latency = 4  # read, subtract, choose, compare

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "begin": In(1),
            "batch": In(32),
            "unretired": In(range(config.sweep_batches + 1)),
            "enter": In(1),
            "entry": In(entry_width(config)),
            "bypassed": In(1),
            "newest": Out(newest_age(config)),
            "clear": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.stamps = stamps = ClearedRam(stamp(), 1 << len(self.entry))
        steps = ("read", "aged", "chosen")
        valid = {name: Signal(name=f"{name}_valid") for name in steps}
        writes, again, own = Signal(), Signal(), Signal()
        entry = Signal.like(self.entry, name="read_entry", reset_less=True)
        age = Signal(32, reset_less=True)
        chosen = Signal(newest_age(self.config), reset_less=True)
        # The write occurs with the read data; an equal entry in that cycle is forwarded.
        m.d.comb += [
            stamps.clear.eq(self.clear),
            self.ready.eq(stamps.ready),
            stamps.read_address.eq(self.entry),
            stamps.write_enable.eq(writes),
            stamps.write_address.eq(entry),
            stamps.write_data.batch.eq(self.batch),
            stamps.write_data.valid.eq(1),
        ]
        nearest = Mux(own | (age == 0), 1, age)
        m.d.sync += [
            valid["read"].eq(self.enter),
            writes.eq(self.enter & self.bypassed),
            entry.eq(self.entry),
            again.eq(writes & (entry == self.entry)),
            valid["aged"].eq(valid["read"] & (again | stamps.read_data.valid)),
            own.eq(again),
            age.eq(self.batch - stamps.read_data.batch),
            valid["chosen"].eq(valid["aged"] & (nearest < self.unretired)),
            chosen.age.eq(nearest),
        ]
        with m.If(self.begin):
            m.d.sync += self.newest.eq(0)
        with m.Elif(valid["chosen"] & (~self.newest.valid | (chosen.age < self.newest.age))):
            m.d.sync += [self.newest.valid.eq(1), self.newest.age.eq(chosen.age)]
        return m


class DependencyReducer(wiring.Component):
    """Reduce the newest batch of every bank to the contract's `wait_for`.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    banks : In(newest_age(config)).array(config.banks)
    batch : In(32)
        The batch that the ages count from.
    start : In(1)
        A pulse: `banks` is complete.
    wait_for : Out(32)
        NO_BATCH if no bank is valid.
    done : Out(1)
        A pulse: `wait_for` is valid until the next start.

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
        active, bank, given = Signal(2), Signal(range(banks)), Signal(shape, reset_less=True)
        newest = Signal(shape)
        with m.Switch(bank):
            for number, each in enumerate(self.banks):
                with m.Case(number):
                    m.d.sync += given.eq(each)
        m.d.sync += [
            active.eq(Cat(self.start | active[0] & ~bank.all(), active[0])),
            bank.eq(Mux(active[0], bank + 1, 0)),
            self.done.eq(active[1] & ~active[0]),
        ]
        with m.If(self.start):
            m.d.sync += newest.eq(0)
        with m.Elif(active[1] & given.valid & (~newest.valid | (given.age < newest.age))):
            m.d.sync += newest.eq(given)
        m.d.comb += self.wait_for.eq(Mux(newest.valid, self.batch - newest.age, NO_BATCH))
        return m
