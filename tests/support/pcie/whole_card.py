"""The whole card with its bridge as a transport: the driver's `pcie`, with a simulated bus."""

from functools import partial

from hotrow.transports.pcie import vfio
from hotrow.transports.pcie.transport import PcieTransport
from hotrow.transports.pcie.vfio import MAP, UNMAP, VfioMemory
from hotrow_rtl.config import preset as preset_of
from hotrow_sim.pcie.card import PcieCard

CYCLES = 200  # of the card between two reads of a register, as the host is slow


class CardRegisters:
    """The card's registers in place of a `Bar`."""

    def __init__(self, card):
        self.card = card

    def read(self, offset):
        self.card.run(CYCLES)
        return self.card.read_register(offset)

    def write(self, offset, value):
        self.card.write_register(offset, value)

    def close(self):
        self.card.run(CYCLES)  # a posted write arrives
        found = self.card.violations()
        self.card.close()
        assert not found, found


class CardMemory:
    """The memory calls of VFIO: the card reaches mapped memory."""

    def __init__(self, card):
        self.card = card

    def __call__(self, file, request, argument):
        if request == vfio.MAP_DMA:
            _, flags, host, address, count = MAP.unpack(argument)
            assert self.card.map(address, host, count, bool(flags & 2))
        else:
            assert request == vfio.UNMAP_DMA
            self.card.unmap(UNMAP.unpack(argument)[2])
        return 0


def open_transport(preset="tiny", config=None):
    """A `PcieTransport` to a simulated card."""
    config = config or preset_of(preset)
    card = PcieCard(config)
    return PcieTransport(CardRegisters(card), partial(VfioMemory, -1, ioctl=CardMemory(card)),
                         lambda *, master: card.master(master))
