"""LambdaConcept ECPIX-5."""

from ..board import ECP5_85, Board
from ..dram.controller import Dram
from ..ethernet.station import Rgmii

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
