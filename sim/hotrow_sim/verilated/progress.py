"""Progress of a build on standard error."""

import sys
import time

WIDTH = 60


class Progress:
    """One line that is overwritten on a terminal; elsewhere the first and the last line only.

    Parameters
    ----------
    name : str
        Name of the model that is built.
    """

    def __init__(self, name):
        self.name, self.start, self.terminal = name, None, sys.stderr.isatty()

    def __call__(self, step):
        """Show the step that begins, or the number of compiled files."""
        if self.start is None:
            self.start = time.monotonic()
            self._write(f"hotrow: building the simulated device {self.name!r}, once; on two cores "
                        "that takes one to three minutes\n")
        if self.terminal:
            self._write(f"\r{self._line(step):<{WIDTH}}")

    def done(self):
        """Show that the build has ended, if one has begun."""
        if self.start is not None:
            line = self._line("ready")
            self._write(f"\r{line:<{WIDTH}}\n" if self.terminal else f"{line}\n")

    def _line(self, step):
        return f"hotrow: {time.monotonic() - self.start:4.0f} s  {step}"

    def _write(self, text):
        sys.stderr.write(text)
        sys.stderr.flush()
