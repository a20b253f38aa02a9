"""Payloads of lookups from the reader through the banks to the splitter, each defined once.

reader -> combiner -> bank request stage -> crossbar and banks -> splitter: a beat of `lanes`
lookups at each step.
"""

from amaranth import Cat
from amaranth.lib import data, enum

from ..config import EPOCH_WIDTH, SLOT_NUMBER_WIDTH, Config, log2
from ..contract.encoding import Status
from .records import lookup_beat
from .table_bounds import partition

STATUS_WIDTH = max(Status).bit_length()
NUMBER_WIDTH = SLOT_NUMBER_WIDTH


class DirectoryOp(enum.Enum, shape=3):
    """Operation of a bank on its part of the directory."""

    FIND = 0
    INSTALL = 1  # allocate a slot that is free, or on a card with a planner not held
    REMOVE = 2
    PLAN = 3  # planner: hit or allocate for the current batch; may evict a victim
    MARK = 4  # planner: hold the row's slot, if it has one, for a coming batch


def tagged_beat(config: Config) -> data.StructLayout:
    """A beat of lookups; `counts` and `splits` say which operations its batch asked for."""
    return data.StructLayout({
        "beat": lookup_beat(config), "counts": 1, "splits": 1, "epoch": EPOCH_WIDTH})


def amount_width(config: Config) -> int:
    """Bits of the number of lookups that the combiner merges into one."""
    return (config.lanes * (config.window_beats + 1)).bit_length()


def combined_lookup(config: Config) -> data.StructLayout:
    """A lookup after the combiner.

    If `owner`, it carries `amount` lookups of the row `key`. Otherwise it is absent, refused with
    its `status`, or (`joins`) merged into the owner in lane `lane`, `back` beats before.
    """
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
    """The lookups of one cycle; the other fields as in `tagged_beat`."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(combined_lookup(config), config.lanes),
        "counts": 1,
        "splits": 1,
        "epoch": EPOCH_WIDTH,
        "last": 1,
    })


def waiting_beat(config: Config) -> data.StructLayout:
    """Fields of `combined_beat` that the crossbar keeps until the banks have responded."""
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
    """The fields of a `bank_request` that differ by lane: the row and its directory partition.

    `bank_key` is the row's hashed key without the bank bits.
    """
    return data.StructLayout({
        "bank_key": config.bank_key_width, "amount": amount_width(config), **partition(config)})


def beat_request(config: Config) -> data.StructLayout:
    """The fields of a `bank_request` that all lanes of a beat share."""
    return data.StructLayout({"miss": 1, "epoch": EPOCH_WIDTH, "op": DirectoryOp})


def bank_request(config: Config) -> data.StructLayout:
    """A request to a bank: `row_request` and `beat_request`.

    The bank counts `amount` lookups of the row, unless that is 0, and the directory carries out
    `op`. With `miss`, a row without a slot gets an entry of the miss table of the batch numbered
    `epoch`.
    """
    return joined(row_request(config), beat_request(config))


def joined(lane: data.StructLayout, shared: data.StructLayout) -> data.StructLayout:
    """The fields of both layouts, those of the lane lowest: a request as a bank receives it."""
    return data.StructLayout(
        {name: field.shape for layout in (lane, shared) for name, field in layout})


def count_request(config: Config) -> data.StructLayout:
    """Count `amount` lookups of a row of this bank."""
    return data.StructLayout({"bank_key": config.bank_key_width, "amount": amount_width(config)})


def count_answer(config: Config) -> data.StructLayout:
    """`counted`: the row had a counter before. `count` (planner): its value then, saturated."""
    return data.StructLayout({"counted": 1, **({"count": NUMBER_WIDTH} if config.planner else {})})


def slot_in_bank(config: Config) -> data.StructLayout:
    """A slot without its bank; see `slot_number`."""
    return data.StructLayout({
        "way": log2(config.directory_ways),
        "set": log2(config.directory_sets // config.banks),
        "choice": 1,
    })


def directory_answer(config: Config) -> data.StructLayout:
    """`hit`: the row had a slot. `placed`: `slot` is the row's slot, before or after the op."""
    return data.StructLayout({"hit": 1, "placed": 1, "slot": slot_in_bank(config)})


def miss_place(config: Config) -> int:
    """Bits of an index into the miss table of a bank: set * MISS_WAYS + way."""
    return log2(config.miss_entries // config.banks)


def miss_answer(config: Config) -> data.StructLayout:
    """`kept`: `place` is the row's entry of the miss table. `repeated`: it existed before."""
    return data.StructLayout({"kept": 1, "repeated": 1, "place": miss_place(config)})


def bank_answer(config: Config) -> data.FlexibleLayout:
    """The response of a bank; each part is valid only if the request asked for it.

    `missed` shares bits with `found.slot`; valid only if the row has no slot. On a card with a
    planner, `first` is set if no other row of the batch was assigned the slot before, and `evicts`
    if the row that had the slot must be written back; `tag` is the evicted row's.
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
    """The contract's number of a slot: (choice * sets + set) * ways + way.

    The bank is the lowest part of the set.
    """
    parts = [place.way, bank, place.set]
    return Cat(*parts, place.choice) if config.directory_choices == 2 else Cat(*parts)


def lane_results(config: Config, shape) -> data.StructLayout:
    """Up to `lanes` elements of a list written to memory, in order of lanes.

    Lanes without `present` take no place in the list. `last` ends the list, with or without an
    element.
    """
    return data.StructLayout({
        "values": data.ArrayLayout(shape, config.lanes), "present": config.lanes, "last": 1})


def crossbar_lane(config: Config, request) -> data.StructLayout:
    """One lane at the input of the bank crossbar: a request to `bank`, if `valid`."""
    return data.StructLayout({"valid": 1, "bank": log2(config.banks), "request": request})


def crossbar_request(config: Config, carried, request, shared) -> data.StructLayout:
    """A beat at the input of the bank crossbar.

    Each lane has a request; `shared` completes the requests of all lanes. The crossbar returns
    `carried` unchanged with the beat's responses.
    """
    return data.StructLayout({
        "carried": carried,
        "shared": shared,
        "lanes": data.ArrayLayout(crossbar_lane(config, request), config.lanes),
    })


def crossbar_response(config: Config, carried, answer) -> data.StructLayout:
    """A beat at the output of the bank crossbar. The answer of a lane without a request is
    undefined."""
    return data.StructLayout({
        "carried": carried,
        "banks": data.ArrayLayout(log2(config.banks), config.lanes),
        "answers": data.ArrayLayout(answer, config.lanes),
    })
