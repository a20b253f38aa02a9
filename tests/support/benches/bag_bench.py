"""Random POOL and UPDATE commands for a `RowBench`."""

from dataclasses import dataclass, field, replace

import numpy as np
from hotrow_rtl.contract.encoding import Opcode, PoolFlag, UpdateFlag, packed_address
from hotrow_sim.golden.records import ROW_RECORD

from . import row_bench as rowbench
from .row_bench import DESTINATION, LENGTH_LIST, SOURCE_LIST, TARGET_LIST, WEIGHT_LIST, MoveCommand

TINY = replace(rowbench.TINY, arithmetic=1)
LISTED, MEAN, WEIGHTED, BATCH = PoolFlag
TYPED, ADAGRAD = UpdateFlag.TYPED, UpdateFlag.ADAGRAD  # LISTED is common to both
GRADIENTS = packed_address(0, 0x10)


@dataclass
class Pool(MoveCommand):
    """A POOL of bags with these `lengths`, with random lists."""

    seed: int
    tables: list
    lengths: list
    flags: int = 0
    stride: int = 256
    destination: int = DESTINATION
    slots: int = 40
    rows: int = 16
    count: int = None  # listed rows; default the sum of the lengths
    faults: dict = field(default_factory=dict)  # by name of the list and position

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.lengths = np.array(self.lengths, "<u2")
        if self.count is None:
            self.count = int(self.lengths.sum())
        self.entries = np.zeros(self.count, ROW_RECORD)
        self.entries["table"] = rng.choice(self.tables, self.count)
        self.entries["row"] = rng.integers(0, self.rows, self.count)
        bags = len(self.lengths)
        self.targets = rng.permutation(max(self.slots, bags))[:bags].astype("<u4")
        self.weights = rng.normal(0, 1, self.count).astype("<f4").view("<u4")

    def payload(self):
        return {"opcode": Opcode.POOL, "flags": int(self.flags), "source": SOURCE_LIST,
                "targets": TARGET_LIST, "lengths": LENGTH_LIST, "weights": WEIGHT_LIST,
                "destination": self.destination, "count": self.count, "bags": len(self.lengths),
                "stride": self.stride}

    def list(self, name):
        """A list and the faults of its elements by position."""
        elements = {"rows": self.entries, "lengths": self.lengths, "targets": self.targets,
                    "weights": self.weights}[name]
        return elements, self.faults.get(name, {})


@dataclass
class PoolBatch(Pool):
    """A POOL of the ids of a batch of `samples` samples, of consecutive `tables`."""

    samples: int = 1

    def __post_init__(self):
        super().__post_init__()
        self.entries = self.entries["row"].copy()  # ids

    def payload(self):
        return super().payload() | {
            "flags": int(self.flags | BATCH), "bags": self.samples, "first_table": self.tables[0],
            "table_count": len(self.tables)}


@dataclass
class Update(MoveCommand):
    """An UPDATE of distinct rows with these numbers of gradients, with random lists."""

    seed: int
    tables: list
    lengths: list
    flags: int = 0
    stride: int = 256
    gradients: int = GRADIENTS
    slots: int = 40
    rows: int = 16
    gradient_count: int = None  # default the sum of the lengths
    lr: float = 0.05
    eps: float = 1e-3
    faults: dict = field(default_factory=dict)  # by name of the list and position

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.lengths = np.array(self.lengths, "<u2")
        self.count = len(self.lengths)
        if self.gradient_count is None:
            self.gradient_count = int(self.lengths.sum())
        pairs = np.array([(table, row) for table in dict.fromkeys(self.tables)
                          for row in range(self.rows)])
        chosen = pairs[rng.permutation(len(pairs))[:self.count]]
        self.entries = np.zeros(self.count, ROW_RECORD)
        self.entries["table"], self.entries["row"] = chosen.T
        self.targets = rng.integers(0, self.slots, self.gradient_count).astype("<u4")

    def payload(self):
        def bits(value):
            return int(np.float32(value).view(np.uint32))
        return {"opcode": Opcode.UPDATE, "flags": int(self.flags), "source": SOURCE_LIST,
                "targets": TARGET_LIST, "lengths": LENGTH_LIST, "gradients": self.gradients,
                "count": self.count, "gradient_count": self.gradient_count,
                "stride": self.stride, "lr": bits(self.lr), "eps": bits(self.eps)}

    def list(self, name):
        """A list and the faults of its elements by position."""
        elements = {"rows": self.entries, "lengths": self.lengths, "targets": self.targets}[name]
        return elements, self.faults.get(name, {})
