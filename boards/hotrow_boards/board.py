"""Description of a board: device, clock, memory, links and the accelerator that it carries."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module

from hotrow_rtl.config import DEFAULT_PRESET, Config, preset

from .dram.controller import Dram
from .ethernet.station import Rgmii, Station

# Of the ECP5s that hold a card (Lattice FPGA-DS-02012), by the middle of their part number.
CAPACITIES = {"45F": {"luts": 43848, "ffs": 43848, "bram": 108, "dsp": 72},
               "85F": {"luts": 83640, "ffs": 83640, "bram": 208, "dsp": 156}}


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
    """One board; files describe them: see ``hotrow_boards.boards``.

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
    package : str
        Its package, as nextpnr names it.
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
    package: str
    preset: str = DEFAULT_PRESET
    memory_bytes: int = 1 << 16
    dram: Dram | None = None
    clock_mhz: int
    loader: tuple
    revisions: Mapping[str, tuple] = field(default_factory=dict)
    uart: str
    rgmii: Rgmii | None = None
    unused: str

    def __post_init__(self):
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", self.name):
            raise ValueError(f"name must be of small letters, digits, - and _, not {self.name!r}")
        least = 1 << 15  # two queues of a few commands, staging for both ways, and tables
        if self.memory_bytes < least or self.memory_bytes & (self.memory_bytes - 1):
            raise ValueError(f"memory_bytes must be a power of two of at least {least}, not "
                             f"{self.memory_bytes}")
        preset(self.preset)
        if not re.fullmatch(r"LFE5U(M|M5G)?-(45F|85F)-[678]", self.device):
            raise ValueError(f"device must be an ECP5 with its speed grade, such as LFE5U-85F-6, "
                             f"of 45F or 85F (smaller ones do not hold a card), not "
                             f"{self.device!r}")

    @property
    def options(self) -> tuple[str, ...]:
        """nextpnr's options for the FPGA."""
        family, size, speed = self.device.split("-")
        kind = {"LFE5U": "", "LFE5UM": "um-", "LFE5UM5G": "um5g-"}[family]
        return (f"--{kind}{size.lower().replace('f', 'k')}", "--package", self.package,
                "--speed", speed)

    @property
    def capacity(self) -> Mapping[str, int]:
        """luts, ffs, bram and dsp of the FPGA."""
        return CAPACITIES[self.device.split("-")[1]]

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
