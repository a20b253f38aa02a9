"""The register PLAN_RETIRED between the register block and the planner."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Retirement(wiring.Signature):
    """The register PLAN_RETIRED, seen from the register block.

    Members
    -------
    write : Out(1)
        A pulse: the host has written `number` to it. Not in two cycles on end.
    number : Out(32)
    retired : In(32)
    refused : In(1)
        A pulse: what was written is out of bounds and has been ignored.
    """

    def __init__(self):
        super().__init__({
            "write": Out(1), "number": Out(32), "retired": In(32), "refused": In(1)})
