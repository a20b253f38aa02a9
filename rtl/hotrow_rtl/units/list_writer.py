"""The list writer: elements that come several a cycle become a list in memory."""

from amaranth import Module, ResetInserter
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..interfaces.lookup_payloads import lane_results
from ..interfaces.records import WriteClient
from ..lists.lane_packer import LanePacker
from ..memory.axi import AXI4Write
from ..memory.write_port import DmaWritePort
from ..primitives.replicated_register import replicated
from .engine_commands import CONTROL, control

ELEMENT_BYTES = 4


def list_start(config: Config) -> data.StructLayout:
    """The byte address of a list, a multiple of 64."""
    return data.StructLayout({"address": config.address_width})


def written_list() -> data.StructLayout:
    """A list is in memory, unless there was a `fault`: 1 SLVERR, 2 DECERR, 3 a time-out."""
    return data.StructLayout({"fault": 2})


class ListWriter(wiring.Component):
    """Write the present ones of up to `lanes` elements a cycle to consecutive addresses.

    Elements have 32 bits. Bytes of the last word past the end of the list are not written.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    starts : In(stream(list_start(config)))
        One per list, in order; elements may come before it.
    elements : In(stream(lane_results(config, 32)))
        Elements in order of beats and lanes; `last` on the final beat of a list, with or without an
        element.
    written : Out(stream(written_list()))
        One per list, after the answers to all its writes.
    m_axi : Out(AXI4Write)
    timeout : In(32)
        Cycles without an answer, after which lists end with a fault; 0 waits without limit.
    restart : In(1)
        A pulse drops the lists inside.
    stopped : Out(1)
        The port has stopped for a time-out, until a restart.
    ready : Out(1)
        Low while the port drains after a restart.

    Timing
    ------
    A bus word a cycle. A burst is sent once all its words are there.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "starts": In(stream.Signature(list_start(config))),
            "elements": In(stream.Signature(lane_results(config, 8 * ELEMENT_BYTES))),
            "written": Out(stream.Signature(written_list())),
            "m_axi": Out(AXI4Write(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                   id_width=1)),
            **CONTROL,
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        packer = LanePacker(c, 8 * ELEMENT_BYTES, ELEMENT_BYTES, c.bus_bytes)
        m.submodules.packer = ResetInserter(replicated(m, "packer_restart", self.restart))(packer)
        m.submodules.port = port = DmaWritePort(c, 1)
        client: WriteClient = port.clients[0]
        connect(m, packer=packer.words, port=client.words)
        connect(m, port=client.outcome, written=flipped(self.written))
        connect(m, port.bus, flipped(self.m_axi))
        control(m, self, {"port": port})
        for outer, inner in ((self.starts, client.request), (self.elements, packer.elements)):
            m.d.comb += [inner.valid.eq(outer.valid & self.ready), inner.p.eq(outer.p),
                         outer.ready.eq(inner.ready & self.ready)]
        return m
