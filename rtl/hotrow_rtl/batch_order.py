"""In which order the ids of a batch lie in memory, as the units of the lookup reader see it."""

from amaranth import Module, Mux
from amaranth.lib import data

from .config import Config, log2
from .layouts import lookup


def batch_order(config: Config) -> data.StructLayout:
    """What a walk over a batch needs to know.

    Ids of 32 bits, or 64 when `wide`, fill bus words, the final one with `final_ids` of them.
    They lie in bags, one for each of `period` inner numbers, repeated for each outer number.
    Inner is the sample and outer the column of the batch when `feature_major`, else the reverse;
    column c belongs to table `first_table` + c.
    """
    return data.StructLayout({
        "wide": 1,
        "final_ids": log2(config.lanes) + 1,
        "feature_major": 1,
        "first_table": config.table_width,
        "period": number_width(config),
    })


def number_width(config: Config) -> int:
    """Bits of a number of samples or columns, the largest included."""
    return max(config.table_width, log2(config.batch_samples)) + 1


def place(config: Config) -> data.StructLayout:
    """Inner and outer number of a bag."""
    return data.StructLayout({"inner": number_width(config), "outer": number_width(config)})


def unchecked_lookup(config: Config) -> data.StructLayout:
    """An id as it stands in memory, with the table and sample that its place gives it."""
    return data.StructLayout({
        "present": 1,
        "id": 64,
        "table": config.table_width,
        "sample": log2(config.batch_samples),
        "fault": lookup(config)["fault"].width,
    })


def unchecked_beat(config: Config) -> data.StructLayout:
    """The ids of one cycle in the lanes of their bus word; `last` on the one with the final id."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(unchecked_lookup(config), config.lanes),
        "last": 1,
    })


def ids_in_word(config: Config, order, last):
    """How many ids a word holds; at the end of the batch, fewer may."""
    return Mux(last, order.final_ids, Mux(order.wide, config.lanes // 2, config.lanes))


def name_lane(m: Module, config: Config, lane, word, number, order, here):
    """Assign everything but `present` of one lane.

    Parameters
    ----------
    lane : View(unchecked_lookup(config))
    word : View
        Payload of Fetch.words.
    number : int
        Of the lane.
    order : View(batch_order(config))
    here : View(place(config))
        Place of the lane's id.
    """
    half = number % (config.lanes // 2)  # lanes of the upper half carry no 64-bit id
    m.d.comb += [
        lane.id.eq(Mux(order.wide, word.data.word_select(half, 64),
                       word.data.word_select(number, 32))),
        lane.table.eq(order.first_table + Mux(order.feature_major, here.outer, here.inner)),
        lane.sample.eq(Mux(order.feature_major, here.inner, here.outer)),
        lane.fault.eq(word.fault),
    ]


def step_by_one(m: Module, here, period):
    """Take a register of `place` to the next bag."""
    wraps = here.inner + 1 == period
    m.d.sync += [
        here.inner.eq(Mux(wraps, 0, here.inner + 1)),
        here.outer.eq(here.outer + wraps),
    ]
