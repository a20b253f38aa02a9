"""Bypass stamps: which batch bypassed a row last; until it is written back none may be fetched.

The list of bypassed rows in flight is a table without tags: rows that share an entry wait for one
another.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...contract.encoding import NO_BATCH
from ...primitives.ram import ClearedRam


def stamp() -> data.StructLayout:
    """The number of a batch, if there is one."""
    return data.StructLayout({"batch": 32, "valid": 1})


def newest_age(config: Config) -> data.StructLayout:
    """By how many batches another one, not yet retired, is behind that which is planned; if there
    is one."""
    return data.StructLayout({"age": log2(config.sweep_batches), "valid": 1})


def entry_width(config: Config) -> int:
    """Bits of an entry's number within a bank: the lowest ones of `rest`."""
    return log2(config.bypass_stamps // config.banks)


class BypassTable(wiring.Component):
    """Of the rows that a batch has to fetch, the newest batch that bypassed one of their entries.

    A stamp of the batch itself is another row's, in whose place there was one that is not known: it
    counts as that of the batch before.

    Parameters
    ----------
    config : Config

    Members
    -------
    begin : In(1)
        A pulse before the first row of a batch.
    batch : In(32)
        The batch; stable from there to its last row, as the next one.
    unretired : In(range(config.sweep_batches + 1))
        Batches that are not retired, up to this one.
    enter : In(1)
        A row that the batch has to fetch comes.
    entry : In(entry_width(config))
        Where its stamp is.
    bypassed : In(1)
        The row finds no slot.
    newest : Out(newest_age(config))
        Of the rows of the batch so far.
    clear : In(1)
        A pulse forgets every stamp; only while nothing comes.
    ready : Out(1)
        Low while they are being forgotten.

    Timing
    ------
    One row a cycle; `newest` tells of it `latency` cycles later.
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
        # A stamp is written when it is read: what is read in that cycle is told here.
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
    """The newest batch that any bank tells, as the contract's `wait_for`.

    Parameters
    ----------
    config : Config

    Members
    -------
    banks : In(newest_age(config)).array(config.banks)
    batch : In(32)
        The batch behind which they are.
    start : In(1)
        A pulse: what the banks tell is complete.
    wait_for : Out(32)
        NO_BATCH if none tells of any.
    done : Out(1)
        A pulse: `wait_for` is told, until the next start.

    Timing
    ------
    `config.banks` + 2 cycles from `start` to `done`, which look at a bank each.
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
        walks, bank, given = Signal(2), Signal(range(banks)), Signal(shape, reset_less=True)
        newest = Signal(shape)
        with m.Switch(bank):
            for number, each in enumerate(self.banks):
                with m.Case(number):
                    m.d.sync += given.eq(each)
        m.d.sync += [
            walks.eq(Cat(self.start | walks[0] & ~bank.all(), walks[0])),
            bank.eq(Mux(walks[0], bank + 1, 0)),
            self.done.eq(walks[1] & ~walks[0]),
        ]
        with m.If(self.start):
            m.d.sync += newest.eq(0)
        with m.Elif(walks[1] & given.valid & (~newest.valid | (given.age < newest.age))):
            m.d.sync += newest.eq(given)
        m.d.comb += self.wait_for.eq(Mux(newest.valid, self.batch - newest.age, NO_BATCH))
        return m
