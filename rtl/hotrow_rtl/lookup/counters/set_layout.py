"""One set of the access counters, as it lies in memory, and how scans reach it."""


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
    """One memory word, of which one way is written at a time."""
    return data.StructLayout({"ways": data.ArrayLayout(counter_way(config), config.counter_ways)})


def counter_credits(config: Config) -> data.ArrayLayout:
    """Of every way of a set, how many lookups of rows that have none it outlives."""
    return data.ArrayLayout(CREDIT_WIDTH, config.counter_ways)


def counter_place(config: Config) -> data.StructLayout:
    """A mixed row key: bank, set within the bank, and the tag that the set keeps."""
    return data.StructLayout({
        "bank": log2(config.banks),
        "set": log2(config.counter_sets // config.banks),
        "tag": config.counter_tag_width,
    })


def scanned_entry(config: Config) -> data.StructLayout:
    """What a bank tells of an entry: its count, its tag, and whether the count reaches the bound.
    All zero for a bank that was not asked."""
    return data.StructLayout({
        "count": config.counter_bits, "tag": config.counter_tag_width, "reaches": 1})


class ScanPort(Signature):
    """How harvest and decay reach the entries of a bank while no lookup is in flight.

    Members
    -------
    active : Out(1)
        Requests come from here.
    enable : Out(1)
        The bank is asked for an entry.
    halve : Out(1)
        And its count is to be halved; two such of the same set `CounterBank.distance` cycles apart.
    set, ways : Out
        Which one; one way.
    complement : Out
        What a count that reaches the bound takes to overflow; 0 if there is no bound. Constant
        during a scan, and 0 while lookups are in flight.
    entry : In(scanned_entry(config))
        `CounterBank.latency` cycles after it was asked for, as it was before.
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
