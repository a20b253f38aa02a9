"""Buffers and tables of a fuzzing session, valid and invalid."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.config import Config, log2
from hotrow_rtl.contract.encoding import packed_address
from hotrow_sim.golden.region_check import Table

from ..bare_host import BareHost, aligned

# Handles; 0 to 3 are the rings.
WEIGHTS, STATE, LISTS, RESULTS = 4, 5, 6, 7
# Regions that exceed their memory, so that accesses beyond it fault: one for reads, one for the
# writes of each queue, so that their contents do not depend on the order of the queues, and one for
# a table.
SHORT, SHORT_LOOKUP, SHORT_MOVE, SHORT_TABLE = 8, 9, 10, 12
PROTECTED = 11  # registered for writing, but its memory, that of LISTS, is read-only
UNREGISTERED = 13  # and above
SIZES = {WEIGHTS: 1 << 20, STATE: 1 << 16, LISTS: 1 << 17, RESULTS: 1 << 19,
         SHORT: 8192, SHORT_LOOKUP: 8192, SHORT_MOVE: 8192, SHORT_TABLE: 8192}
WRITABLE = (WEIGHTS, STATE, RESULTS, SHORT_LOOKUP, SHORT_MOVE, SHORT_TABLE)
SHORT_REGION = 16384
FILL = 0xEE


@dataclass(frozen=True)
class Setup:
    """Initial state: `contents` of buffers by handle, `tables` by number, values of `events`."""

    contents: dict
    tables: dict
    events: list


def make_setup(rng, config: Config):
    """Draw buffers and tables.

    Tables 0 to 2 and 4 to 7 are valid, 6 has a part beyond the parts of the directory, and 7 more
    parts than the directory; 3 is not registered; 8 has 2**32 rows; 9 has no weights, 10
    too few, 11 rows that are too long, 12 no state. The rows of 13 extend beyond readable memory,
    those of 14 beyond writable memory, and those of 15 are in read-only memory.
    """
    contents = {handle: rng.integers(0, 256, size, np.uint8) for handle, size in SIZES.items()}
    contents[RESULTS][:] = FILL
    tables, next_weights, next_state = {}, 0, 0
    kind = row_bytes = 0
    for number in (0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15):
        rows = int(rng.choice([1, 7, 60, 300]))
        if not row_bytes or rng.random() < 0.6:
            kind = int(rng.choice([0, 0, 1, 2]))
            row_bytes = 16 * int(rng.integers(1, config.row_bytes // 16 + 1)) \
                if rng.random() < 0.3 else int(rng.choice([16, 32, 64, 80]))
        stride = row_bytes + 16 * int(rng.choice([0, 0, 1, 3]))
        state_bytes = int(rng.choice([0, 4, 4, 8, 16, 32]))
        parts_log2 = int(rng.integers(0, log2(config.directory_partitions) + 1))
        tables[number] = Table(
            last_row=rows - 1, weights=packed_address(WEIGHTS, next_weights), row_bytes=row_bytes,
            stride=stride, state=packed_address(STATE, next_state), state_bytes=state_bytes,
            parts_log2=parts_log2, part=int(rng.integers(0, 1 << parts_log2)), type=kind)
        next_weights = (next_weights + rows * stride) % (SIZES[WEIGHTS] // 2)
        next_state = (next_state + rows * state_bytes) % (SIZES[STATE] // 2)

    def change(number, **changed):
        tables[number] = Table(**{**vars(tables[number]), **changed})

    change(6, part=0xFF)
    change(7, parts_log2=0xFF, part=0xFF)
    change(8, last_row=0xFFFF_FFFF)
    change(9, weights=packed_address(UNREGISTERED, 0))
    change(10, last_row=299, weights=packed_address(WEIGHTS, SIZES[WEIGHTS] - 1600))
    change(11, row_bytes=config.row_bytes + 16, stride=config.row_bytes + 16)
    change(12, state=packed_address(UNREGISTERED, 0), state_bytes=4)
    change(15, weights=packed_address(PROTECTED, 0), state=packed_address(PROTECTED, 64))
    for number, handle in ((13, SHORT), (14, SHORT_TABLE)):
        change(number, last_row=299, weights=packed_address(handle, 0), row_bytes=48, stride=64,
              state=packed_address(handle, 4096), state_bytes=32)
    # Some event counters wrap around during the session.
    return Setup(contents, tables, [int(v) for v in rng.choice([0, 0xFFFF_FFF0], config.events)])


class FuzzHost(BareHost):
    """A `BareHost` with the buffers and tables of a setup.

    Parameters
    ----------
    transport, setup, entries_log2
    leaves : bool
        Regions exceed their memory, or are writable where that is not. Otherwise no access leaves
        its array.

    Attributes
    ----------
    buffers : dict of int to uint8 array
        By handle.
    """

    def __init__(self, transport, setup, entries_log2, leaves=True):
        super().__init__(transport, entries_log2)
        self.buffers = {}
        for handle, content in setup.contents.items():
            octets = aligned(content.size)
            octets[:] = content
            self.buffers[handle] = octets
            self.register(handle, octets, writable=handle in WRITABLE)
        if leaves:
            for handle in (SHORT, SHORT_LOOKUP, SHORT_MOVE, SHORT_TABLE):
                self.region(handle, self.addresses[handle], SHORT_REGION, handle in WRITABLE)
        self.region(PROTECTED, self.addresses[LISTS], SIZES[LISTS], writable=leaves)
        for number, table in setup.tables.items():
            self.table(number, table)
        for event, value in enumerate(setup.events):
            self.write("EVENT_SELECT", event)
            self.write("EVENT_VALUE", value)
