"""Tables of rows on disk: a base, a log that is only appended, and commits. No PyTorch."""

from .bases import FileBase, TensorBase
from .commits import Commit
from .memory import MemoryPlan, plan_memory
from .rank_reader import RankReader, open
from .reader import Reader
from .store import Store
from .table import Table

__all__ = ["Commit", "FileBase", "MemoryPlan", "RankReader", "Reader", "Store", "Table",
           "TensorBase", "open", "plan_memory"]
