"""The program `hotrow`: an interrupt ends it without a traceback, also while it loads.

This package is apart from `hotrow`, whose import loads NumPy.
"""


def main() -> int:
    """Run the command line; return the exit code, as `hotrow.command.cli.main`."""
    try:
        from hotrow.command.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 130
