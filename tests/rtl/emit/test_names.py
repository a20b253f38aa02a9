"""Signals of an assignment to several variables have these names in Verilog."""

import re

from amaranth import Module, Signal
from amaranth.hdl import _ast
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.emit.component import to_verilog
from hotrow_rtl.emit.names import named_in_tuples


class Unit(wiring.Component):
    i: In(4)
    o: Out(4)

    def elaborate(self, platform):
        m = Module()
        first, second, third = Signal(4), Signal(
            range(16), init=3), Signal.like(self.i)
        self.fourth, fifth = Signal(4), Signal(4, name="own")
        several = [Signal(4) for _ in range(2)]
        m.d.sync += [
            first.eq(self.i), second.eq(first), third.eq(second), self.fourth.eq(third),
            fifth.eq(self.fourth), several[0].eq(fifth), several[1].eq(several[0])]
        m.d.comb += self.o.eq(several[1])
        return m


def test_each_has_its_name():
    plain = _ast.tracer.get_var_name
    found = re.findall(r"^  reg \[3:0\] ([^\s;]+)", to_verilog(Unit(), "unit"), re.MULTILINE)
    # Of those in a list, one has no name, and the other is the output.
    assert {name for name in found if "$" not in name} == {
        "first", "second", "third", "fourth", "own", "o"}
    assert len(found) == 7 and _ast.tracer.get_var_name is plain


def test_without_a_source():
    """As typed at a prompt: the names are Amaranth's own."""
    values = {"Signal": Signal}
    with named_in_tuples():
        exec("one, two = Signal(), Signal()\nthree = Signal()", values)
    assert values["one"].name == "$signal" and values["three"].name == "three"
