"""Tables of rows on disk: a base, a log that is only appended, and commits. No PyTorch."""

from .commits import Commit
from .reader import Reader, open
from .store import Store
from .table import Table

__all__ = ["Commit", "Reader", "Store", "Table", "open"]
