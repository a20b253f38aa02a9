"""Description of a board: device, clock, memory, links and the accelerator that it carries."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module

from hotrow_rtl.config import Config, preset

from .dram.controller import Dram
from .ethernet.station import Rgmii, Station

ECP5_85 = {"luts": 83640, "ffs": 83640, "bram": 208, "dsp": 156}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Link and memory that a card on a board uses.

    Parameters
    ----------
    link : str
        One of `Board.links`.
    memory : str
        One of `Board.memories`.
    station : Station
        Addresses of a card with the link "udp".
    """

    link: str = "uart"
    memory: str = "block"
    station: Station = field(default_factory=Station)


@dataclass(frozen=True, kw_only=True)
class Board:
    """One board; the instances are in ``hotrow_boards.boards``.

    Parameters
    ----------
    name : str
        Name on the command line.
    title : str
        Manufacturer and model.
    platform : str
        Class in amaranth-boards, "module:class".
    device : str
        Part number of the FPGA, with speed grade.
    options : tuple of str
        nextpnr's options for that FPGA.
    capacity : mapping of str to int
        luts, ffs, bram and dsp of the FPGA.
    preset : str
        Preset of the accelerator.
    memory_bytes : int
        Size of the card's memory in block RAM, a power of two.
    dram : Dram, optional
        DRAM that can replace the block RAM as the card's memory.
    clock_mhz : int
        Clock of the card.
    loader : tuple of str
        openFPGALoader's arguments that select the board.
    revisions : mapping of str to tuple of str
        The same for each revision, where they differ.
    uart : str
        Connection of the serial line, for `hotrow boards`.
    rgmii : Rgmii, optional
        Connection of the FPGA to the Ethernet PHY.
    unused : str
        Parts of the board that this design does not use.
    """

    name: str
    title: str
    platform: str
    device: str
    options: tuple
    capacity: Mapping
    preset: str = "ecp5"
    memory_bytes: int
    dram: Dram | None = None
    clock_mhz: int
    loader: tuple
    revisions: Mapping[str, tuple] = field(default_factory=dict)
    uart: str
    rgmii: Rgmii | None = None
    unused: str

    @property
    def links(self) -> dict[str, str]:
        """Connection of each transport that reaches the board, by transport."""
        return {"uart": self.uart, **({"udp": "over gigabit Ethernet"} if self.rgmii else {})}

    @property
    def memories(self) -> dict[str, int]:
        """Bytes of each possible memory of the card, by its name on the command line."""
        return {"block": self.memory_bytes,
                **({"dram": self.dram.memory_bytes} if self.dram else {})}

    def check(self, variant: Variant) -> None:
        """Refuse a link or a memory that the board does not have.

        Raises
        ------
        ValueError
            Naming the links or memories of the board.
        """
        for kind, name, available in (("link", variant.link, self.links),
                                      ("memory", variant.memory, self.memories)):
            if name not in available:
                raise ValueError(f"{self.title} has no {kind} {name!r} for a card: expected "
                                 f"{' or '.join(available)}")

    @property
    def config(self) -> Config:
        """Configuration of the accelerator on the board."""
        return replace(preset(self.preset), name=f"{self.preset}-{self.name}",
                       clock_mhz=self.clock_mhz)

    def make_platform(self):
        """A fresh instance of the board's platform.

        Raises
        ------
        ModuleNotFoundError
            If amaranth-boards is not installed.
        """
        module, _, name = self.platform.partition(":")
        return getattr(import_module(module), name)()
