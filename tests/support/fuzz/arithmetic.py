"""Draws POOL and UPDATE for a `CommandSource`."""

import numpy as np
from hotrow_rtl.contract.encoding import Opcode, PoolFlag, UpdateFlag, packed_address

from .setup import LISTS, SIZES

ENDLESS = 8  # the table whose rows overlap those of others
LONG = 300


class ArithmeticCommands:
    """The part of `CommandSource` that draws POOL and UPDATE."""

    lengths = (0, 1, 1, 2, 3, 5, 17, 40)  # rows of a bag
    gradients = (1, 1, 2, 3, 20)  # of a row
    long_bags = 0  # POOLs and UPDATEs with a bag of `LONG` rows or gradients

    def pool(self):
        """POOL of bags of any length, mostly of rows of one shape; rarely with wrong lengths."""
        rng = self.rng
        if self.config.pools_batches and rng.random() < 0.4:
            return self._pool_batch()
        flags = PoolFlag(int(rng.integers(8)))
        lengths = self._lengths(self.lengths, int(rng.choice([1, 2, 5, 12])))
        lengths[rng.integers(len(lengths))] += not lengths.any()
        count, bags = int(lengths.sum()), len(lengths)
        table, tables = self._alike()
        operands = {"opcode": Opcode.POOL, "flags": flags, "count": count, "bags": bags,
                    "source": self._entries(count, tables),
                    "lengths": self._put(self._perhaps_wrong(lengths)),
                    "stride": self._stride(table.row_bytes)}
        return self._weights_and_slots(operands, count, bags)

    def _weights_and_slots(self, operands, count, bags):
        rng, flags = self.rng, operands["flags"]
        if flags & PoolFlag.WEIGHTED:
            operands["weights"] = self._put(rng.normal(size=count).astype(np.float32))
        slots = bags
        if flags & PoolFlag.LISTED:
            slots = bags * int(rng.choice([1, 2]))
            operands["targets"] = self._put(rng.permutation(slots)[:bags].astype(np.uint32))
        return operands | {"destination": self._result(slots * operands["stride"], shift=16)}

    def _pool_batch(self):
        """POOL of the ids of a batch, mostly of one or two tables."""
        rng = self.rng
        flags = PoolFlag(int(rng.integers(8))) | PoolFlag.BATCH
        first, columns = ((0, 1), (0, 2), (1, 2), (4, 3), (5, 1), (8, 1))[rng.integers(6)]
        samples = int(rng.choice([1, 2, 5, 12]))
        bags = samples * columns
        lengths = self._lengths(self.lengths[:-1], bags)
        lengths[rng.integers(bags)] += not lengths.any()
        ids = self._rows(first + np.repeat(np.arange(bags) // samples, lengths), wide=False)
        operands = {"opcode": Opcode.POOL, "flags": flags, "count": len(ids), "bags": samples,
                    "first_table": first, "table_count": columns,
                    "source": self._put(ids.astype(np.uint32)),
                    "lengths": self._put(self._perhaps_wrong(lengths)),
                    "stride": self._stride(self.tables[first].row_bytes)}
        return self._weights_and_slots(operands, len(ids), bags)

    def update(self):
        """UPDATE of distinct rows; the gradients are any bytes of the list buffer."""
        rng = self.rng
        flags = UpdateFlag(int(rng.integers(8)))
        table, tables = self._alike(
            state_bytes=4 if flags & UpdateFlag.ADAGRAD else None, but=(ENDLESS,))
        entries = self._drawn(int(rng.choice([1, 2, 5, 20])), tables)
        entries = rng.permutation(np.unique(entries, axis=0))
        counts = self._lengths(self.gradients, len(entries))
        total = int(counts.sum())
        wide = table.type and not flags & UpdateFlag.TYPED
        stride = self._stride(table.row_bytes * (2 if wide else 1))
        operands = {"opcode": Opcode.UPDATE, "flags": flags, "count": len(entries),
                    "gradient_count": total, "source": self._put(entries),
                    "lengths": self._put(self._perhaps_wrong(counts)), "stride": stride,
                    "lr": self._number(), "eps": self._number()}
        gradients = total
        if flags & UpdateFlag.LISTED:
            gradients = int(total * rng.choice([1, 2]))
            operands["targets"] = self._put(
                rng.integers(0, gradients, total).astype(np.uint32))
        room = max(1, (SIZES[LISTS] - gradients * stride) // 16)
        return operands | {"gradients": packed_address(LISTS, 16 * int(rng.integers(room)))}

    def _alike(self, state_bytes=None, but=()):
        """A table, and the numbers of the tables with rows of its shape, rarely of any tables."""
        rng = self.rng
        known = [n for n in self._known() if n not in but]
        chosen = self.tables[known[rng.integers(len(known))]]
        alike = [n for n in known if (self.tables[n].row_bytes, self.tables[n].type) == (
            chosen.row_bytes, chosen.type)]
        with_state = [n for n in alike if self.tables[n].state_bytes == state_bytes]
        if with_state and rng.random() < 0.9:
            alike = with_state
        return chosen, known if rng.random() < 0.1 else alike

    def _stride(self, least):
        """A stride, mostly of at least `least` bytes."""
        return max(16, least + 16 * int(self.rng.choice([-1, 0, 0, 0, 0, 0, 1, 4])))

    def _lengths(self, choices, bags):
        lengths = self.rng.choice(choices, bags)
        if self.long_bags and self.rng.random() < self.long_bags:
            lengths[self.rng.integers(bags)] = LONG
        return lengths

    def _perhaps_wrong(self, lengths):
        """The lengths as uint16; rarely one of them is off by one."""
        lengths, rng = lengths.copy(), self.rng
        if rng.random() < 0.15:
            at = rng.integers(len(lengths))
            lengths[at] = max(0, lengths[at] + rng.choice([-1, 1]))
        return lengths.astype(np.uint16)

    def _number(self):
        """Bits of an fp32: a round number, or random bits."""
        rng = self.rng
        if rng.random() < 0.2:
            return int(rng.integers(1 << 32))
        return int(np.float32(rng.choice([1e-8, 0.01, 0.1, 1])).view(np.uint32))
