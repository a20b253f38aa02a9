"""Steps a second on a table that is larger than memory, beside others.

    python -m benchmarks.disk fill --folder FOLDER
    python -m benchmarks.disk all --folder FOLDER --limit 640M
    python -m benchmarks.disk curve --folder FOLDER --dense 1 --slope 1.15

`fill` makes the files of each peer, with every row trained once: else rows that were never trained
are drawn, and need no read. `--text FOLDER` takes hashed 3- to 5-grams of the text of a folder's
files, in order, in place of ids by Zipf's law. `all` runs the following in turn, each in a process
of its own:

- `hotrow` is mode scratchpipe with the table on disk,
- `bag` is `nn.EmbeddingBag` on a file in mapped memory,
- `rocksdb` reads and writes the rows of a batch with `rocksdict` 0.3,
- `disk` is the rate of reads of 4 KiB by 128 threads, with nothing else.

`memory` is mode resident, and `curve` is time over that in memory by the share of the table's bytes
that memory has (`--share`). `checkpoint` is a commit after 100 steps, and ends the process by a
signal; `open` opens the tables after it; `copy` copies the whole table. `readers` reads beside a
trainer. `wear` is bytes that the log writes for those of rows that leave their slots.

`--limit 640M` is for the whole process: of it, tables get what is left beside a step without them.
`--share 0.025` gives tables that share of their bytes, and limits the process to these and the same
step. Both make a group of processes where this user may, else use
`systemd-run --scope -p MemoryMax=640M`. Without one the system keeps the whole file in memory.
With `--base` the rows begin in a file as others publish it, in place of rows that all were trained.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from hotrow.tables.memory import memory_bytes, most_resident, resident_bytes

from . import disk_compare, disk_files, disk_readers, disk_runs

RUNS = {"fill": disk_files.fill, "all": disk_compare.compare, "curve": disk_compare.curve,
        "hotrow": disk_runs.hotrow_disk, "bag": disk_runs.bag, "rocksdb": disk_runs.rocksdb,
        "memory": disk_runs.memory, "disk": disk_files.disk,
        "checkpoint": disk_runs.checkpoint, "open": disk_runs.opening, "copy": disk_files.copy,
        "readers": disk_readers.readers, "wear": disk_runs.wear}
_LIMITED = ("hotrow", "bag", "rocksdb", "checkpoint", "open")
_LISTS = 512 << 20  # of rows that are learned, which go before the first step
_FIRST_STEPS = 64 << 20  # of the collection: threads of the stages, and batches on their way


def limited(size):
    """Move this process to a group that leaves it so many bytes of memory, with those that it has
    and the pages of its files."""
    groups = Path("/sys/fs/cgroup")
    first = groups / "memory" if (groups / "memory").is_dir() else groups
    name = "memory.limit_in_bytes" if first != groups else "memory.max"
    group = first / f"hotrow-bench-{os.getpid()}"
    group.mkdir()
    (group / name).write_text(str(size - resident_bytes()))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _size(text):
    """A size such as 640M: int."""
    return memory_bytes(text + "B" if text[-1:] in "KMG" else text)


def main():
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=RUNS)
    parser.add_argument("--folder", required=True, help="of the files, which stay there")
    parser.add_argument("--slope", type=float, default=1.0, help="of Zipf's law")
    parser.add_argument("--text", help="folder whose files are the text, for n-grams")
    for name, number in (("rows", 1 << 26), ("dim", 16), ("samples", 512), ("features", 26),
                         ("slots", 1 << 20), ("depth", 4), ("workers", 1)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--dense", type=float, default=0,
                        help="train a DLRM whose hidden layers are so many times those for Criteo")
    parser.add_argument("--limit", type=_size, help="memory of the process, such as 640M")
    parser.add_argument("--memory", type=_size,
                        help="of the tables, in place of --slots or of what --limit leaves")
    parser.add_argument("--share", type=float, help="of the table's bytes, which the tables get; "
                        "--limit is these and a step without tables")
    parser.add_argument("--base", action="store_true",
                        help="rows begin in a published file, which is never written")
    parser.add_argument("--learned", type=int, default=0,
                        help="batches before the first, whose last rows memory has")
    parser.add_argument("--warm-up", type=float, default=60, help="seconds")
    parser.add_argument("--seconds", type=float, default=60, help="timed")
    parser.add_argument("--rounds", type=int, default=1, help="of all")
    parser.add_argument("--shares", default="0.025,0.05,0.1,0.2,0.5", help="of curve")
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--every", type=int, default=5, help="steps between commits of readers")
    parser.add_argument("--only", help="file to fill: tables, bag or base, rocksdb, tokens")
    options = parser.parse_args()
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    process = 0
    if options.what == "hotrow" and options.learned:
        disk_runs.last_used(options)  # before there is a limit
    if options.what in _LIMITED and (options.limit or options.share):
        process = most_resident(lambda: disk_runs.rehearse(options)) + _FIRST_STEPS
        if options.share:
            options.memory = int(options.share * options.rows * options.dim * 4)
            options.limit = options.limit or options.memory + process
        options.memory = options.memory or options.limit - process
        options.limit += _LISTS * bool(options.learned)
        limited(options.limit)
    found = RUNS[options.what](options)
    about = {"what": options.what, "limit_bytes": options.limit, "process_bytes": process,
             "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    for figures in [found] if isinstance(found, dict) else found:
        print(json.dumps(about | figures), flush=True)


if __name__ == "__main__":
    main()
