"""The register PLAN_RETIRED."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Retirement(wiring.Signature):
    """The register PLAN_RETIRED, seen from the register block.

    Attributes
    ----------
    write : Out(1)
        A pulse: the host has written `number`. Never in two consecutive cycles.
    number : Out(32)
    retired : In(32)
    refused : In(1)
        A pulse: the number written was out of bounds and is ignored.
    """

    def __init__(self):
        super().__init__({
            "write": Out(1), "number": Out(32), "retired": In(32), "refused": In(1)})
