"""Lattice ECP5-5G Versa."""

from ..board import ECP5_45, ECP5_45_CARD, Board
from ..dram.controller import Dram
from ..ethernet.station import Rgmii

VERSA_5G = Board(
    name="versa-5g",
    title="Lattice ECP5-5G Versa",
    platform="amaranth_boards.versa_ecp5_5g:VersaECP55GPlatform",
    device="LFE5UM5G-45F-8",
    options=("--um5g-45k", "--package", "CABGA381", "--speed", "8"),
    capacity=ECP5_45,
    **ECP5_45_CARD,
    dram=Dram(chip="MT41K64M16", lanes=2, chip_bytes=1 << 27),
    clock_mhz=50,
    loader=("--cable", "ft2232"),
    uart="over its USB bridge",
    rgmii=Rgmii(),  # the PHY delays both clocks itself
    unused="a second port of gigabit Ethernet, PCIe",
)
