"""Files that are replaced as a whole: the older one stays until the new one is on the disk."""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO

from ..contract.errors import FileError

_SUFFIX = ".new"


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file, open for writing, that takes the place of an older one at the end of the block.

    It lies in the same folder under another name, is forced to the disk, and then renamed, so that
    a full disk, an error in the block, a killed process and a power loss leave the older file or
    the whole new one. A file that exists keeps its mode, another gets the mode that the umask
    allows; of a symbolic link the target is replaced. What killed processes left goes. A device or
    a pipe is written to as it is.

    Parameters
    ----------
    path : path

    Raises
    ------
    FileError
        The system refused to write: the older file is as it was.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with open(target, "wb") as device:
                yield device
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        new, file = _new(target)
        with file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
                os.fchmod(file.fileno(), mode)
                os.replace(new, target)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
        sync_folder(target.parent)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} could not be written ({error.strerror or error}), and an older "
                        f"file is as it was: make room, or name a file elsewhere") from error


def sync_folder(folder: Path) -> None:
    """Force the names of a folder's files to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of a file system that cannot
            raise
    finally:
        os.close(handle)


def _new(target: Path) -> tuple[Path, IO[bytes]]:
    """A new file beside another, locked, so that no other process takes it for abandoned."""
    while True:
        handle, name = tempfile.mkstemp(_SUFFIX, f".{target.name}.", target.parent)
        os.close(handle)
        file = open(name, "wb")  # noqa: SIM115  # which knows its name
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(name)):
                return Path(name), file
        file.close()


def _remove_abandoned(target: Path) -> None:
    """Remove the new files of processes that were killed."""
    for path in target.parent.glob(f".{escape(target.name)}.*{_SUFFIX}"):
        with suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _umask() -> int:
    """The umask of the process, from the system where that does not change it."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
