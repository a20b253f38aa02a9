"""The boards that `hotrow build` supports."""

from ..board import ECP5_85, Board
from ..dram.controller import Dram
from ..ethernet.station import Rgmii

ULX3S = Board(
    name="ulx3s",
    title="Radiona ULX3S 85F",
    platform="amaranth_boards.ulx3s:ULX3S_85F_Platform",
    device="LFE5U-85F-6",
    options=("--85k", "--package", "CABGA381", "--speed", "6"),
    capacity=ECP5_85,
    memory_bytes=1 << 16,
    # A board carries one of several parts with 32 or 64 MB; this one's timing suits all of them.
    dram=Dram(memtype="SDR", chip="MT48LC16M16", lanes=2, chip_bytes=1 << 25,
              memory_bytes=1 << 25, pins="sdram"),
    clock_mhz=25,
    loader=("--board", "ulx3s"),
    uart="over its USB bridge",
    unused="GPDI, SD card, ADC, audio, Wi-Fi module",
)

ECPIX5 = Board(
    name="ecpix5",
    title="LambdaConcept ECPIX-5 85F",
    platform="amaranth_boards.ecpix5:ECPIX585Platform",
    device="LFE5UM5G-85F-8",
    options=("--um5g-85k", "--package", "CABGA554", "--speed", "8"),
    capacity=ECP5_85,
    memory_bytes=1 << 16,
    # All of it; with blocks of 4 KB the bitmap of written blocks takes 8 block RAMs.
    dram=Dram(chip="MT41K256M16", lanes=2, chip_bytes=1 << 29, memory_bytes=1 << 29,
              block_log2=12),
    clock_mhz=50,
    loader=("--board", "ecpix5"),
    revisions={"R02": ("--board", "ecpix5"), "R03": ("--board", "ecpix5_r03")},  # FT2232, FT4232
    uart="over its USB bridge",
    rgmii=Rgmii(tx_delay_ns=2),  # the PHY delays the received clock itself
    unused="SATA, USB over ULPI",
)

BOARDS = {board.name: board for board in (ECPIX5, ULX3S)}


def find_board(name: str):
    """The board named `name`.

    Raises
    ------
    ValueError
        Naming the known boards.
    """
    if name not in BOARDS:
        raise ValueError(f"unknown board {name!r}: expected one of {', '.join(BOARDS)}")
    return BOARDS[name]
