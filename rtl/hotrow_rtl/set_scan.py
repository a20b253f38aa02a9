"""Set scan: every set of the access counters in turn, compared with a bound."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .counter_set import counter_set


def bound_shape(config: Config) -> int:
    """Bits of a bound: one above the largest count, which no entry reaches, is one too."""
    return config.counter_bits + 1


def scanned_set(config: Config) -> data.StructLayout:
    """A set, and which of its ways count more than the bound, or just as much."""
    return data.StructLayout({
        "set": log2(config.counter_sets),
        "ways": counter_set(config)["ways"].shape,
        "above": config.counter_ways,
        "equal": config.counter_ways,
        "last": 1,
    })


class SetScan(wiring.Component):
    """Read all sets in order.

    Parameters
    ----------
    config : Config

    Members
    -------
    begin : In(1)
        A pulse begins a scan; it cuts short one in progress.
    bound : In
        Constant during a scan.
    sets : Out(stream(scanned_set(config)))
    read_enable, read_address, read_data
        Of the memory of counter sets, read latency 2: data stays while `read_enable` is low.

    Timing
    ------
    Latency 4 cycles from `begin` (address, read, hold, compare), one set a cycle.
    """

    latency = 4

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "begin": In(1),
            "bound": In(bound_shape(config)),
            "sets": Out(stream.Signature(scanned_set(config))),
            "read_enable": Out(1),
            "read_address": Out(log2(config.counter_sets)),
            "read_data": In(counter_set(config)),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.sets
        asked, read, held = (Signal(log2(c.counter_sets), name=f"{stage}_set")
                             for stage in ("asked", "read", "held"))
        compared = Signal(scanned_set(c), reset_less=True)
        valid = Signal(self.latency)
        last, ways = c.counter_sets - 1, self.read_data.ways
        m.d.comb += [
            out.valid.eq(valid[-1]),
            out.p.eq(compared),
            self.read_enable.eq(~out.valid | out.ready),
            self.read_address.eq(asked),
        ]
        with m.If(self.read_enable):
            m.d.sync += [
                valid.eq(Cat(valid[0] & (asked != last), valid)),
                asked.eq(asked + 1), read.eq(asked), held.eq(read),
                compared.set.eq(held),
                compared.ways.eq(ways),
                compared.above.eq(Cat(way.count > self.bound for way in ways)),
                compared.equal.eq(Cat(way.count == self.bound for way in ways)),
                compared.last.eq(held == last),
            ]
        with m.If(self.begin):
            m.d.sync += [asked.eq(0), valid.eq(1)]
        return m
