"""Starts torchrun for tests: processes that find each other, end, and say what went wrong."""

import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager

SECONDS = 1200  # many times what it takes, on a machine that is busy with much else
_OF_A_LAUNCHER = ("RANK", "LOCAL_", "GROUP_", "ROLE_", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_",
                  "PET_", "GLOO_", "TORCH_DISABLE_SHARE_RDZV")


def torchrun(ranks, folder, script, *arguments, seconds=SECONDS):
    """Run a script as so many ranks of one machine, to the end.

    The ranks meet at a store of the launcher's, at a port that the system gave it: no port is
    chosen before it is bound, and launchers beside this one have others. They are found by number,
    so that nothing depends on what the machine's name resolves to.

    Parameters
    ----------
    ranks : int
    folder : Path
        Where what they print is kept while they run.
    script : str
    *arguments : str
        Of the script.
    seconds : float
        After which every process of it is ended.

    Raises
    ------
    AssertionError
        A rank failed, or they did not end: with what all of them printed, each line with its rank.
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
                 "PYTHONFAULTHANDLER": "1"})
        try:
            ended = f"exit status {launcher.wait(seconds)}"
        except subprocess.TimeoutExpired:
            ended = f"no end after {seconds} seconds"
        finally:
            launcher.terminate()  # it ends its ranks before itself; if it has ended, nothing
            launcher.wait()
    if launcher.returncode:
        said = printed.read_text(errors="replace")
        raise AssertionError(f"{ranks} ranks of {script}: {ended}\n{said[-12000:]}")


@contextmanager
def one_at_a_time(path):
    """Hold a lock file: the test workers of a session do not do the same work side by side."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
