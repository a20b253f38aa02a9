"""The wheel and the sdist: what they contain, and that the wheel runs alone."""

import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hotrow.kernels.compiler import find_compiler

ROOT = Path(__file__).parents[2]
# It fetches the build tools, and PyTorch unless pip's cache has it.
pytestmark = [pytest.mark.long, pytest.mark.nightly]


def run(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(wheel, sdist, environment without this checkout): the wheel is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", environment)
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(environment / "bin" / "pip", "install", "--quiet", "build", env=bare)
    run(environment / "bin" / "python", "-m", "build", "--outdir", folder, ROOT, env=bare)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist, environment


def test_contents(built):
    wheel, sdist, _ = built
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = Parser().parsestr(archive.read(next(
            name for name in names if name.endswith("METADATA"))).decode())
    assert {name.split("/")[0] for name in names} == {
        "hotrow", "hotrow_rtl", "hotrow_sim", "hotrow_explore", "hotrow_boards",
        "hotrow_program",
        f"hotrow-{metadata['Version']}.dist-info"}
    for needed in ("hotrow/traces/sample.tsv", "hotrow/py.typed", "hotrow_rtl/py.typed",
                   "hotrow_sim/py.typed", "hotrow_explore/py.typed", "hotrow_boards/py.typed",
                   "hotrow/contract/geometry.py",
                   "hotrow_explore/data/systems.toml", "hotrow_explore/benchmarks/ecp5.json",
                   "hotrow_boards/boards/ulx3s.toml",
                   "hotrow_sim/verilated/harness.cpp", "hotrow/kernels/group.cpp"):
        assert needed in names, needed
    libraries = {Path(name).stem for name in names if name.startswith("hotrow/kernels/lib/")}
    if find_compiler() is None:
        assert not libraries and wheel.name.endswith("-py3-none-any.whl")
    else:
        machine = platform.machine()
        assert libraries >= ({"hotrow-x86-64-v2", "hotrow-x86-64-v3"} if machine == "x86_64" else
                             {f"hotrow-{machine}"})
        assert re.search(rf"-py3-none-\w+_{machine}.whl$", wheel.name)
    description = metadata.get_payload()
    assert "pip install" in description and "![" not in description
    assert not re.search(r"\]\((?!https:)", description), "a link that an index cannot follow"
    with tarfile.open(sdist) as archive:
        files = [name.partition("/")[2] for name in archive.getnames()]
    assert {"README.md", "LICENSE", "Makefile", "docs/images/overview.svg",
            "examples/own_model.py", "tests/docs/test_wheel.py"} <= set(files)
    assert not any(name.startswith((".venv", "build/")) for name in files)


def test_the_wheel_runs_alone(built, tmp_path):
    """In an empty folder, without a compiler and this checkout."""
    wheel, _, environment = built
    bare = {"PATH": str(environment / "bin"), "HOME": os.environ["HOME"], "COLUMNS": "80",
            "HOTROW_CACHE": str(tmp_path / "cache")}
    run(environment / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt",
        f"{wheel}[torch,rtl]", env=bare)
    folder = tmp_path / "empty"
    folder.mkdir()

    def hotrow(*arguments):
        return run(environment / "bin" / "hotrow", *arguments, cwd=folder, env=bare)

    doctor = subprocess.run([environment / "bin" / "hotrow", "doctor", "--json"], text=True,
                            capture_output=True, cwd=folder, env=bare)
    (library,) = (found["found"] for found in json.loads(doctor.stdout)["found"]
                  if found["name"] == "compiled library")
    assert "wheel" in library if find_compiler() else not library
    assert "generate" in hotrow("--help")
    assert "What a card would change" in hotrow("demo", "--transport", "model")
    assert "check held" in hotrow("train", "--trace", "sample", "--ids", "item,user", "--label",
                                  "clicked", "--transport", "model", "--batch-size", "20")
    hotrow("generate", "--preset", "tiny", "-o", "out")
    assert (folder / "out").is_dir()
