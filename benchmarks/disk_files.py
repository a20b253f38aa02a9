"""Files of tables that are larger than memory, of each peer, and what the disk gives itself."""

import ctypes
import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import torch
from hotrow.kernels import compiler
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig

from .disk_ids import coprime, features, write_tokens

LR = 0.01
HEADER = 4096  # bytes of the published file before its rows
_CHUNK = 1 << 20


def fill(options):
    """The tables of all peers whose files do not exist, every row trained once."""
    folder, found = Path(options.folder), {}
    tables = [] if options.base else [("tables", _fill_tables)]
    for name, make in (*tables, (bag_file(options).name, _fill_bag), ("rocksdb", _fill_rocksdb),
                       ("tokens", _fill_tokens)):
        if options.only in (None, name) and not (folder / name).exists():
            begin = time.perf_counter()
            found[name] = make(options, folder / name) or {}
            found[name]["seconds"] = time.perf_counter() - begin
    return found


def bag_file(options):
    """All rows in their order, which the mapped bag trains: the published file with `base`."""
    return Path(options.folder) / ("base" if options.base else "bag")


def config(options, path):
    """The table."""
    base = {"base": [bag_file(options)], "tensor": "rows"} if options.base and path else {}
    return TableConfig("table", options.rows, options.dim, path=path, memory=options.memory,
                       feature_names=[f"f{number}" for number in range(features(options))], **base)


def _fill_tables(options, folder):
    """Append every row in an order that is not theirs, and commit."""
    options.memory = None
    with HotEmbeddingBagCollection([config(options, folder)], "cpu", "scratchpipe", "sgd", LR,
                                   options=Options(seed=0)) as collection:
        rows, step = collection.store.groups[0].tables.disk, coprime(options.rows, 0.382)
        for first in range(0, options.rows, _CHUNK):
            flat = torch.arange(first, min(first + _CHUNK, options.rows)) * step % options.rows
            trained = rows.kind.allocate(len(flat))
            trained.array.fill_(0.01)
            rows.append(flat, trained)
        collection.commit()
        return dict(rows.store.figures())


def _fill_bag(options, path):
    chunk = np.random.default_rng(0).random(_CHUNK * options.dim, np.float32)
    header = json.dumps({"rows": {"dtype": "F32", "shape": [options.rows, options.dim],
                                  "data_offsets": [0, 4 * options.rows * options.dim]}}).encode()
    with open(path, "wb") as file:
        if options.base:
            file.write((HEADER - 8).to_bytes(8, "little") + header.ljust(HEADER - 8))
        for first in range(0, options.rows, _CHUNK):
            file.write(chunk[:min(_CHUNK, options.rows - first) * options.dim].data)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rocksdb_options():
    """Blocks of a page, 64 MB of them in memory beside those of the system, and nothing packed."""
    from rocksdict import DBCompressionType, Options

    settings = Options(raw_mode=True)
    settings.optimize_for_point_lookup(64)
    settings.set_compression_type(DBCompressionType.none())
    return settings


def _fill_rocksdb(options, folder):
    """Sorted files, which are taken whole: there is nothing left to compact."""
    try:
        from rocksdict import Rdict, SstFileWriter
    except ImportError:
        return {"skipped": "rocksdict is not installed"}
    row, part = np.full(options.dim, 0.01, np.float32).tobytes(), 1 << 22
    store = Rdict(str(folder), rocksdb_options())
    for first in range(0, options.rows, part):
        file = str(folder) + ".sst"
        writer = SstFileWriter(rocksdb_options())
        writer.open(file)
        last = min(first + part, options.rows)
        keys = np.arange(first, last, dtype=">u8").tobytes()
        for at in range(0, len(keys), 8):
            writer[keys[at:at + 8]] = row
        writer.finish()
        store.ingest_external_file([file])
        os.unlink(file)
    store.close()
    return None


def _fill_tokens(options, path):
    return write_tokens(options.text, path) if options.text else None


def disk(options, threads=128, seconds=5.0):
    """Reads of 4 KiB a second at random places of the largest file, past the system's cache."""
    path = max((each for each in Path(options.folder).rglob("*") if each.is_file()),
               key=lambda each: each.stat().st_size)
    source = Path(__file__).with_name("disk_reads.cpp")
    read = compiler.load(source.stem, [source]).random_reads
    read.restype = ctypes.c_double
    rate = read(os.fsencode(path), ctypes.c_int(threads), ctypes.c_double(seconds))
    if rate < 0:
        raise OSError(f"{path} cannot be read past the system's cache")
    return {"reads_per_s": rate}


def copy(options):
    """A copy of the whole table, forced to the disk."""
    path, copied = bag_file(options), Path(options.folder) / "copy"
    begin = time.perf_counter()
    shutil.copyfile(path, copied)
    with open(copied, "rb") as file:
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    size = copied.stat().st_size
    copied.unlink()
    return {"seconds": seconds, "bytes": size}
