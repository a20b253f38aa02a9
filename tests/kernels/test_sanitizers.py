"""The compiled passes under sanitizers, and beside PyTorch's, over random calls."""

import os
import subprocess
import sys

import pytest
from hotrow.kernels import compiler

_ADDRESS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"


def fuzzed(cases, threads=1, flags="", libraries=(), **environment):
    """Output of `kernel_fuzz` over so many cases, with passes built with these flags."""
    command = compiler.find_compiler()
    if command is None:
        pytest.skip("no C++ compiler is installed")
    preload = [subprocess.run([*command, f"-print-file-name={name}"], capture_output=True,
                              text=True).stdout.strip() for name in libraries]
    if not all(os.path.isabs(each) for each in preload):
        pytest.skip(f"{command[0]} has no {' or '.join(libraries)}")
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.kernel_fuzz", "--cases", str(cases), "--threads",
         str(threads)], capture_output=True, text=True, env={
            **os.environ, **environment, "LD_PRELOAD": ":".join(preload),
            **({"CXX": f"{' '.join(command)} -g {flags}"} if flags else {})})
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-8000:]
    assert f"{cases} cases" in run.stdout
    return run.stdout


def test_random_calls_end_as_those_of_the_reference():
    fuzzed(300)


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 3])
def test_under_the_address_and_undefined_behaviour_sanitizers(threads):
    fuzzed(20000, threads, _ADDRESS, ("libasan.so", "libubsan.so"),
           ASAN_OPTIONS="detect_leaks=0")


@pytest.mark.long
def test_under_the_thread_sanitizer():
    fuzzed(5000, 4, "-fsanitize=thread", ("libtsan.so",),
           TSAN_OPTIONS="report_bugs=1:halt_on_error=1:ignore_noninstrumented_modules=1")
