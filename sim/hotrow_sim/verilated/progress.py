"""How far a build is, on standard error."""

import sys
import time

WIDTH = 60


class Progress:
    """One line that is written over on a terminal; elsewhere a line per step.

    Parameters
    ----------
    name : str
        Of the preset that is being built.
    """

    def __init__(self, name):
        self.start, self.terminal = time.monotonic(), sys.stderr.isatty()
        self._say(f"hotrow: building the simulated device {name!r}, once; on two cores that takes "
                  "one to three minutes\n")

    def __call__(self, step):
        """Tell the step that begins, or how many files of it are done."""
        if self.terminal:
            self._say(f"\r{self._line(step):<{WIDTH}}")
        elif not step.startswith("compiled"):
            self._say(self._line(step) + "\n")

    def done(self):
        """Tell that the device is ready."""
        self._say(("\r" if self.terminal else "") + f"{self._line('ready'):<{WIDTH}}\n")

    def _line(self, step):
        return f"hotrow: {time.monotonic() - self.start:4.0f} s  {step}"

    def _say(self, text):
        sys.stderr.write(text)
        sys.stderr.flush()
