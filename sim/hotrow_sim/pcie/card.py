"""The card with its PCI Express bridge, Verilated, and a root complex at the bridge's stream."""

import ctypes
from functools import cache
from pathlib import Path

from hotrow_rtl.config import Config
from hotrow_rtl.export.pcie_card import CARD_MODULE

from ..verilated.build import cached_verilog
from ..verilated.compilation import MEMORY, model_library

HARNESS = Path(__file__).with_name("harness.cpp")
HEADERS = tuple(sorted(MEMORY.glob("*.hpp")))
READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
UNSUPPORTED = 0xFFFF_FFFF  # what a root complex returns for a read that fails


class PcieCard:
    """A card on a link, simulated cycle by cycle: accelerator, bridge and packets.

    Its clock advances only in `run` and in reads of registers.

    Parameters
    ----------
    config : Config
        With a bus of 8 or 16 bytes.
    latency : int
        Cycles from a read request of the card to its first completion.
    spread : int
        Further random cycles of each, so that later requests overtake it.
    seed : int

    Attributes
    ----------
    cycles, interrupts : int
        Clock cycles so far, and rising edges of the interrupt since reset.
    """

    _card = None

    def __init__(self, config: Config, latency: int = 100, spread: int = 20, seed: int = 0):
        self._library = _load(str(card_library(config)))
        self._card = ctypes.c_void_p(self._library.hotrow_card_open(latency, spread, seed))
        self._remote = {}

    def read_register(self, offset: int) -> int:
        """The 32-bit register at a byte offset; all ones if the card does not answer."""
        value = ctypes.c_uint32()
        failed = self._library.hotrow_card_read(self._card, offset, ctypes.byref(value))
        return UNSUPPORTED if failed else value.value

    def write_register(self, offset: int, value: int) -> None:
        """Post a write of the 32-bit register at a byte offset."""
        self._library.hotrow_card_write(self._card, offset, value)

    def master(self, on: bool) -> None:
        """Whether the card may access memory from here on."""
        self._library.hotrow_card_master(self._card, on)

    def map(self, address: int, host: int, size: int, writable: bool) -> bool:
        """Give the card memory of this process, by its address; False if the range overlaps."""
        return bool(self._library.hotrow_card_map(self._card, address, size, host, writable))

    def map_remote(self, address: int, size: int, read, write, writable: bool) -> bool:
        """Give the card memory of another process.

        `read(address, size)` returns the bytes, or None if there are none, and
        `write(address, octets)` whether they could be written.
        """
        def load(at, count, to):
            octets = read(at, count)
            if octets is None:
                return 0
            ctypes.memmove(to, octets, count)
            return 1

        calls = READ(load), WRITE(lambda at, count, octets: write(
            at, ctypes.string_at(octets, count)))
        mapped = self._library.hotrow_card_map_remote(
            self._card, address, size, *calls, writable)
        if mapped:
            self._remote[address] = calls
        return bool(mapped)

    def unmap(self, address: int) -> None:
        """End what `map` or `map_remote` began."""
        self._library.hotrow_card_unmap(self._card, address)
        self._remote.pop(address, None)

    def run(self, cycles: int) -> None:
        """Run the clock."""
        self._library.hotrow_card_run(self._card, cycles)

    def reset(self) -> None:
        """Pulse the reset input, and drop all packets."""
        self._library.hotrow_card_reset(self._card)

    @property
    def cycles(self) -> int:
        return self._library.hotrow_card_cycles(self._card)

    @property
    def interrupts(self) -> int:
        return self._library.hotrow_card_interrupts(self._card)

    def violations(self) -> list[str]:
        """Packets of the card that break the specification."""
        found = []
        while text := self._library.hotrow_card_violation(self._card, len(found)):
            found.append(text.decode())
        return found

    def close(self) -> None:
        """Free the card."""
        if self._card is not None:
            self._library.hotrow_card_close(self._card)
            self._card = None

    def __del__(self):
        self.close()


def card_library(config: Config) -> Path:
    """Path of the card's shared library, built unless the cache has it.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
    ValueError
        If the bus of the configuration is too wide for the link.
    """
    return model_library(f"{config.name}-pcie", CARD_MODULE,
                         cached_verilog(config, with_bridge=True), HARNESS, HEADERS)


@cache
def _load(path):
    """The library with the types of its functions."""
    library = ctypes.CDLL(path)
    pointer, u64, u32, integer = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int
    for name, result, arguments in (
        ("open", pointer, (u32, u32, u64)),
        ("close", None, (pointer,)),
        ("reset", None, (pointer,)),
        ("run", None, (pointer, u64)),
        ("cycles", u64, (pointer,)),
        ("interrupts", u64, (pointer,)),
        ("master", None, (pointer, integer)),
        ("map", integer, (pointer, u64, u64, pointer, integer)),
        ("map_remote", integer, (pointer, u64, u64, READ, WRITE, integer)),
        ("unmap", integer, (pointer, u64)),
        ("read", integer, (pointer, u32, pointer)),
        ("write", integer, (pointer, u32, u32)),
        ("violation", ctypes.c_char_p, (pointer, u32)),
    ):
        function = getattr(library, f"hotrow_card_{name}")
        function.restype, function.argtypes = result, arguments
    return library
