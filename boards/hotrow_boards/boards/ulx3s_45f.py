"""Radiona ULX3S with an LFE5U-45F."""

from ..board import ECP5_45, ECP5_45_CARD, Board
from .ulx3s import SDRAM

ULX3S_45F = Board(
    name="ulx3s-45f",
    title="Radiona ULX3S 45F",
    platform="amaranth_boards.ulx3s:ULX3S_45F_Platform",
    device="LFE5U-45F-6",
    options=("--45k", "--package", "CABGA381", "--speed", "6"),
    capacity=ECP5_45,
    **ECP5_45_CARD,
    dram=SDRAM,
    clock_mhz=25,
    loader=("--board", "ulx3s"),
    uart="over its USB bridge",
    unused="GPDI, SD card, ADC, audio, Wi-Fi module",
)
