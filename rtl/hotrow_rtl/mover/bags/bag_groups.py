"""BagGroups: the lists with an element per bag, joined to groups of a bag for each unit."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.records import element
from ...primitives.bits import onehot_mux, prefix_or
from ...primitives.skid_buffer import SkidBuffer
from .payloads import LENGTH_WIDTH, bag_group, bag_setting, list_row


class BagGroups(wiring.Component):
    """Join the lengths and entries of `bag_units` bags, and sum their lengths.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse before each command.
    setting : In(bag_setting())
        Stable from `start` until the command completes.
    lengths : In(stream(element(16))).array(config.bag_units)
        Of each unit's bags.
    entries : In(stream(list_row(config))).array(config.row_ports)
        The rows of an UPDATE, or the listed targets of a POOL: element i in lane i mod `row_ports`.
    groups : Out(stream(bag_group(config)))

    Timing
    ------
    Latency 2 cycles, one group per cycle.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "setting": In(bag_setting()),
            "lengths": In(stream.Signature(element(LENGTH_WIDTH))).array(config.bag_units),
            "entries": In(stream.Signature(list_row(config))).array(config.row_ports),
            "groups": Out(stream.Signature(bag_group(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, setting, lengths = self.config, self.setting, self.lengths
        units, parts = config.bag_units, config.row_ports // config.bag_units
        m.submodules.skid = skid = SkidBuffer(bag_group(config))
        out, halves = self.groups, skid.o.p.bags  # whose ends are within each half of the units

        # The lanes of the entries that belong to the next group.
        part, has_entries, fire = Signal(parts, init=1), Signal(), Signal()
        entry_valid, given, last = Signal(units), Signal(units), Signal(units)
        m.d.comb += [
            has_entries.eq(setting.updates | setting.listed),
            given.eq(Cat(one.valid for one in lengths)),
            last.eq(Cat(one.valid & one.p.last for one in lengths)),
            # Whether every bag of the group has come; those after the last one do not exist.
            fire.eq((given & (entry_valid | ~has_entries.replicate(units))
                     | prefix_or(last) << 1)[:units].all() & skid.i.ready),
            skid.i.valid.eq(fire),
            skid.i.p.last.eq(last.any()),
        ]
        for number, one in enumerate(self.entries):
            m.d.comb += one.ready.eq(fire & has_entries & part[number // units]
                                     & given[number % units])
        with m.If(self.start):
            m.d.sync += part.eq(1)
        with m.Elif(fire):
            m.d.sync += part.eq(part.rotate_left(1))

        refused, values = Signal(units), []
        for unit, (one, bag) in enumerate(zip(lengths, skid.i.p.bags, strict=True)):
            entries = self.entries[unit::units]
            value = Signal(LENGTH_WIDTH, name=f"value_{unit}")
            values.append(value)
            m.d.comb += [
                one.ready.eq(fire & one.valid),
                value.eq(Mux(one.valid & (one.p.fault == 0), one.p.value, 0)),
                refused[unit].eq((one.p.fault != 0) | setting.updates & (one.p.value == 0)),
                entry_valid[unit].eq((Cat(entry.valid for entry in entries) & part).any()),
                bag.present.eq(one.valid),
                bag.sound.eq(one.valid & ~prefix_or(refused)[unit]),
                bag.entry.eq(onehot_mux(part, [entry.p.as_value() for entry in entries])),
                bag.length.eq(value),
                bag.fault.eq(one.p.fault),
            ]
        # Timing: a tree of additions, the last of them in the second stage.
        for step in (1 << power for power in range(log2(units) - 1)):
            values = [values[unit] + (values[(unit & -step) - 1] if unit & step else 0)
                      for unit in range(units)]
        m.d.comb += [bag.end.eq(end) for bag, end in zip(skid.i.p.bags, values, strict=True)]
        m.d.comb += skid.o.ready.eq(~out.valid | out.ready)
        with m.If(skid.o.ready):
            m.d.sync += [out.valid.eq(skid.o.valid), out.p.eq(skid.o.p)]
            m.d.sync += [out.p.bags[unit].end.eq(halves[units // 2 - 1].end + halves[unit].end)
                         for unit in range(units // 2, units)]
        return m
