"""Checkpoint files that are complete or absent."""

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch

from ...contract.errors import Error

_FORMAT = 1


class Checkpoint:
    """A file with the state of a training run at a step boundary.

    `save` writes another file and then renames it, so that a run that is killed leaves the
    previous checkpoint. A file that exists keeps its mode, another gets the mode that the umask
    allows; a symbolic link stays, and its target is replaced.

    Parameters
    ----------
    path : str or Path
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def save(self, **parts: Any) -> None:
        """Write `state_dict()`s, tensors and numbers by name."""
        target = Path(os.path.realpath(self.path))
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save({"format": _FORMAT, **parts}, file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def load(self) -> dict[str, Any]:
        """The arguments of `save`: dict.

        Raises
        ------
        Error
            The file does not exist, is no checkpoint, or is damaged.
        """
        try:
            # PyTorch's reader leaves out the checksums.
            with zipfile.ZipFile(self.path) as records:
                damaged = records.testzip()
            if damaged:
                raise Error(f"{self.path} is damaged: the checksum of its record {damaged} is "
                            f"wrong. Resume from another checkpoint")
            # Mapped: a table may be larger than memory.
            parts = torch.load(self.path, weights_only=True, mmap=True)
        except FileNotFoundError:
            raise Error(f"there is no checkpoint {self.path}: name a file that was saved") from None
        except Error:
            raise
        except Exception as error:
            raise Error(f"{self.path} is no checkpoint: {error}; name a file that was saved"
                        ) from error
        if not isinstance(parts, dict) or parts.pop("format", None) != _FORMAT:
            raise Error(f"{self.path} is no checkpoint of this format ({_FORMAT})")
        return parts


def _umask() -> int:
    """The umask of the process, from the system where that does not change it."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
