"""Compiled devices on disk, one per content, each built once however many processes want it."""

import fcntl
import hashlib
import os
from contextlib import contextmanager
from pathlib import Path


def digest(*parts):
    """Name for a content: the parts are texts, anything with a `repr`, or files."""
    total = hashlib.sha256()
    for part in parts:
        octets = part.read_bytes() if isinstance(part, Path) else str(part).encode()
        total.update(f"{len(octets)}\n".encode() + octets)
    return total.hexdigest()[:24]


@contextmanager
def locked(path):
    """Hold the lock beside `path`, waiting for another process that does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def publish(path, write):
    """Let `write(temporary path)` make a file, then put it in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
