"""BagUnit: one of several bag units, from its bags to their computed rows."""

from amaranth import ResetInserter
from amaranth.lib import stream
from amaranth.lib.wiring import In, connect, flipped

from .payloads import bag_item, list_row, summand
from .pipeline import BagPipeline
from .unit_requests import UnitRequests


class BagUnit(BagPipeline):
    """A `BagPipeline` for every `bag_units`-th bag of a command, starting with number `unit`.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    clear : In(1)
        Clear the unit.
    begin, common_row, bags, summands : In
        See `UnitRequests`, in place of the lists.
    unit, start, setting, batch, requests, checked, transfers, read_rows, read_words, computed_rows,
    computed_words, refused, refused_valid
        See `BagPipeline`; the numbers of bags are those of the command.

    Timing
    ------
    See `BagPipeline`.
    """

    @staticmethod
    def _lists(config):
        return {
            "clear": In(1),
            "begin": In(1),
            "common_row": In(list_row(config)),
            "bags": In(stream.Signature(bag_item(config))),
            "summands": In(stream.Signature(summand(config))).array(config.row_ports),
        }

    @staticmethod
    def _counts():
        return {}

    def elaborate(self, platform):
        return ResetInserter(self.clear)(super().elaborate(platform))

    def _requests(self, m):
        requests = UnitRequests(self.config)
        connect(m, flipped(self.bags), requests.bags)
        for outer, inner in zip(self.summands, requests.summands, strict=True):
            connect(m, flipped(outer), inner)
        m.d.comb += [
            requests.unit.eq(self.unit),
            requests.begin.eq(self.begin),
            requests.common_row.eq(self.common_row),
        ]
        return requests

    def _counted(self, requests):
        return []
