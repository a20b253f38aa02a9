"""One set of the access counters, as it lies in memory."""

from amaranth.lib import data
from amaranth.lib.wiring import In, Out, Signature

from .config import Config, log2


def counter_set(config: Config) -> data.StructLayout:
    """One memory word. A way that counts zero is empty; `hand` is the way that the search for the
    least counted one starts from."""
    way = data.StructLayout({"count": config.counter_bits, "tag": config.counter_tag_width})
    return data.StructLayout({
        "ways": data.ArrayLayout(way, config.counter_ways),
        "hand": range(config.counter_ways),
    })


def counter_place(config: Config) -> data.StructLayout:
    """A mixed row key: bank, set within the bank, and the tag that the set keeps."""
    return data.StructLayout({
        "bank": log2(config.banks),
        "set": log2(config.counter_sets // config.banks),
        "tag": config.counter_tag_width,
    })


class ScanPort(Signature):
    """How harvest and decay reach the sets of a bank while no lookup is in flight.

    Members
    -------
    enable : Out(1)
        The memory is the scan's; lookups wait.
    read_enable, read_address : Out
    read_data : In
        A `counter_set`, as bits: read latency 1.
    write_enable, write_address, write_data : Out
    """

    def __init__(self, config: Config):
        set_width = log2(config.counter_sets // config.banks)
        word_width = counter_set(config).size
        super().__init__({
            "enable": Out(1),
            "read_enable": Out(1),
            "read_address": Out(set_width),
            "read_data": In(word_width),
            "write_enable": Out(1),
            "write_address": Out(set_width),
            "write_data": Out(word_width),
        })
