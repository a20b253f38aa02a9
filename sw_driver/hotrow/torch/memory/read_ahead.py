"""Rows of tables in files, read ahead of the batches that need them."""

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from ...contract.errors import Error
from ...kernels.pages import read_rows
from .tables import EmbeddingTables

_THREADS = 2  # so that the disk has requests while one batch waits for its last page


class ReadAhead:
    """Reads pages of tables in files on threads; of tables in memory it reads nothing.

    Parameters
    ----------
    tables : sequence of EmbeddingTables
        By group.

    Attributes
    ----------
    exposed : float
        Seconds of the reads in which training waited for rows.
    """

    def __init__(self, tables: Iterable[EmbeddingTables]):
        self._tables = tuple(tables)
        self.any = any(each.spans is not None for each in self._tables)
        self._pool = ThreadPoolExecutor(_THREADS, "hotrow-read")  # starts a thread when it must
        self._lock, self._running, self._since, self._read = threading.Lock(), 0, 0.0, 0.0
        self.exposed = 0.0
        self.clock = time.perf_counter

    @property
    def seconds(self) -> float:
        """Seconds in which at least one batch was read ahead."""
        with self._lock:
            return self._read + (self.clock() - self._since if self._running else 0.0)

    def begin(self, group: int, *flat: torch.Tensor) -> Future[None] | None:
        """Begin to read flat rows, integers [n] each: a future of their presence, or None."""
        tables = self._tables[group]
        if tables.spans is None:
            return None
        tables.check_owner()
        return self._pool.submit(self._run, tables, flat)

    def wait(self, future: Future[None] | None) -> None:
        """Return when the rows of `begin` are in memory.

        Raises
        ------
        Error
            The disk does not give a page.
        """
        if future is not None:
            future.result()

    def now(self, group: int, flat: torch.Tensor) -> None:
        """Read flat rows before the call returns."""
        if self._tables[group].spans is not None:
            _read(self._tables[group], flat)

    @contextmanager
    def exposing(self) -> Iterator[None]:
        """Count the time of the block as exposed, as far as reads run in it."""
        before = self.seconds if self.any else 0.0
        try:
            yield
        finally:
            if self.any:
                self.exposed += self.seconds - before

    def _run(self, tables: EmbeddingTables, flat: tuple[torch.Tensor, ...]) -> None:
        with self._lock:
            if not self._running:
                self._since = self.clock()
            self._running += 1
        try:
            _read(tables, flat[0] if len(flat) == 1 else torch.cat(flat))
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._read += self.clock() - self._since


def _read(tables: EmbeddingTables, flat: torch.Tensor) -> None:
    """Read flat rows, and their state, of tables of which some are in files."""
    if not len(flat) or tables.spans is None:
        return
    tables.expect(scattered=True)
    for array in (tables.rows.array, tables.rows.side):
        if array is not None:
            try:
                read_rows(array, flat, tables.spans)
            except Error as error:
                files = ", ".join(file.path for file in tables.files if file is not None)
                raise Error(f"{error} ({files})") from error
