"""Digests of the data that a run has trained, by which a resumed run knows them again."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...traces.trace import Samples, StoredTrace, Trace


class TrainedData:
    """The first samples of a trace.

    Parameters
    ----------
    trace : Trace
        A generated one follows from its specification, and has no digests.
    batch_size : int
    """

    def __init__(self, trace: Trace, batch_size: int):
        self._trace, self._size, self._batches = trace, batch_size, 0
        self._samples, self._digests = 0, dict[str, Any]()

    def after(self, batches: int) -> dict[str, Any]:
        """Number of samples in the first `batches`, at least as many as in the call before, and
        their `digests`."""
        for number in range(self._batches, batches):
            self._add(self._trace.batch(number, self._size))
        self._batches = max(self._batches, batches)
        return {"samples": self._samples, "digests": self._hexadecimal()}

    @staticmethod
    def digests(trace: Trace, samples: int) -> dict[str, str]:
        """SHA-256 of each id column, of dense features and labels in the first samples."""
        data = TrainedData(trace, max(1, samples))
        data.after(1)
        return data._hexadecimal()

    def _hexadecimal(self) -> dict[str, str]:
        return {name: digest.hexdigest() for name, digest in self._digests.items()}

    def _add(self, samples: Samples) -> None:
        self._samples += len(samples)
        if isinstance(self._trace, StoredTrace):
            for name, part in self._parts(samples):
                self._digests.setdefault(name, sha256()).update(np.ascontiguousarray(part).data)

    def _parts(self, samples: Samples) -> Iterator[tuple[str, NDArray[Any]]]:
        ids, column = samples.ids.ravel(), samples.lookup_columns
        for number, name in enumerate(self._trace.columns):
            yield f"column {name!r}", ids[column == number]
        yield "dense features", samples.dense.view(np.uint8)
        if samples.label is not None:
            yield "labels", samples.label
        if samples.lengths is not None:
            yield "lengths of bags", samples.lengths
