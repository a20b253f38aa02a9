"""Runs torchrun for tests, with its output in the error."""

import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = str(Path(__file__).parents[2])  # the scripts import modules of the tests
SECONDS = 1200  # ample on a busy machine
_OF_A_LAUNCHER = ("RANK", "LOCAL_", "GROUP_", "ROLE_", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_",
                  "PET_", "GLOO_", "TORCH_DISABLE_SHARE_RDZV")


def torchrun(ranks, folder, script, *arguments, seconds=SECONDS):
    """Run a script as several ranks of one machine, and wait for all.

    The ranks meet at the launcher's store, at a port that the system assigns when the launcher
    binds it, so that parallel launchers do not collide. They use a numeric address, and the
    machine's name need not resolve.

    Parameters
    ----------
    ranks : int
    folder : Path
        Folder for their output.
    script : str
    *arguments : str
        Arguments of the script.
    seconds : float
        Time-out, after which every process is ended.

    Raises
    ------
    AssertionError
        A rank failed, or the time ran out; the message has the output, each line with its rank.
    """
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(_OF_A_LAUNCHER)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "--tee=3",
               f"--log-dir={folder}", script, *map(str, arguments)]
    printed = folder / "printed.txt"
    with printed.open("wb") as file:
        launcher = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT,
            env={**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
                 "PYTHONFAULTHANDLER": "1", "PYTHONPATH": os.pathsep.join(
                     filter(None, (ROOT, kept.get("PYTHONPATH"))))})
        try:
            ended = f"exit status {launcher.wait(seconds)}"
        except subprocess.TimeoutExpired:
            ended = f"no end after {seconds} seconds"
        finally:
            launcher.terminate()  # it ends its ranks first
            launcher.wait()
    if launcher.returncode:
        said = printed.read_text(errors="replace")
        raise AssertionError(f"{ranks} ranks of {script}: {ended}\n{said[-12000:]}")


@contextmanager
def one_at_a_time(path):
    """Hold a lock file, so that one test worker does the work for all of a session."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
