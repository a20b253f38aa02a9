"""The compiled library under sanitizers: random calls, and the suites that use it.

A sanitizer is chosen as the compiler's options in CXX; its runtime is loaded before Python, and not
before the compiler. Memory that Python and PyTorch do not free is not reported, nor what threads
do in their code, which is compiled without the sanitizer.
"""

import os
import subprocess
import sys

import pytest
from hotrow.kernels import compiler

SANITIZERS = {  # options, libraries, variables of their runtimes
    "address": ("-g1 -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined",
                ("libasan.so", "libubsan.so"), {"ASAN_OPTIONS": "detect_leaks=0"}),
    "thread": ("-g1 -O1 -fsanitize=thread", ("libtsan.so",), {
        "TSAN_OPTIONS": "report_bugs=1:halt_on_error=1:ignore_noninstrumented_modules=1:"
                        "die_after_fork=0"}),
}
SUITES = {
    "kernels": ["tests/kernels", "-k",
                "not test_native and not test_compiler and not sanitizer"],
    "commands": ["tests/support/fuzz", "-k", "software"],
    "engine": ["tests/engine", "-m", "not long",
               "-k", "not instruction_sets and not cannot_start"],
    "driver": ["tests/driver", "-k", "cpu"],
    "torch": ["tests/torch/test_pipeline.py", "tests/torch/test_train_cached.py",
              "tests/torch/test_invariant.py",
              "-k", "not raw_ids"],  # polars does not run under ThreadSanitizer
    "tables": ["tests/tables", "-m", "not long and not nightly",
               "-k", "not most_memory"],  # AddressSanitizer keeps what is freed
}


def run(*arguments, sanitizer=None):
    """Output of a program in Python whose library is built with a sanitizer."""
    command = compiler.find_compiler()
    if command is None:
        pytest.skip("no C++ compiler is installed")
    environment = dict(os.environ)
    if sanitizer:
        options, libraries, variables = SANITIZERS[sanitizer]
        found = [subprocess.run([*command, f"-print-file-name={name}"], capture_output=True,
                                text=True).stdout.strip() for name in libraries]
        if not all(map(os.path.isabs, found)):
            pytest.skip(f"{command[0]} has no {' or '.join(libraries)}")
        environment |= {"CXX": f"env -u LD_PRELOAD {' '.join(command)} {options}",
                        "LD_PRELOAD": ":".join(found), **variables}
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True,
                          env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return done.stdout


def fuzzed(cases, threads=1, sanitizer=None):
    """Random calls of the passes, so many."""
    assert f"{cases} cases" in run("tests.support.kernel_fuzz", "--cases", str(cases), "--threads",
                                   str(threads), sanitizer=sanitizer)


@pytest.mark.long
@pytest.mark.parametrize("sanitizer, threads, cases", [
    ("address", 1, 20000), ("address", 3, 20000), ("thread", 4, 5000)])
def test_random_calls(sanitizer, threads, cases):
    fuzzed(cases, threads, sanitizer)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_suites(sanitizer, suite):
    assert " passed" in run("pytest", "-q", "-x", "-s", "-n", "0", "-p", "no:cacheprovider",
                            "--timeout", "3600", "-m", "not slow and not long", *SUITES[suite],
                            sanitizer=sanitizer)
