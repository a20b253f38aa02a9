"""Progress of a benchmark, on standard error."""

from rich.console import Console
from rich.progress import Progress


class Steps:
    """A progress bar; a context manager."""

    def __init__(self):
        self._bars, self._bar = Progress(console=Console(stderr=True)), None

    def begin(self, what, total=None):
        """Show the next step, of `total` parts; return a function to call as each is done."""
        if self._bar is not None:
            self._bars.remove_task(self._bar)
        bar = self._bar = self._bars.add_task(what, total=total)
        return lambda: self._bars.advance(bar)

    def __enter__(self):
        self._bars.start()
        return self

    def __exit__(self, *_):
        self._bars.stop()
