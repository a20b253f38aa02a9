"""The test files near what differs from a revision, by the imports between files.

    python -m tests.support.changed_tests main    those of the files that differ from a revision
"""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

TREES = ("rtl", "sim", "boards", "sw_driver", "")  # "": tests import each other as tests.…
NEAR = 4  # imports between a test and a changed file; tests that are farther away see less of it


@cache
def _module(root: Path, name):
    """The file of a module or package, or None."""
    for tree in TREES:
        base = root / tree / Path(*name.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.exists():
                return path
    return None


@cache
def _homes(root: Path, package):
    """The modules of names that a package loads on first use, from its dictionary of names."""
    path = _module(root, package)
    if path is None or path.name != "__init__.py":
        return {}
    return {key.value: f"{package}.{value.value}" for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Dict) for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)}


@cache
def _entry_points(root: Path):
    """The modules of each group of entry points."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return {name: [each.split(":")[0] for each in group.values()]
            for name, group in project.get("entry-points", {}).items()}


@cache
def _imports(root: Path, path: Path):
    """The files that a file imports, those of packages around them left out."""
    tree = next(each for each in TREES if each == "" or root / each in path.parents)
    package = path.relative_to(root / tree).parent.parts
    names, parsed = [], ast.parse(path.read_text())
    parsed.body = [node for node in parsed.body  # what runs
                   if not (isinstance(node, ast.If) and getattr(node.test, "id", "")
                           == "TYPE_CHECKING")]
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[:len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *(node.module.split(".") if node.module else ())))
            homes = _homes(root, base)
            names += [base, *(homes.get(each.name, f"{base}.{each.name}") for each in node.names)]
        elif isinstance(node, ast.Constant) and type(node.value) is str:
            names += _entry_points(root).get(node.value, ())
    found = {_module(root, name) for name in names} - {None, path}
    helpers = [root / folder / "conftest.py" for folder in path.relative_to(root).parents]
    if path.name.startswith("test_"):
        found |= {each for each in helpers if each.exists()}
    return found


@cache
def _distances(root: Path, path: Path):
    """The number of imports from a file to each that it reaches."""
    found, level = {path: 0}, [path]
    while level:
        coming = sorted({each for file in level for each in _imports(root, file)} - set(found))
        found |= dict.fromkeys(coming, found[level[0]] + 1)
        level = coming
    return found


def tests_since(root: Path, revision: str, most=NEAR) -> list[str]:
    """Test files within `most` imports of a file that differs from a git revision.

    Returns
    -------
    list of str
        ["tests"], for all of them, where a file differs that Python does not import.
    """
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=root, check=True, text=True,
                              capture_output=True).stdout.split()

    paths = {Path(each) for each in (*git("diff", "--name-only", revision),
                                     *git("ls-files", "--others", "--exclude-standard"))}
    if any(path.suffix != ".py" and path.parts[0] not in ("docs", "shared") for path in paths):
        return ["tests"]
    changed = {root / path for path in paths}
    return [str(test.relative_to(root)) for test in sorted((root / "tests").rglob("test_*.py"))
            if any(distance <= most for path, distance in _distances(root, test).items()
                   if path in changed)] or ["tests/docs"]


if __name__ == "__main__":
    print(*tests_since(Path.cwd(), sys.argv[1]))
