"""Access counters: how often each of the hottest rows was looked up."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .layouts import command, harvest_entry, ordered_lookup, outcome, result


class AccessCounters(wiring.Component):
    """A set-associative table of saturating counts: OBSERVE, DECAY and HARVEST.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
        OBSERVE, DECAY or HARVEST that passed the checks of the queue.
    lookups : In(stream(ordered_lookup(config)))
        The batch of an OBSERVE, through its `last` element.
    harvested : Out(stream(result(harvest_entry)))
        The entries of a HARVEST, through the `last` element, which is absent when there is none.
    outcome : Out(stream(outcome))
        One per command. That of a HARVEST follows its last entry and does not know whether the
        entries have landed.
    restart : In(1)
        A pulse drops the command in progress; the counts stay.
    ready : Out(1)
        High once the counts are cleared after reset.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "lookups": In(stream.Signature(ordered_lookup(config))),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        return Module()
