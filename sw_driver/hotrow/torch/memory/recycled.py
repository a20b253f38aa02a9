"""Memory of large results, which is used again."""

from weakref import finalize

import numpy as np
import torch

_LEAST = 1 << 18  # elements; less the C library keeps for itself
_KEPT = 4  # blocks that nothing refers to, at most, after a block of another size
_STEPS = 8  # sizes between two powers of two, so that batches of similar sizes share memory


class RecycledMemory:
    """Tensors in memory that is used again once no tensor refers to it.

    The C library returns large blocks to the system. Then each page of a batch's result is a page
    fault, which takes longer than the result itself.
    """

    def __init__(self):
        self._free: dict[int, np.ndarray] = {}  # by identity

    def empty(self, rows, columns):
        """float32[rows, columns] on the host, with undefined contents."""
        size = rows * columns
        if size < _LEAST:
            return torch.empty(rows, columns, dtype=torch.float32)
        memory = self._take(size)
        part = memory[:size]  # lives as long as a tensor refers to the memory
        finalize(part, self._free.__setitem__, id(memory), memory).atexit = False
        return torch.from_numpy(part).view(rows, columns)

    def _take(self, size):
        for key, memory in list(self._free.items()):
            if size <= len(memory) <= size + size // 4 and self._free.pop(key, None) is not None:
                return memory
        for key in list(self._free)[:-_KEPT]:  # of sizes that came last
            self._free.pop(key, None)
        step = 1 << max(0, size.bit_length() - _STEPS.bit_length())
        return np.empty(-(-size // step) * step, np.float32)
