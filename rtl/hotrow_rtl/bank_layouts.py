"""Payloads on the way of lookups through the banks, each defined once.

reader -> combiner -> placer -> ring of banks -> tally: a beat of `lanes` lookups at each step.
"""

from amaranth.lib import data

from .config import Config, log2
from .contract import Status

STATUS_WIDTH = max(Status).bit_length()


def amount_width(config: Config) -> int:
    """Bits of the number of lookups that one of them may stand for."""
    return (config.lanes * (config.window_beats + 1)).bit_length()


def combined_lookup(config: Config) -> data.StructLayout:
    """A lookup that stands for `amount` lookups of the row with that `key` if `owner`; otherwise it
    is absent, refused by its `status`, or joins an owner before it."""
    return data.StructLayout({
        "present": 1,
        "status": STATUS_WIDTH,
        "key": config.key_width,
        "owner": 1,
        "amount": amount_width(config),
    })


def combined_beat(config: Config) -> data.StructLayout:
    """The lookups of one cycle; `position` is that of lane 0's in the batch."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(combined_lookup(config), config.lanes),
        "position": 32,
        "last": 1,
    })


def counted_beat(config: Config) -> data.StructLayout:
    """What stays with a beat while its owners are counted."""
    lane = data.StructLayout({
        "present": 1, "status": STATUS_WIDTH, "owner": 1, "amount": amount_width(config)})
    return data.StructLayout({
        "lanes": data.ArrayLayout(lane, config.lanes), "position": 32, "last": 1})


def count_request(config: Config) -> data.StructLayout:
    """Count `amount` (at least 1) lookups of a row of this bank."""
    return data.StructLayout({"rest": config.rest_width, "amount": amount_width(config)})


def count_answer() -> data.StructLayout:
    """Whether the row was `counted` before."""
    return data.StructLayout({"counted": 1})


def ring_lane(config: Config, request) -> data.StructLayout:
    """One lane on its way into the ring: a request to `bank`, if `valid`."""
    return data.StructLayout({"valid": 1, "bank": log2(config.banks), "request": request})


def ring_beat(config: Config, carried, request) -> data.StructLayout:
    """A beat on its way into the ring; `carried` comes out of it as it went in."""
    return data.StructLayout({
        "carried": carried,
        "lanes": data.ArrayLayout(ring_lane(config, request), config.lanes),
    })


def answered_beat(config: Config, carried, answer) -> data.StructLayout:
    """A beat out of the ring. The answer of a lane without a request is undefined."""
    return data.StructLayout({
        "carried": carried,
        "banks": data.ArrayLayout(log2(config.banks), config.lanes),
        "answers": data.ArrayLayout(answer, config.lanes),
    })
