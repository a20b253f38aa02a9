"""Draws commands: batches, lists, housekeeping, and malformed versions of them."""

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.contract.command_rules import ARITHMETIC
from hotrow_rtl.contract.encoding import (
    OPERANDS,
    AllFlag,
    BatchFlag,
    GatherFlag,
    Opcode,
    packed_address,
)

from .arithmetic import ArithmeticCommands
from .planning import PlanningCommands
from .setup import LISTS, PROTECTED, RESULTS, SHORT, SHORT_LOOKUP, SHORT_MOVE, SIZES, UNREGISTERED

SOUND = (0, 1, 2, 4, 5, 6, 7)
MOVES = (Opcode.GATHER, Opcode.SCATTER, Opcode.POOL, Opcode.UPDATE, Opcode.COPY, Opcode.FILL)
READ = ("source", "lengths", "targets", "weights", "rows", "state_rows", "gradients")
GUARD = 64  # bytes between the areas of two commands
ADDRESSES = tuple(field.name for field in OPERANDS.values() if field.is_address)


class CommandSource(ArithmeticCommands, PlanningCommands):
    """Draws commands; each list and result has its own area of a buffer.

    Parameters
    ----------
    rng : numpy.random.Generator
    config : Config
    tables : dict of int to Table

    Attributes
    ----------
    lists : uint8[...]
        Contents of the list buffer for the commands.
    """

    counts = (1, 2, 5, 30, 120)  # rows of a GATHER or SCATTER

    def __init__(self, rng, config: Config, tables):
        self.rng, self.config, self.tables = rng, config, tables
        self.lists = rng.integers(0, 256, SIZES[LISTS], np.uint8)
        self._used = {LISTS: 0, RESULTS: 0}

    def room(self):
        """Whether the buffers have room for the areas of any command."""
        return all(used < SIZES[handle] // 2 for handle, used in self._used.items())

    def batch(self, opcode):
        """OBSERVE or SPLIT; or the common operands of PLAN and MARK."""
        rng = self.rng
        first, columns = ((0, 3), (4, 4), (1, 2), (5, 1), (8, 1))[rng.integers(5)]
        columns = int(rng.integers(1, columns + 1))
        samples = int(rng.choice([1, 2, 5, 17, 64, 130]))
        flags = BatchFlag(int(rng.integers(16)))
        lengths = np.ones(samples * columns, np.uint16)
        operands = {}
        if flags & BatchFlag.JAGGED:
            lengths = rng.choice(np.array([0, 1, 1, 1, 2, 3, 20], np.uint16), samples * columns)
            lengths[rng.integers(len(lengths))] += 1  # `malformed` draws empty batches
            operands["lengths"] = self._put(lengths)
        bag = np.repeat(np.arange(len(lengths)), lengths)
        column = bag // samples if flags & BatchFlag.FEATURE_MAJOR else bag % columns
        wide = bool(flags & BatchFlag.ID64)
        ids = self._rows(first + column, wide)
        operands |= {"opcode": opcode, "flags": flags, "samples": samples, "first_table": first,
                     "table_count": columns, "count": len(ids),
                     "source": self._put(ids.astype(np.uint64 if wide else np.uint32))}
        if opcode == Opcode.SPLIT:
            operands |= {"slots": self._result(4 * len(ids)), "misses": self._result(8 * len(ids)),
                         "popular": self._result(4 * samples),
                         "nonpopular": self._result(4 * samples)}
        return operands

    def rows(self, opcode):
        """INSTALL or REMOVE."""
        count = int(self.rng.choice([1, 2, 3, 9, 40, 150]))
        operands = {"opcode": opcode, "count": count, "source": self._entries(count, SOUND),
                    "slots": self._result(4 * count)}
        if opcode == Opcode.INSTALL and self.config.planner:
            operands["flags"] = self._policy()
        return operands

    def harvest(self):
        count = int(self.rng.choice([1, 3, 20, 100, 1000]))
        return {"opcode": Opcode.HARVEST, "count": count, "threshold": int(self.rng.choice(
            [0, 1, 2, 5, 1000])), "destination": self._result(16 * count)}

    def decay(self):
        everything = self.rng.random() < 0.15
        return {"opcode": Opcode.DECAY, "flags": AllFlag.ALL if everything else 0,
                "shift": int(self.rng.choice([0, 1, 1, 2, 16, 31, 32, 0xFFFF_FFFF]))}

    def remove_all(self):
        return {"opcode": Opcode.REMOVE, "flags": AllFlag.ALL}

    def gather(self, source=None, count=None):
        """GATHER of a drawn list, or of `count` entries at `source`."""
        rng, flags = self.rng, GatherFlag(int(self.rng.integers(4)))
        if source is None:
            known = self._known()
            if flags & GatherFlag.STATE:  # states of different sizes would overlap
                same = self.tables[known[rng.integers(len(known))]].state_bytes
                known = [n for n in known if self.tables[n].state_bytes == same]
            count = int(rng.choice(self.counts))
            source = self._entries(count, known)
        else:
            flags &= ~GatherFlag.STATE
        slots, operands = self._slots(flags, count, written=True)
        return operands | {
            "opcode": Opcode.GATHER, "count": count, "source": source,
            "destination": self._result(slots * operands["stride"], shift=16),
            "state_destination": self._result(slots * 32, shift=4)}

    def scatter(self):
        """SCATTER of a drawn list; the slots are any bytes of the list buffer."""
        rng = self.rng
        entries = self._drawn(int(rng.choice(self.counts)), self._known())
        if self.config.row_ports > 1:
            entries = self._apart(rng.permutation(np.unique(entries, axis=0)))
        count = len(entries)
        slots, operands = self._slots(GatherFlag(int(rng.integers(4))), count)

        def anywhere(size, alignment):
            room = max(1, (SIZES[LISTS] - size) // alignment)
            return packed_address(LISTS, alignment * int(rng.integers(room)))

        return operands | {
            "opcode": Opcode.SCATTER, "count": count,
            "source": self._put(entries),
            "rows": anywhere(slots * operands["stride"], 16),
            "state_rows": anywhere(slots * 32, 4)}

    def copy(self):
        """COPY from any bytes of the list buffer."""
        count = self._bytes()
        source = 4 * int(self.rng.integers((SIZES[LISTS] - count) // 4))
        return {"opcode": Opcode.COPY, "count": count, "source": packed_address(LISTS, source),
                "destination": self._result(count, shift=4)}

    def fill(self):
        count = self._bytes()
        return {"opcode": Opcode.FILL, "count": count, "value": int(self.rng.integers(1 << 32)),
                "destination": self._result(count, shift=4)}

    def _bytes(self):
        return 4 * int(self.rng.integers(1, self.rng.choice([4, 100, 3000])))

    def malformed(self, operands):
        """A command with one or two changed fields, mostly invalid."""
        rng, wrong = self.rng, dict(operands)
        names = [name for name in operands if name not in ("opcode", "value")]
        rng.shuffle(names)
        addresses = [name for name in names if name in ADDRESSES]
        others = [name for name in names if name not in ADDRESSES]
        # At most one address: the write order of two results at one address is undefined.
        changed = (addresses[:1], others[:1], addresses[:1] + others[:1])[rng.integers(3)]
        for name in changed or names[:1]:
            value = self._wrong(name, int(operands[name]), operands["opcode"])
            wrong[name] = value & (1 << 8 * OPERANDS[name].bytes) - 1
        if "event" not in operands and rng.random() < 0.1:
            # The lists of POOL and UPDATE are no valid targets of other moves.
            unlike = MOVES if operands["opcode"] in ARITHMETIC else ()
            wrong["opcode"] = int(rng.choice([n for n in range(256) if n not in (
                Opcode.WAIT, Opcode.SIGNAL, *unlike)]))
        return wrong

    def finish(self, operands):
        """Set the unused fields to random values, which the card must ignore."""
        unused = {name: packed_address(int(self.rng.integers(UNREGISTERED, 1 << 16)),
                                       int(self.rng.integers(1 << 48)))
                  for name in ADDRESSES if name not in operands}
        tag = int(self.rng.integers(1 << 32))
        return {name: int(value) for name, value in ({"tag": tag} | unused | operands).items()}

    def _wrong(self, name, value, opcode):
        """Another value of a field, with which the command still writes only to its areas."""
        rng = self.rng
        if name in ADDRESSES:
            return self._wrong_address(name, value, opcode)
        first_flag = 2 if opcode in MOVES else 0
        more = [] if opcode in MOVES else [value + 1]
        return {
            "flags": lambda: value ^ 1 << int(rng.integers(first_flag, 8)),
            "first_table": lambda: int(rng.choice([value + 1, 3, 31, 32, 65535])),
            "table_count": lambda: int(rng.choice([0, value + 1, 31, 32, 65535])),
            "event": lambda: int(rng.choice([self.config.events, 0xFFFF_FFFF])),
            "stride": lambda: int(rng.choice([0, value + 8, 65536, 0xFFFF_FFFF])),
            "samples": lambda: int(rng.choice([0, value + 1, self.config.batch_samples + 1])),
        }.get(name, lambda: int(rng.choice([0, *more, 0x4000_0000, 0xFFFF_FFFF])))()

    def _wrong_address(self, name, address, opcode):
        rng, handle = self.rng, address >> 48
        offset = address & (1 << 48) - 1
        short = SHORT if name in READ else SHORT_MOVE if opcode in MOVES else SHORT_LOOKUP
        choices = (
            packed_address(int(rng.integers(UNREGISTERED, 64)), offset),
            packed_address(int(rng.integers(64, 1 << 16)), offset),
            packed_address(LISTS, offset % 4096 // 64 * 64),
            packed_address(PROTECTED, offset % 4096 // 64 * 64),
            packed_address(handle, offset + int(rng.choice([4, 8, 16, 32]))),
            packed_address(handle, SIZES[handle] - int(rng.choice([0, 16]))),
            packed_address(handle, (1 << 48) - 64),
            packed_address(short, SIZES[short] - 64 * int(rng.integers(3))),
            packed_address(short, 2 * SIZES[short] - 64 * int(rng.integers(3))),
        )
        # Another list could contain equal destinations, or rows with overlapping states.
        once = {Opcode.POOL: ("targets",), Opcode.UPDATE: ("source",)}.get(opcode, ())
        if name in once or (name in ("source", "targets") and self.config.row_ports > 1
                            and opcode in (Opcode.GATHER, Opcode.SCATTER)):
            choices = choices[:2]
        return choices[rng.integers(len(choices))]

    def _known(self):
        """Numbers of the valid tables, rarely of others."""
        return [n for n in self.tables if n in SOUND or self.rng.random() < 0.1]

    def _slots(self, flags, count, written=False):
        """Number of slots for `count` rows, and their operands."""
        rng = self.rng
        longest = max(table.row_bytes for table in self.tables.values())
        stride = 16 * int(rng.integers(1, longest // 16 + 4)) if rng.random() < 0.5 else longest
        slots, operands = count, {"flags": flags, "stride": stride}
        if flags & GatherFlag.LISTED:
            # With several ports every destination must be distinct.
            once = written and self.config.row_ports > 1
            slots = max(1, int(count * rng.choice([1, 2] if once else [0.3, 1, 2])))
            distinct = once or (slots >= count and rng.random() < 0.7)
            operands["targets"] = self._put(
                rng.permutation(slots)[:count].astype(np.uint32) if distinct
                else rng.integers(0, slots, count).astype(np.uint32))
        return slots, operands

    def _rows(self, table, wide):
        """A row per table number: mostly one of a few hot rows, rarely an invalid one."""
        rng = self.rng
        rows = np.array([self.tables[n].last_row + 1 if n in self.tables else 5
                         for n in range(16)], np.uint64)[table]
        drawn = np.where(rng.random(len(rows)) < 0.7, rng.integers(0, 9, len(rows)),
                         rng.integers(0, 1 << 32, len(rows))).astype(np.uint64) % rows
        if rng.random() < 0.3:
            bad = rng.random(len(rows)) < 0.05
            beyond = rng.integers(0, 1 << 40 if wide else 3, len(rows), np.uint64)
            drawn = np.where(bad, rows + beyond, drawn)
        return drawn if wide else drawn & np.uint64(0xFFFF_FFFF)

    def _entries(self, count, tables):
        return self._put(self._drawn(count, tables))

    def _drawn(self, count, tables):
        rng = self.rng
        table = rng.choice(np.array(tables), count)
        if rng.random() < 0.2:
            table = np.where(rng.random(count) < 0.1, rng.choice([3, 31, 32, 0x8000_0000], count),
                             table)
        row = self._rows(np.minimum(table, 15), wide=False)
        return np.stack([row, table.astype(np.uint64)], 1).astype(np.uint32)

    def _apart(self, entries):
        """The entries whose row and state overlap no earlier ones: tables may overlap, and several
        ports write rows in any order."""
        used, kept = set(), []
        for row, number in entries.tolist():
            table, words = self.tables.get(number), set()
            if table is not None:
                for base, step, size in ((table.weights, table.stride, table.row_bytes),
                                         (table.state, table.state_bytes, table.state_bytes)):
                    first = base + row * step  # packed, so distinct for different handles
                    words |= set(range(first, first + size, 4))
            if not words & used:
                used |= words
                kept.append((row, number))
        return np.array(kept, np.uint32)

    def _put(self, values):
        octets = np.ascontiguousarray(values).view(np.uint8).ravel()
        address = self._area(LISTS, octets.size)
        offset = address & (1 << 48) - 1
        self.lists[offset:offset + octets.size] = octets
        return address

    def _result(self, size, shift=0):
        return self._area(RESULTS, size) + shift * int(self.rng.integers(0, 64 // shift)
                                                       if shift else 0)

    def _area(self, handle, size):
        offset = self._used[handle]
        self._used[handle] = offset + (size + GUARD + 127) // 64 * 64
        return packed_address(handle, offset)
