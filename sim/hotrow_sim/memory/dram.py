"""Kinds of DRAM: their channels, banks and timings; ``dram.hpp`` has the model.

The timings are quoted from public standards from memory, and so assumptions: DDR3-1600K (11-11-11)
of JEDEC JESD79-3, 16-bit chips of 4 Gb; HBM2 at 1800 MT/s per pin in pseudo channel mode, JEDEC
JESD235, 32 pseudo channels of 8 Gb as on an Alveo U55C. The controller follows LiteDRAM: one read
or write and one row command per channel and cycle, eight accesses in the queue of each bank, and at
most 32 cycles of reads or 16 of writes while the other direction waits.
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
    """Totals of a DRAM: `reads` and `writes` of bus words, rows `opened`, `refreshes`, and `turns`
    between reading and writing."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "reads", "writes", "opened", "refreshes", "turns")]


@dataclass(frozen=True, kw_only=True)
class Dram:
    """A kind of DRAM and its controller.

    Parameters
    ----------
    name : str
    channels, interleave : int
        Channels, and consecutive bytes in a channel.
    banks, page_bytes : int
        Banks of a channel, and bytes of a bank's row.
    access_bytes : int
        Smallest transfer of a channel.
    gigabytes_per_s : float
        Peak of a channel, limited to a bus word per cycle of the card.
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
        """The timing in cycles of a card, rounded up."""
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
    """One channel whose burst of eight transfers is a bus word, as in LiteDRAM: 16-bit chips in
    parallel, one for a bus of 16 bytes, four for 64."""
    return Dram(
        name="ddr3", channels=1, interleave=1 << 31, banks=8, page_bytes=1024 * bus_bytes // 8,
        access_bytes=bus_bytes, gigabytes_per_s=1.6 * bus_bytes / 8,
        activate=13.75, precharge=13.75, open=35, read=13.75, write=10, read_to_close=7.5,
        write_recovery=15, write_to_read=7.5, read_to_write=2.5, row_to_row=7.5, four_rows=40,
        refresh_interval=7800, refresh=260)


def hbm(bus_bytes) -> Dram:
    """32 pseudo channels of 14.4 GB/s, interleaved by 256 bytes; every port accesses all."""
    return Dram(
        name="hbm", channels=32, interleave=256, banks=16, page_bytes=1024, access_bytes=32,
        gigabytes_per_s=14.4,
        activate=14, precharge=14, open=33, read=14, write=8, read_to_close=5,
        write_recovery=16, write_to_read=8, read_to_write=2, row_to_row=4, four_rows=16,
        refresh_interval=3900, refresh=260)


MEMORIES = {"ideal": None, "ddr3": ddr3, "hbm": hbm}


def dram_timing(memory, clock_mhz, bus_bytes) -> DramTiming | None:
    """Timing of a memory in `MEMORIES`; None for the ideal one.

    Raises
    ------
    ValueError
        If there is no such memory.
    """
    if memory not in MEMORIES:
        raise ValueError(f"unknown memory {memory!r}: expected one of {', '.join(MEMORIES)}")
    kind = MEMORIES[memory]
    return kind and kind(bus_bytes).timing(clock_mhz, bus_bytes)
