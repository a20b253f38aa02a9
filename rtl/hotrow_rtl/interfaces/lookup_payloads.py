"""Payloads on the way of lookups through the banks, each defined once.

reader -> combiner -> placer -> ring of banks -> splitter: a beat of `lanes` lookups at each step.
"""

from amaranth import Cat
from amaranth.lib import data, enum

from ..config import EPOCH_WIDTH, SLOT_NUMBER_WIDTH, Config, log2
from ..contract.encoding import Status
from .records import lookup_beat
from .table_bounds import partition

STATUS_WIDTH = max(Status).bit_length()
NUMBER_WIDTH = SLOT_NUMBER_WIDTH


class Edit(enum.Enum, shape=2):
    """What a request does to the directory besides asking."""

    NONE = 0
    INSTALL = 1
    REMOVE = 2


class Ask(enum.Enum, shape=3):
    """What a row is asked for by a planner: as an `Edit`, and more."""

    FIND = 0
    INSTALL = 1  # a slot that is free, not held
    REMOVE = 2
    PLAN = 3  # a slot for the batch that is planned: its own, a free one, a victim's
    MARK = 4  # to hold its slot, if it has one, for a coming batch


def tagged_beat(config: Config) -> data.StructLayout:
    """A beat of lookups with what its batch is for: to be counted, to be split, or both."""
    return data.StructLayout({
        "beat": lookup_beat(config), "counts": 1, "splits": 1, "epoch": EPOCH_WIDTH})


def amount_width(config: Config) -> int:
    """Bits of the number of lookups that one of them may stand for."""
    return (config.lanes * (config.window_beats + 1)).bit_length()


def combined_lookup(config: Config) -> data.StructLayout:
    """A lookup that stands for `amount` lookups of the row with that `key` if `owner`; otherwise it
    is absent, refused by its `status`, or joins the owner in lane `lane`, `back` beats before."""
    return data.StructLayout({
        "present": 1,
        "status": STATUS_WIDTH,
        "key": config.key_width,
        "sample": log2(config.batch_samples),
        "parts_log2": 3,
        "part": 6,
        "owner": 1,
        "amount": amount_width(config),
        "joins": 1,
        "back": range(config.window_beats + 1),
        "lane": log2(config.lanes),
    })


def combined_beat(config: Config) -> data.StructLayout:
    """The lookups of one cycle; the rest as in `tagged_beat`."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(combined_lookup(config), config.lanes),
        "counts": 1,
        "splits": 1,
        "epoch": EPOCH_WIDTH,
        "last": 1,
    })


def asked_beat(config: Config) -> data.StructLayout:
    """What stays with a beat while banks are asked; fields as in `combined_beat`."""
    lane = data.StructLayout({
        name: field.shape for name, field in combined_lookup(config)
        if name not in ("parts_log2", "part")})
    return data.StructLayout({
        "lanes": data.ArrayLayout(lane, config.lanes),
        "counts": 1,
        "splits": 1,
        "last": 1,
    })


def row_request(config: Config) -> data.StructLayout:
    """What each lane says in a `bank_request`: the row, and its part of the directory."""
    return data.StructLayout({
        "rest": config.rest_width, "amount": amount_width(config), **partition(config)})


def beat_request(config: Config) -> data.StructLayout:
    """What all lanes of a beat have in common in a `bank_request`."""
    return data.StructLayout({"ask": 1, "miss": 1, "epoch": EPOCH_WIDTH,
                              "edit": Ask if config.planner else Edit})


def bank_request(config: Config) -> data.StructLayout:
    """What a bank is asked of a row: `row_request` and `beat_request`.

    To count `amount` lookups of it, unless that is 0; with `ask` or an edit, for its slot, of a
    planner with `ask` whatever it is asked; with `miss` besides, for its place in the miss table of
    the batch numbered `epoch` if it has no slot.
    """
    return joined(row_request(config), beat_request(config))


def joined(lane: data.StructLayout, shared: data.StructLayout) -> data.StructLayout:
    """The fields of both, the lane's lowest: a request as a bank sees it."""
    return data.StructLayout(
        {name: field.shape for layout in (lane, shared) for name, field in layout})


def count_request(config: Config) -> data.StructLayout:
    """Count `amount` (at least 1) lookups of a row of this bank."""
    return data.StructLayout({"rest": config.rest_width, "amount": amount_width(config)})


def count_answer(config: Config) -> data.StructLayout:
    """Whether the row was `counted` before; for a planner its `count` then, or the most of so many
    bits."""
    return data.StructLayout({"counted": 1, **({"count": NUMBER_WIDTH} if config.planner else {})})


def slot_in_bank(config: Config) -> data.StructLayout:
    """A slot without its bank; see `slot_number`."""
    return data.StructLayout({
        "way": log2(config.directory_ways),
        "set": log2(config.directory_sets // config.banks),
        "choice": 1,
    })


def directory_answer(config: Config) -> data.StructLayout:
    """`hit`: the row had a slot. `placed`: `slot` is the one it has, got or gave up."""
    return data.StructLayout({"hit": 1, "placed": 1, "slot": slot_in_bank(config)})


def miss_place(config: Config) -> int:
    """Bits of a place of the miss table within a bank: set * MISS_WAYS + way."""
    return log2(config.miss_entries // config.banks)


def miss_answer(config: Config) -> data.StructLayout:
    """`kept`: `place` of the miss table is the row's own. `repeated`: it was so before."""
    return data.StructLayout({"kept": 1, "repeated": 1, "place": miss_place(config)})


def bank_answer(config: Config) -> data.FlexibleLayout:
    """What a bank answers to one request; each part only if it was asked for.

    `missed` stands where the slot of a row with a slot would, and is told of no such row. A planner
    tells besides whether no row of the batch came to the slot `first`, and whether one left it that
    must be written back: `evicts`, its `tag` there.
    """
    found, missed = directory_answer(config), miss_answer(config)
    at = 1 + found["slot"].offset
    size = max(1 + found.size, at + missed.size)
    fields = {
        "counted": data.Field(1, 0),
        "found": data.Field(found, 1),
        "missed": data.Field(missed, at),
    }
    if config.planner:
        for name, width in (("first", 1), ("evicts", 1), ("tag", config.directory_tag_width)):
            fields[name], size = data.Field(width, size), size + width
    return data.FlexibleLayout(size, fields)


def slot_number(config: Config, bank, place):
    """The contract's number of a slot: (choice * sets + set) * ways + way, where the bank is the
    lowest part of the set."""
    parts = [place.way, bank, place.set]
    return Cat(*parts, place.choice) if config.directory_choices == 2 else Cat(*parts)


def lane_results(config: Config, shape) -> data.StructLayout:
    """Up to `lanes` elements of a list written to memory, in order of lanes; those not `present`
    take no place. `last` ends the list, whether or not an element comes with it."""
    return data.StructLayout({
        "values": data.ArrayLayout(shape, config.lanes), "present": config.lanes, "last": 1})


def ring_lane(config: Config, request) -> data.StructLayout:
    """One lane on its way into the ring: a request to `bank`, if `valid`."""
    return data.StructLayout({"valid": 1, "bank": log2(config.banks), "request": request})


def ring_beat(config: Config, carried, request, shared) -> data.StructLayout:
    """A beat on its way into the ring; `carried` comes out of it as it went in. Each lane has a
    request, and `shared` is part of the requests of all."""
    return data.StructLayout({
        "carried": carried,
        "shared": shared,
        "lanes": data.ArrayLayout(ring_lane(config, request), config.lanes),
    })


def answered_beat(config: Config, carried, answer) -> data.StructLayout:
    """A beat out of the ring. The answer of a lane without a request is undefined."""
    return data.StructLayout({
        "carried": carried,
        "banks": data.ArrayLayout(log2(config.banks), config.lanes),
        "answers": data.ArrayLayout(answer, config.lanes),
    })
