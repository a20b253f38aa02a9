"""Memory layout of a counter set, and the port through which scans reach it."""

from amaranth.lib import data
from amaranth.lib.wiring import In, Out, Signature

from ...config import CREDIT_WIDTH, Config, log2


def counter_way(config: Config) -> data.StructLayout:
    """A row and its count. `live`: the count is not zero; otherwise the way is empty."""
    return data.StructLayout({
        "count": config.counter_bits,
        "tag": config.counter_tag_width,
        "live": 1,
    })


def counter_set(config: Config) -> data.StructLayout:
    """A memory word; each way has a write enable."""
    return data.StructLayout({"ways": data.ArrayLayout(counter_way(config), config.counter_ways)})


def counter_credits(config: Config) -> data.ArrayLayout:
    """Eviction credit of each way of a set: how many competing lookups its row survives."""
    return data.ArrayLayout(CREDIT_WIDTH, config.counter_ways)


def hashed_key(config: Config) -> data.StructLayout:
    """A hashed row key: bank, set within the bank, and the tag in the set."""
    return data.StructLayout({
        "bank": log2(config.banks),
        "set": log2(config.counter_sets // config.banks),
        "tag": config.counter_tag_width,
    })


def scanned_entry(config: Config) -> data.StructLayout:
    """Result of a scan request: an entry's count and tag, and whether the count reaches the bound.
    All zero without a request."""
    return data.StructLayout({
        "count": config.counter_bits, "tag": config.counter_tag_width, "reaches": 1})


class ScanPort(Signature):
    """Requests of a scan to a counter bank, only while no lookup is in the bank.

    Attributes
    ----------
    active : Out(1)
        A scan uses the bank.
    enable : Out(1)
        A request.
    halve : Out(1)
        Also halve the count. Two of these of the same set are `CounterBank.distance` cycles apart.
    set, ways : Out
        The entry; one bit of `ways` is set.
    complement : Out
        Two's complement of the bound: a count that reaches the bound overflows when this is added.
        0 without a bound. Constant during a scan, and 0 while lookups are in the bank.
    entry : In(scanned_entry(config))
        The entry before the request, `CounterBank.latency` cycles after it.
    """

    def __init__(self, config: Config):
        super().__init__({
            "active": Out(1),
            "enable": Out(1),
            "halve": Out(1),
            "set": Out(log2(config.counter_sets // config.banks)),
            "ways": Out(config.counter_ways),
            "complement": Out(config.counter_bits),
            "entry": In(scanned_entry(config)),
        })
