"""Miss table: one bank of the table that finds repeated rows among the misses of a batch."""

from itertools import pairwise

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import EPOCH_WIDTH, MISS_WAYS, Config, log2
from ...interfaces.lookup_payloads import miss_answer
from ...primitives.bits import onehot_to_index
from ...primitives.ram import ClearedRam


def miss_tag_width(config: Config) -> int:
    """Bits of `bank_key` above the set."""
    return config.bank_key_width - log2(config.miss_sets)


def miss_set(config: Config) -> data.StructLayout:
    """The rows of a set, each with the epoch of its batch; epoch 0 marks an empty way."""
    way = data.StructLayout({"epoch": EPOCH_WIDTH, "tag": miss_tag_width(config)})
    return data.StructLayout({"ways": data.ArrayLayout(way, MISS_WAYS)})


class MissTableBank(wiring.Component):
    """Keep the first `MISS_WAYS` missed rows of a batch in each set.

    A row that its batch entered before is `repeated`. Any other row takes the lowest way without a
    row of this epoch; if there is none, it is not `kept`. A batch thus starts with an empty table
    if its epoch, 1 to 2**EPOCH_WIDTH - 1, was not used since the last clear.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    valid : In(1)
        A row; only while `ready`. Two rows of the same set, equal in the lowest
        log2(config.miss_sets) bits of `bank_key`, are at least `distance` cycles apart.
    bank_key : In(config.bank_key_width)
    epoch : In(EPOCH_WIDTH)
    drop : In(1)
        Do not enter the row of `latency` cycles before, whatever `answer` says.
    answer : Out(miss_answer(config))
        For the row of `latency` cycles before.
    clear : In(1)
        A pulse removes every row, and drops those in the pipeline.
    restart : In(1)
        A pulse drops the rows in the pipeline.
    ready : Out(1)
        Low while the table is cleared.

    Timing
    ------
    One row a cycle; latency `latency` cycles. A clear takes `config.miss_sets` cycles.
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
        row = data.StructLayout({
            "set": log2(sets), "tag": miss_tag_width(self.config), "epoch": EPOCH_WIDTH})
        rows = {name: Signal(row, name=f"{name}_row")
                for name in ("read", "held", "compared", "decided")}
        valid = {name: Signal(name=f"{name}_valid") for name in rows}
        decided = rows["decided"]
        m.d.comb += [
            self.ready.eq(table.ready),
            table.clear.eq(self.clear),
            table.read_address.eq(self.bank_key),
        ]
        m.d.sync += [
            Cat(rows["read"].set, rows["read"].tag).eq(self.bank_key),
            rows["read"].epoch.eq(self.epoch),
            valid["read"].eq(self.valid),
        ]
        for before, after in pairwise(rows):
            m.d.sync += [rows[after].eq(rows[before]), valid[after].eq(valid[before])]

        held = Signal(shape, name="held_word", reset_less=True)
        match, occupied = (Signal(MISS_WAYS, name=name, reset_less=True)
                           for name in ("match", "occupied"))
        m.d.sync += [
            held.eq(table.read_data),
            occupied.eq(Cat(way.epoch == rows["held"].epoch for way in held.ways)),
            match.eq(Cat((way.epoch == rows["held"].epoch) & (way.tag == rows["held"].tag)
                         for way in held.ways)),
        ]

        free, chosen = Signal(MISS_WAYS), Signal(MISS_WAYS)
        write_way = Signal(MISS_WAYS)
        m.d.comb += [
            free.eq(~occupied & (occupied + 1)),  # the lowest
            chosen.eq(Mux(match.any(), match, free)),
        ]
        m.d.sync += [
            self.answer.kept.eq(chosen.any()),
            self.answer.repeated.eq(match.any()),
            self.answer.place.eq(Cat(onehot_to_index(chosen), rows["compared"].set)),
            write_way.eq(Mux(match.any(), 0, free)),
        ]

        m.d.comb += [
            table.write_enable.eq(Mux(valid["decided"] & ~self.drop, write_way, 0)),
            table.write_address.eq(decided.set),
        ]
        for way in table.write_data.ways:
            m.d.comb += [way.epoch.eq(decided.epoch), way.tag.eq(decided.tag)]
        with m.If(self.clear | ~self.ready):  # a clear writes `write_data`
            m.d.sync += [decided.epoch.eq(0), decided.tag.eq(0)]
        with m.If(self.restart | self.clear):
            m.d.sync += [each.eq(0) for each in valid.values()]
        return m
