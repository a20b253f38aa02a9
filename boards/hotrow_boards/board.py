"""What a board is: its device, its clock, its memory, its link, and the accelerator it carries."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module

from hotrow_rtl.config import Config, preset

from .dram.controller import Dram
from .ethernet.station import Rgmii, Station

ECP5_85 = {"luts": 83640, "ffs": 83640, "bram": 208, "dsp": 156}
ECP5_45 = {"luts": 43848, "ffs": 43848, "bram": 108, "dsp": 72}
ECP5_25 = {"luts": 24288, "ffs": 24288, "bram": 56, "dsp": 28}
# What differs from `ecp5-small` on an ECP5-45F, whose wires do not suffice for all of that.
ECP5_45_CARD = {
    "changes": {"tables": 16, "counter_sets": 512, "counter_ways": 2, "directory_choices": 1,
                "directory_sets": 256, "miss_entries": 256, "batch_samples": 1024,
                "outstanding": 4},
    "memory_bytes": 1 << 15,
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Which of the things that a board has a card on it uses.

    Parameters
    ----------
    link : str
        One of `Board.links`.
    memory : str
        One of `Board.memories`.
    station : Station
        Of a card whose link is "udp".
    """

    link: str = "uart"
    memory: str = "block"
    station: Station = field(default_factory=Station)


@dataclass(frozen=True, kw_only=True)
class Board:
    """One board; see ``hotrow_boards.boards``.

    Parameters
    ----------
    name : str
        On the command line.
    title : str
        Maker and model.
    platform : str
        Its class in amaranth-boards, "module:class".
    device : str
        The FPGA.
    options : tuple of str
        Of the router, for that FPGA.
    capacity : mapping of str to int
        What it has: luts, ffs, bram, dsp.
    preset : str
    changes : mapping
        Members of the preset's `Config` that differ.
    memory_bytes : int
        Of block RAM as the card's memory, a power of two.
    dram : Dram, optional
        That can be the card's memory instead.
    clock_mhz : int
        Of the card.
    loader : tuple of str
        Arguments by which openFPGALoader knows the board.
    uart : str
        Over what a serial line goes.
    rgmii : Rgmii, optional
        How the FPGA reaches the PHY of the board's Ethernet.
    unused : str
        What the board has besides that this design does not use.
    """

    name: str
    title: str
    platform: str
    device: str
    options: tuple
    capacity: Mapping
    preset: str = "ecp5-small"
    changes: Mapping = field(default_factory=dict)
    memory_bytes: int
    dram: Dram | None = None
    clock_mhz: int
    loader: tuple
    uart: str
    rgmii: Rgmii | None = None
    unused: str

    @property
    def links(self) -> dict[str, str]:
        """The transports by which a host can reach it, and over what."""
        return {"uart": self.uart, **({"udp": "over gigabit Ethernet"} if self.rgmii else {})}

    @property
    def memories(self) -> dict[str, int]:
        """Bytes of what can be the card's memory, by its name on the command line."""
        return {"block": self.memory_bytes,
                **({"dram": self.dram.memory_bytes} if self.dram else {})}

    def check(self, variant: Variant) -> None:
        """Refuse a link or a memory that it does not have.

        Raises
        ------
        ValueError
            Naming those that it has.
        """
        for what, asked, has in (("link", variant.link, self.links),
                                 ("memory", variant.memory, self.memories)):
            if asked not in has:
                raise ValueError(f"{self.title} has no {what} {asked!r} for a card: expected "
                                 f"{' or '.join(has)}")

    @property
    def config(self) -> Config:
        """The accelerator that it carries."""
        return replace(preset(self.preset), name=f"{self.preset}-{self.name}",
                       clock_mhz=self.clock_mhz, **self.changes)

    def make_platform(self):
        """A new object of its platform.

        Raises
        ------
        ModuleNotFoundError
            If amaranth-boards is not installed.
        """
        module, _, name = self.platform.partition(":")
        return getattr(import_module(module), name)()
