"""Lane serializer: the lookups of a beat one after another."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .layouts import lookup_beat, ordered_lookup


class LaneSerializer(wiring.Component):
    """Put the lookups of each beat in lane order, one a cycle, and number them.

    Parameters
    ----------
    config : Config

    Members
    -------
    beats : In(stream(lookup_beat(config)))
    lookups : Out(stream(ordered_lookup(config)))
        The present lanes only, `position` counting from 0 in each batch; `last` on the batch's
        final element, which carries no lookup when the final beat has none.
    restart : In(1)
        A pulse drops the batch in progress.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "beats": In(stream.Signature(lookup_beat(config))),
            "lookups": Out(stream.Signature(ordered_lookup(config))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        return Module()
