"""Radiona ULX3S with an LFE5U-85F."""

from ..board import ECP5_85, Board

ULX3S = Board(
    name="ulx3s",
    title="Radiona ULX3S 85F",
    platform="amaranth_boards.ulx3s:ULX3S_85F_Platform",
    device="LFE5U-85F-6",
    options=("--85k", "--package", "CABGA381", "--speed", "6"),
    capacity=ECP5_85,
    memory_bytes=1 << 16,
    clock_mhz=25,
    loader=("--board", "ulx3s"),
    uart="over its USB bridge",
    unused="32 MB of SDRAM (MT48LC16M16, or a part like it)",
)
