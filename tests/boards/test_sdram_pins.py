"""An SDR DRAM at its pins: bring-up, and LiteDRAM's controller and PHY for the ECP5, in Icarus."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from hotrow_boards.boards import BOARDS
from hotrow_boards.dram.controller import generate
from hotrow_boards.dram.memory import DramMemory
from hotrow_rtl.emit.component import to_verilog
from hotrow_rtl.memory.axi import AXI4Read, AXI4Write

from tests.boards.generators import needs_litedram
from tests.boards.real_tools import real_tool
from tests.boards.sdram_pins import BENCH, CELLS, CHIP, connections

BUS = {"address_width": 32, "bus_bytes": 8, "id_width": 1}
PORT = re.compile(r"^  (?:in|out)put (\[\d+:0\] )?(\w+);", re.MULTILINE)


@pytest.mark.long
@needs_litedram
def test_an_sdram_at_its_pins(tmp_path):
    """With the delays of slow pins; refreshes are as frequent as the chip needs them."""
    if not shutil.which("iverilog"):
        pytest.skip("iverilog is not installed")
    board, seed = BOARDS["ulx3s"], 7
    clock_mhz = board.clock_mhz
    rng, steps, expected = np.random.default_rng(seed), [], {}
    # Banks, rows and columns apart; a burst crosses the end of a row.
    bursts = [(0, 4), (0x3F0, 4), (0x400, 1), (0x1000, 2), (0x1FFFFC0, 8), (0x1000008, 3), (8, 1)]
    for address, beats in bursts:
        words = rng.integers(0, 256, (beats, 8), dtype=np.uint8)
        strobes = rng.integers(1, 256)
        for kept in (255, strobes):
            for beat, word in enumerate(words):
                old = expected.setdefault(address + 8 * beat, np.zeros(8, np.uint8))
                chosen = kept >> np.arange(8) & 1 == 1
                expected[address + 8 * beat] = np.where(chosen, word ^ kept, old).astype(np.uint8)
            data = ", ".join(f"64'h{word[::-1].tobytes().hex()}" for word in words ^ np.uint8(kept))
            steps.append(f"write({address}, {beats}, {{{data}}}, {kept});")
    steps += [f"read({address}, {beats});" for address, beats in bursts]

    controller = generate(board.dram, f"{board.device}BG381C", 25, clock_mhz)
    memory = to_verilog(
        DramMemory(controller, [AXI4Read(**BUS)], [(AXI4Write(**BUS), True)]), "memory")
    ports = PORT.findall(re.search(r"^module memory\(.*?^endmodule", memory, re.M | re.S)[0])
    bench = BENCH.format(half=500 // clock_mhz, steps="\n".join(steps), **connections(ports))
    for name, text in {"bench.v": bench, "memory.v": memory,
                       "litedram.v": controller.verilog,
                       "models.v": "`timescale 1ns/100ps\n" + CELLS + CHIP}.items():
        (tmp_path / name).write_text(text)

    def run(*command):
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True,
                              timeout=120).stdout
    # Icarus executes `always @(*)` only when an input changes; Yosys writes expressions instead.
    run(real_tool("yosys"), "-q", "-p", "read_verilog -sv litedram.v; proc -norom; opt_clean; "
        "write_verilog -noattr plain.v")
    run("iverilog", "-g2012", "-o", "bench", "bench.v", "models.v", "memory.v", "plain.v")
    printed = run("vvp", "-n", "bench")
    assert "FAILED" not in printed and "ready" in printed, printed
    found = [bytes.fromhex(word)[::-1] for word in re.findall(r"READ (\w{16})", printed)]
    wanted = [bytes(expected[address + 8 * beat]) for address, beats in bursts
              for beat in range(beats)]
    assert found == wanted, f"seed {seed}"
    cycles, refreshes = map(int, re.search(r"(\d+) cycles, (\d+) refreshes", printed).groups())
    assert refreshes >= cycles * 8192 // (clock_mhz * 64_000) - 2
