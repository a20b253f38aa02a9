"""A pause of Python's search for unreachable objects, while nearly all objects are kept."""

import gc
from contextlib import contextmanager


@contextmanager
def kept_objects():
    """Within it nothing is searched for unreachable cycles.

    Amaranth makes millions of objects that live as long as the design: to look through them again
    and again takes half of the time in which a large card's Verilog is written.
    """
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()
