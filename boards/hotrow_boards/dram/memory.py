"""A board's DRAM as the memory of a card, wired: bring-up and several ports."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import log2

from .controller import Controller
from .levelling import Levelling
from .program import bring_up
from .sequencer import Sequencer
from .shared_read import SharedRead
from .shared_write import SharedWrite
from .signature import DramBus


class DramMemory(wiring.Component):
    """Bring up a DRAM and serve bursts from its first bytes.

    The card performs the bring-up, so that no host depends on the board's controller. Bursts stall
    until `ready`.

    Parameters
    ----------
    controller : Controller
    reads, writes : sequence
        See `BlockMemory`.

    Attributes
    ----------
    read_0, ... : In(AXI4Read), write_0, ... : In(AXI4Write), marks : Out(stream(range(blocks)))
        See `BlockMemory`.
    ready, failed : Out(1)
        The bring-up succeeded; it failed.
    dram : Out(DramBus)
        To the controller.

    Timing
    ------
    See `SharedRead`, `SharedWrite` and the controller. The bring-up takes the 60,000 cycles that
    the chips need, and about 200 per probed delay.
    """

    def __init__(self, controller: Controller, reads, writes):
        self.controller, dram = controller, controller.dram
        self.reads, self.writes = list(reads), list(writes)
        super().__init__({
            **{f"read_{number}": In(each) for number, each in enumerate(self.reads)},
            **{f"write_{number}": In(each) for number, (each, _) in enumerate(self.writes)},
            "marks": Out(stream.Signature(range(dram.memory_bytes >> dram.block_log2))),
            "ready": Out(1), "failed": Out(1),
            "dram": Out(dram_bus(controller)),
        })

    def elaborate(self, platform):
        m = Module()
        dram, program = self.controller.dram, bring_up(self.controller)
        width = log2(dram.chip_bytes)
        m.submodules.levelling = levelling = Levelling(program)
        m.submodules.sequencer = sequencer = Sequencer(program)
        m.submodules.shared_read = reads = SharedRead(
            dram.memory_bytes, self.reads, dram.word_bytes, width)
        m.submodules.shared_write = writes = SharedWrite(
            dram.memory_bytes, dram.block_log2, self.writes, dram.word_bytes, width)
        for number in range(len(self.reads)):
            connect(m, getattr(reads, f"read_{number}"), flipped(getattr(self, f"read_{number}")))
        for number in range(len(self.writes)):
            connect(m, getattr(writes, f"write_{number}"),
                    flipped(getattr(self, f"write_{number}")))
        connect(m, writes.marks, flipped(self.marks))
        connect(m, levelling=levelling.sections, sequencer=sequencer.sections)
        connect(m, sequencer.control, flipped(self.dram.control))
        connect(m, reads.bus, flipped(self.dram.read))
        connect(m, writes.bus, flipped(self.dram.write))
        m.d.comb += [
            sequencer.lane.eq(levelling.lane), levelling.mismatch.eq(sequencer.mismatch),
            self.ready.eq(levelling.ready), self.failed.eq(levelling.failed),
        ]
        return m


def dram_bus(controller: Controller) -> DramBus:
    """Signature between a card and its controller."""
    return DramBus(address_width=log2(controller.dram.chip_bytes),
                   word_bytes=controller.dram.word_bytes)
