"""Checkpoint files that are complete or absent."""

import os
import tempfile
from pathlib import Path

import torch

from ...errors import Error

_FORMAT = 1


class Checkpoint:
    """A file with the state of a training run at a step boundary.

    `save` writes another file and then renames it, so that a run that is killed leaves the
    checkpoint before.

    Parameters
    ----------
    path : str or Path
    """

    def __init__(self, path):
        self.path = Path(path)

    def save(self, **parts):
        """Write `state_dict()`s, tensors and numbers by name."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save({"format": _FORMAT, **parts}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def load(self):
        """The arguments of `save`: dict.

        Raises
        ------
        Error
            The file does not exist, or is no checkpoint.
        """
        try:
            parts = torch.load(self.path, weights_only=True)
        except FileNotFoundError:
            raise Error(f"there is no checkpoint {self.path}") from None
        except Exception as error:
            raise Error(f"{self.path} is no checkpoint: {error}") from error
        if not isinstance(parts, dict) or parts.pop("format", None) != _FORMAT:
            raise Error(f"{self.path} is no checkpoint of this format ({_FORMAT})")
        return parts
