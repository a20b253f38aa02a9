"""Radiona ULX3S with an LFE5U-45F."""

from ..board import ECP5_45, ECP5_45_CARD, Board

ULX3S_45F = Board(
    name="ulx3s-45f",
    title="Radiona ULX3S 45F",
    platform="amaranth_boards.ulx3s:ULX3S_45F_Platform",
    device="LFE5U-45F-6",
    options=("--45k", "--package", "CABGA381", "--speed", "6"),
    capacity=ECP5_45,
    **ECP5_45_CARD,
    clock_mhz=25,
    loader=("--board", "ulx3s"),
    uart="over its USB bridge",
    unused="32 MB of SDRAM (MT48LC16M16, or a part like it)",
)
