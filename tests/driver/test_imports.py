"""The order of the packages: imports point one way only (read from the source, nothing is run)."""

import ast
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"hotrow_rtl": "rtl", "hotrow_sim": "sim", "hotrow_boards": "boards",
            "hotrow_explore": "sim", "hotrow": "sw_driver", "hotrow_program": "sw_driver"}
OURS = set(PACKAGES)
FORBIDDEN = {
    "hotrow": OURS - {"hotrow"},
    "hotrow_rtl": OURS - {"hotrow_rtl"},
    "hotrow_sim": OURS - {"hotrow_sim", "hotrow_rtl"},
    "hotrow_boards": OURS - {"hotrow_boards", "hotrow_rtl"},
    "hotrow_explore": {"hotrow_boards"},
}
# Levels of packages and modules: one imports from lower levels and from itself.
LEVELS = {
    "hotrow_rtl": (
        ("hotrow_rtl.config",),
        ("hotrow_rtl.primitives",),
        ("hotrow_rtl.contract", "hotrow_rtl.lookup.hashing"),
        ("hotrow_rtl.float", "hotrow_rtl.interfaces"),
        ("hotrow_rtl.arithmetic", "hotrow_rtl.lists", "hotrow_rtl.memory",
         "hotrow_rtl.lookup.reader", "hotrow_rtl.lookup.combiner", "hotrow_rtl.lookup.counters",
         "hotrow_rtl.lookup.splitter"),
        ("hotrow_rtl.host", "hotrow_rtl.lookup.directory", "hotrow_rtl.mover.port",
         "hotrow_rtl.pcie"),
        ("hotrow_rtl.lookup.banks", "hotrow_rtl.mover.addressing"),
        ("hotrow_rtl.lookup.planner", "hotrow_rtl.mover.bags"),
        ("hotrow_rtl.lookup.dispatch", "hotrow_rtl.mover"),
        ("hotrow_rtl.lookup",),
        ("hotrow_rtl.top",),
        ("hotrow_rtl.units",),
        ("hotrow_rtl.emit",),
        ("hotrow_rtl.export",),
        ("hotrow_rtl.cli",),
    ),
    "hotrow_sim": (
        ("hotrow_sim.address_space", "hotrow_sim.native", "hotrow_sim.toolchain"),
        ("hotrow_sim.golden", "hotrow_sim.memory"),
        ("hotrow_sim.cycles",),
        ("hotrow_sim.model", "hotrow_sim.verilated"),
        ("hotrow_sim.bench", "hotrow_sim.link", "hotrow_sim.pcie"),
    ),
    "hotrow": (
        ("hotrow.contract",),
        ("hotrow.system",),
        ("hotrow.kernels", "hotrow.memory"),
        ("hotrow.operands",),
        ("hotrow.ids", "hotrow.queues", "hotrow.tables", "hotrow.transports"),
        ("hotrow.calls",),
        ("hotrow.device",),
        ("hotrow.timeline", "hotrow.command"),
        ("hotrow.traces",),
        ("hotrow.torch",),
        ("hotrow.bench",),
    ),
}
# These may import what their extra installs.
NATIVE = "hotrow.kernels.compiler", "hotrow.kernels.native"  # which need the standard library only
EXTRAS = ("hotrow.bench", "hotrow.command.terminal", "hotrow.ids", "hotrow.kernels",
          "hotrow.tables", "hotrow.torch", "hotrow.traces")
WITHOUT_AMARANTH = ("hotrow_rtl.config", "hotrow_rtl.contract", "hotrow_rtl.units.catalog",
                    "hotrow_rtl.lookup.hashing.xorshift", "hotrow_sim.golden", "hotrow_sim.model")


def modules():
    """(name, path, whether it is a package) of every module that exists."""
    for package, folder in PACKAGES.items():
        for path in sorted((ROOT / folder / package).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            yield ".".join(parts[:-1] if is_package else parts), path, is_package


def imported(name, tree, is_package, late=False):
    """Absolute names of everything a module imports, (name, whether only when called)."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = name.split(".")[:len(name.split(".")) - node.level + is_package]
                base = ".".join([*here, base] if base else here)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.expr):  # which has no statement
            continue
        else:
            yield from imported(name, node, is_package, late or isinstance(node, ast.FunctionDef))
            continue
        yield from ((each, late) for each in names)


@cache
def found():
    """(Path, imports) of every module by name: read by the first test that asks."""
    return {name: (path, list(imported(name, ast.parse(path.read_text()), is_package)))
            for name, path, is_package in modules()}


def within(name, package):
    return name == package or name.startswith(package + ".")


def test_the_packages_are_found():
    for package in ("hotrow_rtl", "hotrow_sim", "hotrow"):
        assert sum(within(name, package) for name in found()) > 5, package


@pytest.mark.parametrize("package", FORBIDDEN)
def test_arrows_point_one_way(package):
    wrong = [f"{name} imports {target}" for name, (_, imports) in found().items()
             if within(name, package) for target, _ in imports
             if target.partition(".")[0] in FORBIDDEN[package]]
    assert not wrong


def placed(name, package):
    """(level, unit) of a module: the innermost unit of `LEVELS` that contains it."""
    units = [(len(unit), level, unit) for level, row in enumerate(LEVELS[package]) for unit in row
             if within(name, unit)]
    return max(units)[1:] if units else (None, None)


@pytest.mark.parametrize("package", LEVELS)
def test_imports_go_to_lower_levels(package):
    wrong = []
    for name, (_, imports) in found().items():
        if not within(name, package) or name == package:
            continue
        level, unit = placed(name, package)
        if level is None:
            wrong.append(f"{name} has no level")
            continue
        for target, _ in imports:
            below, other = placed(target, package) if within(target, package) else (None, None)
            if below is not None and other != unit and below >= level and target in found():
                wrong.append(f"{name} (level {level}) imports {target} (level {below})")
    assert not wrong


def test_files_import_each_other_in_no_circle():
    """Also those of one package, inside functions, and for type checkers only."""
    files = {name: {target for target, _ in imports} for name, (path, imports) in found().items()
             if path.stem != "__init__"}
    TopologicalSorter({name: targets & files.keys() for name, targets in files.items()}).prepare()


@pytest.mark.parametrize("outside", ["benchmarks", "tests"])
def test_products_do_not_import(outside):
    wrong = [f"{name} imports {target}" for name, (_, imports) in found().items()
             for target, _ in imports if within(target, outside)]
    assert not wrong


def test_the_driver_needs_numpy_only():
    allowed = {*sys.stdlib_module_names, "numpy", "hotrow"}
    inside = {"torch", "argcomplete"}  # only inside functions
    wrong = [f"{name} imports {target}" for name, (_, imports) in found().items()
             if within(name, "hotrow") and not any(within(name, extra) for extra in EXTRAS)
             for target, late in imports
             if (target.partition(".")[0] not in allowed | (inside if late else set()))
             or (any(within(target, extra) for extra in EXTRAS)
             and not any(within(target, native) or within(native, target) for native in NATIVE))]
    assert not wrong


@pytest.mark.parametrize("root", WITHOUT_AMARANTH)
def test_these_load_without_amaranth(root):
    """Followed through every module that is loaded on the way."""
    seen, pending = set(), [name for name in found() if within(name, root)]
    assert pending
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        pending += [parent for parent in (name.rpartition(".")[0],) if parent in found()]
        for target, late in found()[name][1]:
            assert late or target.partition(".")[0] != "amaranth", f"{name} imports {target}"
            if target in found() and not late:
                pending.append(target)


@pytest.mark.parametrize("source, expected", [
    ("import hotrow_sim.golden", "hotrow_sim.golden"), ("from .. import golden", "p.golden"),
    ("from .unit import Unit", "p.q.unit.Unit"), ("def f():\n  import torch", "torch"),
])
def test_the_walk_sees_every_form_of_import(source, expected):
    assert expected in [target for target, _ in imported("p.q.module", ast.parse(source), False)]
