"""Miss table: one bank of the table that keeps the missed rows of a batch unique."""

from itertools import pairwise

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import EPOCH_WIDTH, MISS_WAYS, Config, log2
from ...interfaces.lookup_payloads import miss_answer
from ...primitives.bits import onehot_to_index
from ...primitives.ram import ClearedRam


def miss_tag_width(config: Config) -> int:
    """Bits of the bank key above the set index."""
    return config.bank_key_width - log2(config.miss_sets)


def miss_set(config: Config) -> data.StructLayout:
    """The rows of a set, each with the epoch of the batch that stored it, or 0."""
    way = data.StructLayout({"epoch": EPOCH_WIDTH, "tag": miss_tag_width(config)})
    return data.StructLayout({"ways": data.ArrayLayout(way, MISS_WAYS)})


class MissTableBank(wiring.Component):
    """Keep the first `MISS_WAYS` rows of each set in a batch.

    A row that the batch has stored before is `repeated`. A row that is not stored yet takes the
    lowest way without a row of this epoch; if there is none, it is not `kept`. A batch starts with
    an empty table if its epoch, 1 to 2**EPOCH_WIDTH - 1, was not used since the last clear.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    valid : In(1)
        `bank_key` is a request; only while `ready`. Two requests of one set (equal in the lowest
        log2(config.miss_sets) bits) are at least `distance` cycles apart, as a read does not see
        a write in flight.
    bank_key : In(config.bank_key_width)
    epoch : In(EPOCH_WIDTH)
    drop : In(1)
        The request of `latency` cycles before stores no row, whatever `answer` says.
    answer : Out(miss_answer(config))
        To the request of `latency` cycles before.
    clear : In(1)
        A pulse drops every row and the requests in flight.
    restart : In(1)
        A pulse drops the requests in flight; they store no row.
    ready : Out(1)
        Low while the table is cleared.

    Timing
    ------
    One request a cycle, latency `latency` cycles; clearing takes `config.miss_sets` cycles.
    """

    latency = 4  # read, hold, compare, decide
    distance = 5  # and write

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "valid": In(1),
            "bank_key": In(config.bank_key_width),
            "epoch": In(EPOCH_WIDTH),
            "drop": In(1),
            "answer": Out(miss_answer(config)),
            "clear": In(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        shape, sets = miss_set(self.config), self.config.miss_sets
        m.submodules.table = table = ClearedRam(shape, sets, parts=MISS_WAYS)
        place = data.StructLayout({
            "set": log2(sets), "tag": miss_tag_width(self.config), "epoch": EPOCH_WIDTH})
        at = {name: Signal(place, name=f"{name}_place")
              for name in ("read", "held", "compared", "decided")}
        new = at["decided"]
        valid = {name: Signal(name=f"{name}_valid") for name in at}
        m.d.comb += [
            self.ready.eq(table.ready),
            table.clear.eq(self.clear),
            table.read_address.eq(self.bank_key),
        ]
        m.d.sync += [
            Cat(at["read"].set, at["read"].tag).eq(self.bank_key),
            at["read"].epoch.eq(self.epoch),
            valid["read"].eq(self.valid),
        ]
        for before, after in pairwise(at):
            m.d.sync += [at[after].eq(at[before]), valid[after].eq(valid[before])]

        held = Signal(shape, name="held_word", reset_less=True)
        match, used = (Signal(MISS_WAYS, name=name, reset_less=True)
                        for name in ("match", "used"))
        m.d.sync += [
            held.eq(table.read_data),
            used.eq(Cat(way.epoch == at["held"].epoch for way in held.ways)),
            match.eq(Cat((way.epoch == at["held"].epoch) & (way.tag == at["held"].tag)
                         for way in held.ways)),
        ]

        # Choose the way that has the row, or the lowest free way, one-hot.
        free, chosen = Signal(MISS_WAYS), Signal(MISS_WAYS)
        stored = Signal(MISS_WAYS)  # the way to write, if any
        m.d.comb += [
            free.eq(~used & (used + 1)),
            chosen.eq(Mux(match.any(), match, free)),
        ]
        m.d.sync += [
            self.answer.kept.eq(chosen.any()),
            self.answer.repeated.eq(match.any()),
            self.answer.place.eq(Cat(onehot_to_index(chosen), at["compared"].set)),
            stored.eq(Mux(match.any(), 0, free)),
        ]

        m.d.comb += [
            table.write_enable.eq(Mux(valid["decided"] & ~self.drop, stored, 0)),
            table.write_address.eq(new.set),
        ]
        for way in table.write_data.ways:
            m.d.comb += [way.epoch.eq(new.epoch), way.tag.eq(new.tag)]
        with m.If(self.clear | ~self.ready):
            m.d.sync += [new.epoch.eq(0), new.tag.eq(0)]
        with m.If(self.restart | self.clear):
            m.d.sync += [each.eq(0) for each in valid.values()]
        return m
