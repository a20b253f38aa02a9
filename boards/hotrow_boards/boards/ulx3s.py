"""Radiona ULX3S with an LFE5U-85F."""

from ..board import ECP5_85, Board
from ..dram.controller import Dram

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
