"""Rate of row reads over a model of a PCI Express gen2 x4 link, in simulated cycles.

    python -m tests.support.pcie.rate

A lane carries 5 GT/s with 8b/10b coding, so four lanes carry 2 bytes a nanosecond. A packet takes 8
bytes of framing in addition to its header; acknowledgements and flow control are not modelled.
"""

import numpy as np

from .bench import FRAMING, BridgeBench
from .root_complex import MEMORY, RootComplex

LINK_BYTES_PER_NS = 2.0
HEADER = 12  # bytes of a completion
CLOCKS = {8: 250, 16: 125}  # MHz of the stream, by its width in bytes
ROWS = 3000
PAYLOAD = 128  # bytes of the packets in the rate that is quoted for the link
QUOTED = LINK_BYTES_PER_NS * PAYLOAD / (PAYLOAD + HEADER + FRAMING)  # 1.73 GB/s


def link_rate(row_bytes):
    """Payload bytes a nanosecond of the link, if each completion has one row or `PAYLOAD` bytes."""
    payload = min(row_bytes, PAYLOAD)
    return LINK_BYTES_PER_NS * payload / (payload + HEADER + FRAMING)


def read_rate(bus_bytes, row_bytes=64, latency_ns=1000, rows=ROWS, seed=1):
    """Read random rows as fast as the bridge does.

    Returns
    -------
    cycles : int
        From the first address to the last word.
    gigabytes : float
        Payload bytes a nanosecond, at the clock of `CLOCKS`.
    in_flight : int
        Most requests in flight at once.
    """
    rng, clock = np.random.default_rng(seed), CLOCKS[bus_bytes]
    root = RootComplex(rng, max_payload=PAYLOAD, max_read=512, splits=0, boundary=64,
                       latency=latency_ns * clock // 1000)

    def expect(address, size):
        where = (address + np.arange(size)) % MEMORY
        return root.memory[where].tobytes(), [0] * (size // bus_bytes)

    bench = BridgeBench(bus_bytes, root, rng, expect, timeout=0,
                        pace=LINK_BYTES_PER_NS * 1000 / clock)
    for row in rng.integers(0, MEMORY // row_bytes, rows):
        bench.readers[0].bursts.append((int(row) * row_bytes, row_bytes // bus_bytes, 0))
    cycles = bench.run(100 * rows + 100_000)
    return cycles, rows * row_bytes * clock / 1000 / cycles, root.in_flight


def main():
    """Print the rates as a table."""
    print(f"{'stream':>14} {'row':>5} {'rows':>5} {'cycles':>7} {'GB/s':>6} {'of the link':>12} "
          f"{'of 1.73':>8} {'M rows/s':>9} {'in flight':>10}")
    for bus_bytes, clock in CLOCKS.items():
        for row_bytes in (64, 128):
            cycles, rate, in_flight = read_rate(bus_bytes, row_bytes)
            print(f"{8 * bus_bytes:4} b {clock:3} MHz {row_bytes:5} {ROWS:5} {cycles:7} "
                  f"{rate:6.2f} {rate / link_rate(row_bytes):12.2f} {rate / QUOTED:8.2f} "
                  f"{1000 * rate / row_bytes:9.1f} {in_flight:10}")


if __name__ == "__main__":
    main()
