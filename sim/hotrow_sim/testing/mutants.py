"""Plants single faults in a copy of the source and runs the tests that should notice.

    make mutants ARGS="--sample 40 --seed 1 --json"

The faults are those that an engineer makes: see `mutations`. Each is drawn by package, then by
kind, so that every engine and every kind has its share. The tests are those of the unit, then those
of its package and of the engine around it; a test that runs out of time has noticed. A fault that
changes nothing is listed, with the reason, in tests/equivalent_mutants.txt and is not planted.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from .mutations import Mutation, mutations

TREES = ("rtl", "sim", "boards", "sw_driver", "tests")
SOURCES = {  # package of a mutated file: the tests around those of its package
    "rtl/hotrow_rtl/arithmetic": ("tests/rtl/mover/bags",),
    "rtl/hotrow_rtl/float": ("tests/rtl/arithmetic",),
    "rtl/hotrow_rtl/host": ("tests/rtl/test_restart.py", "tests/rtl/test_top.py"),
    "rtl/hotrow_rtl/interfaces": ("tests/rtl/host", "tests/rtl/mover"),
    "rtl/hotrow_rtl/lists": ("tests/rtl/test_restart.py", "tests/rtl/mover"),
    "rtl/hotrow_rtl/lookup": ("tests/rtl/test_restart.py", "tests/rtl/lookup"),
    "rtl/hotrow_rtl/memory": ("tests/rtl/test_restart.py", "tests/rtl/mover"),
    "rtl/hotrow_rtl/mover": ("tests/rtl/mover",),
    "rtl/hotrow_rtl/primitives": ("tests/rtl/test_restart.py", "tests/rtl/memory",
                                  "tests/rtl/lists", "tests/rtl/mover"),
    "sim/hotrow_sim/golden": ("tests/sim/golden", "tests/rtl/lookup", "tests/rtl/mover"),
    "sw_driver/hotrow": ("tests/driver",),
    "sw_driver/hotrow/torch": ("tests/torch/test_collection.py", "tests/torch/test_invariant.py",
                               "tests/torch/test_pipeline.py"),
}
LEFT_OUT = ("bench", "doctor.py", "cli.py", "extras.py", "traces")  # of sw_driver/hotrow: tools
QUICK, SLOW = "not slow and not long and not formal", "slow and not long and not formal"
FIRST_LIMIT, LIMIT = 120, 400  # seconds of the unit's tests, and of each further stage
EQUIVALENT = Path("tests/equivalent_mutants.txt")


def package_of(path: Path):
    """The longest key of `SOURCES` that holds the file, or None."""
    found = [each for each in SOURCES if Path(each) in path.parents]
    return max(found, key=len, default=None)


def unit_of(path: Path):
    """The engine that a figure is reported for: a package of the hardware, or of the software."""
    parts = path.with_suffix("").parts
    return "/".join(parts[2:4] if len(parts) > 4 else parts[1:3])


def collect(root: Path, changed=None) -> list[Mutation]:
    """Every fault that could be planted in the tree, or in its `changed` files."""
    equivalent = {line.split(" | ")[0] for line in (
        root / EQUIVALENT).read_text().splitlines()} if (root / EQUIVALENT).exists() else set()
    paths = sorted(path.relative_to(root) for source in SOURCES
                   for path in (root / source).rglob("*.py")
                   if not set(LEFT_OUT) & set(path.parts))
    return [each for path in dict.fromkeys(paths)
            if changed is None or str(path) in changed
            for each in mutations(path, (root / path).read_text(), path.parts[0] == "rtl")
            if each.key not in equivalent]


def draw(found, count, seed):
    """`count` different faults: a package, then a kind, then a place."""
    rng, groups = random.Random(seed), defaultdict(lambda: defaultdict(list))
    for each in found:
        groups[unit_of(each.path)][each.kind].append(each)
    drawn = []
    while groups and len(drawn) < count:
        unit = rng.choice(sorted(groups))
        kind = rng.choice(sorted(groups[unit]))
        places = groups[unit][kind]
        drawn.append(places.pop(rng.randrange(len(places))))
        if not places:
            del groups[unit][kind]
        if not groups[unit]:
            del groups[unit]
    return drawn


def stages(root: Path, path: Path):
    """Tests of a file, the nearest first, the slow ones last: paths, tier, limit in seconds."""
    source = package_of(path)
    torch = source.endswith("torch")  # all of its tests take too long for each fault
    tests = Path("tests") / ("torch" if torch else {"rtl": "rtl", "sim": "sim"}.get(
        path.parts[0], "driver"))
    inside = path.parent.relative_to(Path(*path.parts[:2]))
    if path.parts[0] == "sw_driver":
        inside = Path()
    own = sorted((root / tests / inside).glob(f"test_*{path.stem}*.py"))
    near = tests / inside if (root / tests / inside).exists() else tests / inside.parent
    if own:
        yield [str(each.relative_to(root)) for each in own], QUICK, FIRST_LIMIT
    if (root / near).exists() and not torch:
        yield [str(near)], QUICK, LIMIT
    for each in SOURCES[source]:
        if each != str(near):
            yield [each], QUICK, LIMIT
    yield [str(each.relative_to(root)) for each in own] or [str(near)], SLOW, 2 * LIMIT


def notices(root: Path, tests, tier, limit):
    """Whether a test fails or does not end."""
    path = os.pathsep.join(str(root / tree) for tree in TREES if tree != "tests")
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m",
         tier, *tests],
        cwd=root, env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(limit) not in (0, 5)  # 5: no test in these tiers
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return True


def plant(root: Path, mutation: Mutation, sound: set):
    """Plant a fault in the copy at `root`; return the tests that noticed it, or None.

    `sound` collects the tests that pass without a fault; others end the program.
    """
    path = root / mutation.path
    before = path.read_text()
    path.write_text(mutation.apply(before))
    try:
        for tests, tier, limit in stages(root, mutation.path):
            if notices(root, tests, tier, limit):
                path.write_text(before)
                name = " ".join(tests) + " (slow)" * (tier == SLOW)
                if name not in sound and notices(root, tests, tier, 4 * limit):
                    raise SystemExit(f"{name}: fails or does not end without any fault")
                sound.add(name)
                return name
        return None
    finally:
        path.write_text(before)


def copy_of(repository: Path, target: Path):
    """Copy what the tests need."""
    for tree in TREES:
        shutil.copytree(repository / tree, target / tree,
                        ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    for name in ("pyproject.toml", "docs", "README.md", "examples", "Makefile"):
        if (repository / name).exists():
            os.symlink(repository / name, target / name)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=20, help="faults to plant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", default="", help="only files below this folder")
    parser.add_argument("--match", default="", help="only faults whose name contains this text")
    parser.add_argument("--since", help="only files that differ from this git revision")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    repository = Path.cwd()
    changed = options.since and subprocess.run(
        ["git", "diff", "--name-only", options.since], cwd=repository, check=True, text=True,
        capture_output=True).stdout.split()
    found = [each for each in collect(repository, changed)
             if str(each.path).startswith(options.under) and options.match in each.key]
    drawn = draw(found, options.sample, options.seed)
    planted, killed = (defaultdict(Counter) for _ in range(2))
    survivors, sound = [], set()
    with tempfile.TemporaryDirectory(prefix="hotrow-mutants-") as folder:
        root = Path(folder)
        copy_of(repository, root)
        for number, mutation in enumerate(drawn, 1):
            by = plant(root, mutation, sound)
            for name, value in (("kind", mutation.kind), ("unit", unit_of(mutation.path))):
                planted[name][value] += 1
                killed[name][value] += by is not None
            if by is None:
                survivors.append(mutation.key)
            print(f"{number}/{len(drawn)} {mutation.key}: {by or 'SURVIVES'}", file=sys.stderr,
                  flush=True)
    report = {"planted": len(drawn), "killed": len(drawn) - len(survivors)} | {
        f"by_{name}": {value: [killed[name][value], count]
                       for value, count in sorted(planted[name].items())}
        for name in ("kind", "unit")} | {"survivors": survivors}
    for key in survivors:
        print("repeat with: make mutants ARGS='--sample 1 --match "
              f"{json.dumps(key)}'", file=sys.stderr)
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{report['killed']} of {report['planted']} planted faults were noticed")
        print("\n".join(survivors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
