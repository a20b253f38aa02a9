"""DRAM behind the ports: which banks and channels there are, and how long they take.

The timing itself is ``dram.hpp``. Figures are those of public standards, quoted from memory, and so
assumptions: DDR3-1600K (11-11-11) of JEDEC JESD79-3, 4 Gb chips of 16 bits; HBM2 at 1800 MT/s per
pin in pseudo channel mode, JEDEC JESD235, 32 pseudo channels of 8 Gb as on an Alveo U55C.
Controller: one read or write and one row command per channel and cycle, eight accesses waiting at
each bank, and at most 32 cycles of reads or 16 of writes while the others wait, as LiteDRAM has it.
"""

import ctypes
from dataclasses import dataclass

FIELDS = (
    "channels", "interleave", "banks", "page", "word", "activate", "precharge", "open", "read",
    "write", "read_to_close", "write_recovery", "write_to_read", "read_to_write", "row_to_row",
    "four_rows", "refresh_interval", "refresh", "queue", "read_turn", "write_turn")


class DramTiming(ctypes.Structure):
    """`struct DramTiming` of dram.hpp: bytes, and cycles of the card's clock."""

    _fields_ = [(name, ctypes.c_uint32) for name in FIELDS]


class DramStatistics(ctypes.Structure):
    """What a DRAM did: `reads` and `writes` of bus words, rows `opened`, `refreshes`, `turns` from
    reading to writing or back."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "reads", "writes", "opened", "refreshes", "turns")]


@dataclass(frozen=True, kw_only=True)
class Dram:
    """A kind of DRAM, and its controller.

    Parameters
    ----------
    name : str
    channels, interleave : int
        Channels, and consecutive bytes in one before the next comes.
    banks, page_bytes : int
        Banks of a channel; consecutive bytes of a channel that one bank holds in a row.
    access_bytes : int
        The least that a channel transfers.
    gigabytes_per_s : float
        Peak of one channel. It never carries more than a bus word per cycle of the card.
    activate, precharge, open, read, write, read_to_close, write_recovery, write_to_read,
    read_to_write, row_to_row, four_rows, refresh_interval, refresh : float
        Nanoseconds; see dram.hpp.
    queue, read_turn, write_turn : int
        See dram.hpp.
    """

    name: str
    channels: int
    interleave: int
    banks: int
    page_bytes: int
    access_bytes: int
    gigabytes_per_s: float
    activate: float
    precharge: float
    open: float
    read: float
    write: float
    read_to_close: float
    write_recovery: float
    write_to_read: float
    read_to_write: float
    row_to_row: float
    four_rows: float
    refresh_interval: float
    refresh: float
    queue: int = 8
    read_turn: int = 32
    write_turn: int = 16

    def timing(self, clock_mhz, bus_bytes) -> DramTiming:
        """What this memory is to a card of that clock and bus: whole cycles, rounded up."""
        def cycles(nanoseconds):
            return -int(-nanoseconds * clock_mhz // 1000)

        moved = max(bus_bytes, self.access_bytes)
        return DramTiming(
            channels=self.channels, interleave=self.interleave, banks=self.banks,
            page=self.page_bytes,
            word=max(256, round(256 * moved / self.gigabytes_per_s * clock_mhz / 1000)),
            queue=self.queue, read_turn=self.read_turn, write_turn=self.write_turn,
            **{name: cycles(getattr(self, name)) for name in (
                "activate", "precharge", "open", "read", "write", "read_to_close",
                "write_recovery", "write_to_read", "read_to_write", "row_to_row", "four_rows",
                "refresh_interval", "refresh")})


def ddr3(bus_bytes) -> Dram:
    """One channel whose burst of eight transfers is one bus word, as LiteDRAM's ports have it:
    chips of 16 bits side by side, one for a bus of 16 bytes, four for 64."""
    return Dram(
        name="ddr3", channels=1, interleave=1 << 31, banks=8, page_bytes=1024 * bus_bytes // 8,
        access_bytes=bus_bytes, gigabytes_per_s=1.6 * bus_bytes / 8,
        activate=13.75, precharge=13.75, open=35, read=13.75, write=10, read_to_close=7.5,
        write_recovery=15, write_to_read=7.5, read_to_write=2.5, row_to_row=7.5, four_rows=40,
        refresh_interval=7800, refresh=260)


def hbm(bus_bytes) -> Dram:
    """32 pseudo channels of 14.4 GB/s, 256 bytes in each by turns; every port reaches all."""
    return Dram(
        name="hbm", channels=32, interleave=256, banks=16, page_bytes=1024, access_bytes=32,
        gigabytes_per_s=14.4,
        activate=14, precharge=14, open=33, read=14, write=8, read_to_close=5,
        write_recovery=16, write_to_read=8, read_to_write=2, row_to_row=4, four_rows=16,
        refresh_interval=3900, refresh=260)


MEMORIES = {"ideal": None, "ddr3": ddr3, "hbm": hbm}


def dram_timing(memory, clock_mhz, bus_bytes) -> DramTiming | None:
    """Timing of a memory named in `MEMORIES`; None of the ideal one.

    Raises
    ------
    ValueError
        Naming those that exist.
    """
    if memory not in MEMORIES:
        raise ValueError(f"unknown memory {memory!r}: expected one of {', '.join(MEMORIES)}, "
                         "or litedram behind a Verilated device")
    kind = MEMORIES[memory]
    return kind and kind(bus_bytes).timing(clock_mhz, bus_bytes)
