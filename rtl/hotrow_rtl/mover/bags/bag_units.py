"""BagUnits: POOL and UPDATE on several bag units, from the lists to the computed rows."""

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import element, row_entry
from ...primitives.shared_module import shared_instance
from ..port.payloads import (
    checked_transfer,
    computed_row,
    fetched_row,
    refusal,
    row_transfer,
    source_word,
    transfer_request,
)
from .bag_lists import BagLists
from .bag_unit import BagUnit
from .payloads import LENGTH_WIDTH, bag_setting, batch_setting
from .read_network import ReadCredits, ReadReturn
from .result_network import ResultArbiter, ResultDemux


class BagUnits(wiring.Component):
    """Compute the bags of a command on `bag_units` units in parallel, see ``bags.list_dispatch``.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    clear : In(1)
    start, setting, rows, targets, weights, lengths : In
        See `BagLists`.
    batch : In(batch_setting(config))
        With `config.pools_batches`, see `BagReadRequests`.
    requests : Out(stream(transfer_request(config))).array(config.bag_units)
    checked : In(stream(checked_transfer(config))).array(config.bag_units)
        Of each unit, see `BagPipeline`.
    sent : Out(stream(row_transfer(config))).array(config.bag_units)
    arrived : In(stream(row_transfer(config))).array(config.row_ports)
        The reads of each unit, to be routed to the ports of their rows.
    transfers : Out(stream(row_transfer(config))).array(config.row_ports)
    read_rows : In(stream(fetched_row(config))).array(config.row_ports)
    read_words : In(stream(source_word(config))).array(config.row_ports)
    computed_rows : Out(stream(computed_row(config))).array(config.row_ports)
    computed_words : Out(stream(source_word(config))).array(config.row_ports)
        Of each port, see `RowPort`.
    refused, refused_valid : Out, arrays of config.bag_units
        A pulse per bag of each unit that is not written, in order.
    bag_count : Out(32)
        Bags that are refused or written, valid with `counted`.
    counted : Out(1)

    Timing
    ------
    Each unit as `BagPipeline`.
    """

    def __init__(self, config: Config):
        self.config = config
        units, ports = config.bag_units, config.row_ports
        transfers = stream.Signature(row_transfer(config))
        super().__init__({
            "clear": In(1),
            "start": In(1),
            "setting": In(bag_setting()),
            **({"batch": In(batch_setting(config))} if config.pools_batches else {}),
            "rows": In(stream.Signature(element(row_entry))).array(ports),
            "targets": In(stream.Signature(element(32))).array(ports),
            "weights": In(stream.Signature(element(32))).array(ports),
            "lengths": In(stream.Signature(element(LENGTH_WIDTH))).array(units),
            "requests": Out(stream.Signature(transfer_request(config))).array(units),
            "checked": In(stream.Signature(checked_transfer(config))).array(units),
            "sent": Out(transfers).array(units),
            "arrived": In(transfers).array(ports),
            "transfers": Out(transfers).array(ports),
            "read_rows": In(stream.Signature(fetched_row(config))).array(ports),
            "read_words": In(stream.Signature(source_word(config))).array(ports),
            "computed_rows": Out(stream.Signature(computed_row(config))).array(ports),
            "computed_words": Out(stream.Signature(source_word(config))).array(ports),
            "refused": Out(refusal()).array(units),
            "refused_valid": Out(1).array(units),
            "bag_count": Out(32),
            "counted": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        cleared = ResetInserter(self.clear)
        m.submodules.lists = lists = BagLists(config)
        for name in ("rows", "targets", "weights", "lengths"):
            for outer, inner in zip(getattr(self, name), getattr(lists, name), strict=True):
                connect(m, flipped(outer), inner)
        m.d.comb += [
            lists.clear.eq(self.clear),
            lists.start.eq(self.start),
            lists.setting.eq(self.setting),
            self.bag_count.eq(lists.bag_count),
            self.counted.eq(lists.done),
        ]

        returns = [ReadReturn(config) for _ in range(config.row_ports)]
        arbiters = [ResultArbiter(config) for _ in range(config.row_ports)]
        for port, (back, arbiter) in enumerate(zip(returns, arbiters, strict=True)):
            m.submodules[f"return_{port}"] = cleared(back)
            m.submodules[f"arbiter_{port}"] = cleared(arbiter)
            connect(m, flipped(self.arrived[port]), back.sent)
            connect(m, back.transfers, flipped(self.transfers[port]))
            connect(m, flipped(self.read_rows[port]), back.rows)
            connect(m, flipped(self.read_words[port]), back.words)
            connect(m, arbiter.rows, flipped(self.computed_rows[port]))
            connect(m, arbiter.words, flipped(self.computed_words[port]))

        for number in range(config.bag_units):
            unit = BagUnit(config)
            credits_, demux = ReadCredits(config), ResultDemux(config)
            m.submodules[f"unit_{number}"] = shared_instance(platform, unit)
            m.submodules[f"credits_{number}"] = cleared(credits_)
            m.submodules[f"demux_{number}"] = cleared(demux)
            connect(m, lists=lists.bags[number], unit=unit.bags)
            connect(m, unit.requests, flipped(self.requests[number]))
            connect(m, flipped(self.checked[number]), unit.checked)
            connect(m, credits_.sent, flipped(self.sent[number]))
            connect(m, unit=unit.computed_rows, demux=demux.rows)
            connect(m, unit=unit.computed_words, demux=demux.words)
            m.d.comb += [
                unit.clear.eq(self.clear),
                unit.unit.eq(number),
                credits_.unit.eq(number),
                unit.start.eq(self.start),
                unit.setting.eq(self.setting),
                unit.begin.eq(lists.begin),
                unit.common_row.eq(lists.common_row),
                self.refused[number].eq(unit.refused),
                self.refused_valid[number].eq(unit.refused_valid),
                *([unit.batch.eq(self.batch)] if config.pools_batches else []),
            ]
            for port, (back, arbiter) in enumerate(zip(returns, arbiters, strict=True)):
                connect(m, lists=lists.summands[number][port], unit=unit.summands[port])
                connect(m, unit=unit.transfers[port], sender=credits_.transfers[port])
                connect(m, back=back.unit_rows[number], unit=unit.read_rows[port])
                connect(m, back=back.unit_words[number], unit=unit.read_words[port])
                connect(m, demux=demux.ports[port], arbiter=arbiter.units[number])
                m.d.comb += credits_.freed[port].eq(back.freed[number])
        return m
