"""Run a bench of your own: `python -m hotrow_sim.bench made/hotrow_counters.json bench`."""

import argparse
import json
import sys
from pathlib import Path

from ..toolchain import ToolMissing
from .runner import SIMULATORS, simulate_unit
from .timing import svg


def main() -> int:
    """Run the tests of a module; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hotrow_sim.bench", description=__doc__)
    parser.add_argument("unit", help="the JSON file of `hotrow generate --unit`")
    parser.add_argument("module", help="the cocotb module, a file of this folder without its .py")
    parser.add_argument("--simulator", choices=SIMULATORS, default="icarus")
    parser.add_argument("--waves", action="store_true", help="record a waveform")
    parser.add_argument("--timing", metavar="FILE", type=Path, help="a timing diagram of the first "
                        "transfers: FILE.json for WaveDrom, or FILE.svg")
    parser.add_argument("-o", "--output", default="out", metavar="DIR", help="for what it leaves")
    options = parser.parse_args()
    try:
        diagram = Path(options.output, "timing.json").resolve()
        passed, waveform = simulate_unit(
            options.unit, options.module, simulator=options.simulator, folder=options.output,
            waves=options.waves,
            environment={"HOTROW_TIMING": str(diagram)} if options.timing else {})
        if options.timing:
            text = diagram.read_text()
            options.timing.write_text(
                svg(json.loads(text)) if options.timing.suffix == ".svg" else text)
    except (ToolMissing, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except AssertionError as failed:
        print(failed, file=sys.stderr)
        print(f"A test failed: {options.output}/test.log has the whole log.", file=sys.stderr)
        return 1
    print(f"{passed} tests passed on {options.simulator}: {options.output}/test.log")
    if waveform:
        print(f"{waveform}: open it with surfer, or with gtkwave -a "
              f"{waveform.with_suffix('.gtkw')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
