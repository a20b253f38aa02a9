"""Checkpoint files that are complete or absent."""

import os
import pickle
import re
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Any

import torch

from ...contract.errors import Error
from ...system.files import replaced

_FORMAT = 1


class Checkpoint:
    """A file with the state of a training run at a step boundary.

    `save` writes another file, sees that `load` takes it, and then renames it, so that a run that
    is killed, or whose state cannot be loaded again, leaves the previous checkpoint. A file that
    exists keeps its mode, another gets the mode that the umask allows; a symbolic link stays, and
    its target is replaced.

    Parameters
    ----------
    path : str or Path
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def save(self, **parts: Any) -> None:
        """Write `state_dict()`s, tensors and numbers by name; any but "format".

        Raises
        ------
        Error
            A part cannot be saved, or would not be loaded again, as a number of NumPy: `load` runs
            no code of a file. The previous checkpoint stays.
        """
        if "format" in parts:
            raise Error("a checkpoint has its own part 'format': give yours another name")
        with replaced(self.path) as file:
            self._write(parts, file)
            file.flush()
            self._read_again(parts, file.name)

    def _write(self, parts: dict[str, Any], file: IO[bytes]) -> None:
        try:
            torch.save({"format": _FORMAT, **parts}, file)
        except (AttributeError, TypeError, pickle.PicklingError) as error:  # of what pickle refuses
            raise self._refused(parts, error) from error
        except RuntimeError as error:  # of PyTorch, on top of one of the system
            found: BaseException | None = error
            while found is not None and not isinstance(found, OSError):
                found = found.__cause__ or found.__context__
            if found is None:
                raise
            raise found from error

    def _read_again(self, parts: dict[str, Any], name: str) -> None:
        """Raise Error if `load` would not take a file with these parts."""
        try:
            _loaded(name)
        except OSError:
            raise
        except Exception as error:
            raise self._refused(parts, error) from error

    def _refused(self, parts: dict[str, Any], error: Exception) -> Error:
        """The error of parts of which one cannot be saved and loaded: it names that one."""
        directory = Path(os.path.realpath(self.path)).parent
        for name, part in parts.items():
            found = _failure(part, directory)
            if found:
                return Error(f"{self.path} was not saved, and is as before: its part {name!r} "
                             f"could not be loaded again ({found}). Give state_dict()s, tensors, "
                             f"and numbers, strings, lists and dicts of Python: float() of a "
                             f"number of NumPy, torch.from_numpy() of an array, str() of a path")
        return Error(f"{self.path} was not saved, and is as before: it could not be loaded again "
                     f"({_summary(error)})")

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
            parts = _loaded(self.path)
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


def _loaded(path: str | os.PathLike[str]) -> Any:
    """What is in a file that `torch.save` wrote, by a reader that runs no code of it."""
    # Mapped: a table may be larger than memory.
    return torch.load(path, weights_only=True, mmap=True)


def _failure(part: Any, directory: Path) -> str:
    """What fails when a part is saved and loaded alone, in one line; empty if nothing does."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".part.") as file:
        try:
            torch.save(part, file)
            file.flush()
            _loaded(file.name)
        except OSError:
            raise
        except Exception as error:
            return _summary(error)
    return ""


def _summary(error: Exception) -> str:
    """What an error of pickle or of PyTorch's reader says, without its advice to trust the file."""
    found = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
    if found:
        return f"it needs {found[1]}"
    return str(error).partition("\n")[0] or type(error).__name__

