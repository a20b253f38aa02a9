"""Lookup reader: the ids of a batch, each with its table, sample and the verdict of its table."""

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .layouts import Fetch, command, lookup_beat, table_update

verdict = data.StructLayout({"status": 8, "error_index": 64})


class LookupReader(wiring.Component):
    """Turn batch commands into beats of lookups.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
        OBSERVE or SPLIT that passed the checks of the queue, with byte addresses.
    table_update : In(table_update(config))
        Table descriptors as the host registers them.
    ids, lengths : Out(Fetch(config))
    verdict : Out(stream(verdict))
        One per command, in order, before its first beat. OK: beats follow. Otherwise the command
        is refused for the sum of its lengths (LOOKUPS, `error_index` the sum) or a bus fault
        while they were read, and has no beats.
    beats : Out(stream(lookup_beat(config)))
        The lookups in the order of the ids in memory; `last` on the one with the final id.
    restart : In(1)
        A pulse drops the command in progress; the table descriptors stay.
    ready : Out(1)
        High once the table descriptors are cleared after reset.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "table_update": In(table_update(config)),
            "ids": Out(Fetch(config)),
            "lengths": Out(Fetch(config)),
            "verdict": Out(stream.Signature(verdict)),
            "beats": Out(stream.Signature(lookup_beat(config))),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        return Module()
