"""What a disk may have after a power loss, from the operations of a program on one folder."""

import ctypes
import os
from collections import defaultdict
from pathlib import Path

from hotrow.kernels import native

HOOK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint64,
                        ctypes.c_void_p, ctypes.c_uint64)
WRITE, SYNC, CREATE, UNLINK, SPARE = range(5)
SECTOR = 512


class Recorder:
    """Operations on a folder in order, those of Python and of the compiled library.

    A file that Python writes is recorded when it is forced to the disk or renamed.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
    """

    def __init__(self, monkeypatch):
        self.operations = []
        self.failing = None  # (operation, how many succeed before, errno)
        self._names = set()
        self._hook = HOOK(self._called)
        native.native_library().tables_hook(self._hook)
        real = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "unlink")}

        def fsync(handle):
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            if path.is_dir():
                self.operations.append(("folder",))
            else:
                self._written(path)
                self.operations.append(("sync", path.name))
            real["fsync"](handle)

        def renaming(name):
            def rename(old, new):
                if Path(old).name not in self._names:
                    self._written(Path(old))
                self.operations.append(("rename", Path(old).name, Path(new).name))
                self._names.discard(Path(old).name)
                self._names.add(Path(new).name)
                real[name](old, new)
            return rename

        def unlink(path, **options):
            if Path(path).exists() and Path(path).name in self._names:
                self.operations.append(("unlink", Path(path).name))
            real["unlink"](path, **options)
        for name, call in (("fsync", fsync), ("rename", renaming("rename")),
                           ("replace", renaming("replace")), ("unlink", unlink)):
            monkeypatch.setattr(os, name, call)

    def _written(self, path):
        self._names.add(path.name)
        self.operations += [("create", path.name, 0), ("write", path.name, 0, path.read_bytes())]

    def _called(self, operation, path, offset, data, size):
        name = Path(os.fsdecode(path)).name
        if self.failing and self.failing[0] == operation:
            self.failing = (operation, self.failing[1] - 1, self.failing[2])
            if self.failing[1] < 0:
                return self.failing[2]
        self._names.add(name)
        self.operations.append({
            WRITE: lambda: ("write", name, offset, ctypes.string_at(data, size)),
            SYNC: lambda: ("sync", name), CREATE: lambda: ("create", name, size),
            UNLINK: lambda: ("unlink", name),
            SPARE: lambda: ("create", name, size)}[operation]())
        return 0

    def end(self):
        native.native_library().tables_hook(None)


def settle(content, writes):
    for offset, data in writes:
        content.extend(bytes(max(0, offset + len(data) - len(content))))
        content[offset:offset + len(data)] = data


def torn(writes, random):
    """Some sectors of some writes, in any order."""
    found = [(offset + at, data[at:at + SECTOR]) for offset, data in writes
             for at in range(0, len(data), SECTOR) if random.random() < 0.5]
    random.shuffle(found)
    return found


def on_disk(operations, unsynced):
    """Content by name of each file after a power loss.

    Parameters
    ----------
    operations : list
        Of a Recorder, up to the power loss.
    unsynced : str or random.Random
        What happens to data and names that were not forced to the disk: they are "kept", "lost", or
        "torn": of data the first half of the last write is kept, of names the removals, or the
        renames. With a generator each sector and each name is kept or lost by a draw.
    """
    durable, pending, names, waiting = _followed(operations)
    kept = "rename" if len(operations) % 2 else "unlink"
    drawn = None if isinstance(unsynced, str) else unsynced
    if drawn:
        names.update(each[1:] for each in waiting if drawn.random() < 0.5)
    elif unsynced != "lost":
        names.update(each[1:] for each in waiting if unsynced == "kept" or each[0] == kept)
    for identity, writes in pending.items():
        if drawn:
            writes = torn(writes, drawn)
        elif unsynced == "torn":
            offset, data = writes[-1]
            writes = [*writes[:-1], (offset, data[:len(data) // 2 // SECTOR * SECTOR])]
        settle(durable[identity], writes if unsynced != "lost" else [])
    return {name: bytes(durable[identity]) for name, identity in names.items()
            if identity is not None}


def _followed(operations):
    """Durable content of each file, its writes that are not durable, the file of each durable name,
    and changes of names that are not durable."""
    files, durable, pending, names, waiting = {}, {}, defaultdict(list), {}, []
    for number, (kind, *rest) in enumerate(operations):
        match kind:
            case "create":
                files[rest[0]] = number
                durable[number] = bytearray(rest[1])
                waiting.append((kind, rest[0], number))
            case "write":
                pending[files[rest[0]]].append(tuple(rest[1:]))
            case "sync":
                settle(durable[files[rest[0]]], pending.pop(files[rest[0]], []))
            case "rename":
                files[rest[1]] = files.pop(rest[0])
                waiting += [(kind, rest[0], None), (kind, rest[1], files[rest[1]])]
            case "unlink":
                files.pop(rest[0])
                waiting.append((kind, rest[0], None))
            case "folder":
                names.update(each[1:] for each in waiting)
                waiting.clear()
    return durable, pending, names, waiting
