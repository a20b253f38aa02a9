"""Tables of rows on disk: a base, a log that is only appended, and commits. No PyTorch."""

from .commits import Commit
from .store import Store
from .table import Table

__all__ = ["Commit", "Store", "Table"]
