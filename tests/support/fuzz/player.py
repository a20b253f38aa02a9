"""Plays rounds on a device and records all that a host can observe."""

import time
from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import QUEUES
from hotrow_rtl.contract.registers import QueueControlBits as Queue
from hotrow_rtl.contract.registers import QueueStateBits as State

from ..bare_host import PATIENCE
from .setup import FILL, LISTS, RESULTS

STEP = 0.02  # seconds to wait before polling the other queue
STILL = 20_000  # cycles without a completion, after `PATIENCE`, that count as a hang
WATCHED = ("TAIL", "HEAD", "COMPLETED", "STATE", "CONTROL")


@dataclass
class Observation:
    """Results of a round.

    Attributes
    ----------
    completions : dict of str to list of dict
        By queue, without cycle numbers.
    halts : dict of str to list of int
        By queue, the completions at which it halted.
    registers : dict of str to int
    buffers : dict of int to uint8 array
        By handle.
    """

    completions: dict
    halts: dict
    registers: dict
    buffers: dict


def play(host, round_):
    """Run one round.

    Raises
    ------
    TimeoutError
        If a queue hangs.
    AssertionError
        If cycle numbers decrease.
    """
    host.buffers[LISTS][:] = round_.lists
    host.buffers[RESULTS][:] = FILL
    if round_.soft_reset:
        host.soft_reset()
    for queue in QUEUES:
        if round_.restart[queue] or round_.soft_reset:
            host.enable(queue, round_.halt[queue])
        else:
            host.write(f"{queue}_CONTROL", Queue.ENABLE | Queue.HALT_ON_ERROR * round_.halt[queue])
    first = dict(host.tail)
    if round_.retires is not None:
        host.write("PLAN_RETIRED", round_.retires)
    for queue, ahead in round_.wrong_doorbells:
        host.write(f"{queue}_TAIL", host.tail[queue] + ahead & 0xFFFF_FFFF)
    for queue in QUEUES:
        for operands in round_.commands[queue]:
            host.submit(queue, **operands)
    for queue in QUEUES:
        host.ring(queue)
    halts = {queue: [] for queue in QUEUES}
    _drain(host, round_, first, halts)
    completions = {queue: [host.completion(queue, sequence + 1 & 0xFFFF_FFFF)
                           for sequence in range(first[queue], host.tail[queue])]
                   for queue in QUEUES}
    for queue in QUEUES:
        _strip_cycles(completions[queue])
    registers = {f"{queue}_{name}": host.read(f"{queue}_{name}")
                 for queue in QUEUES for name in WATCHED}
    registers |= {name: host.read(name) for name in ("FAULT", "INTERRUPT", "STATUS", "CONTROL")}
    if round_.retires is not None:
        registers["PLAN_RETIRED"] = host.read("PLAN_RETIRED")
    for name in ("FAULT", "INTERRUPT"):
        host.write(name, 0xFFFF_FFFF)
    return Observation(completions, halts, registers,
                       {handle: octets.copy() for handle, octets in host.buffers.items()})


def reset_amid(model, host, round_, cycles):
    """Begin a round on `host` alone and reset it after some cycles, wherever its commands are; then
    give it the memory of `model`, and restart both."""
    host.buffers[LISTS][:] = round_.lists
    for queue in QUEUES:
        host.enable(queue)
        for operands in round_.commands[queue]:
            host.submit(queue, **operands)
        host.ring(queue)
    host.transport.run(cycles)
    for each in (host, model):
        each.soft_reset()
        for queue in QUEUES:
            each.enable(queue)
        for name in ("FAULT", "INTERRUPT"):
            each.write(name, 0xFFFF_FFFF)
    for handle, octets in model.buffers.items():
        host.buffers[handle][:] = octets


def differences(one, other):
    """Differences of two observations as lines of text."""
    lines = []
    for queue in QUEUES:
        for place, pair in enumerate(
                zip(one.completions[queue], other.completions[queue], strict=True)):
            lines += [f"{queue} command {place} (opcode {pair[0]['opcode']:#x}): {name} "
                      f"{pair[0][name]:#x} and {pair[1][name]:#x}"
                      for name in pair[0] if pair[0][name] != pair[1][name]]
        if one.halts[queue] != other.halts[queue]:
            lines.append(f"{queue} halted at {one.halts[queue]} and {other.halts[queue]}")
    lines += [f"{name}: {value:#x} and {other.registers[name]:#x}"
              for name, value in one.registers.items() if value != other.registers[name]]
    for handle, octets in one.buffers.items():
        unequal = np.flatnonzero(octets != other.buffers[handle])
        if len(unequal):
            at = int(unequal[0])
            lines.append(f"handle {handle}: {len(unequal)} bytes, the first at {at:#x}: "
                         f"{octets[at]:#x} and {other.buffers[handle][at]:#x}")
    return lines


def _drain(host, round_, first, halts):
    """Wait for both queues; resume halted queues and abort WAITs without a SIGNAL."""
    control = {queue: Queue.ENABLE | Queue.HALT_ON_ERROR * round_.halt[queue] for queue in QUEUES}
    before, aborted = None, {queue: set() for queue in QUEUES}
    while True:
        unfinished, seen = 0, {}
        for number, queue in enumerate(QUEUES):
            state = host.read(f"{queue}_STATE")  # before COMPLETED, which is stable after a halt
            seen[queue] = completed = host.read(f"{queue}_COMPLETED")
            position = completed - first[queue]
            if state & 0xFF == State.HALTED:
                halts[queue].append(position)
                host.write(f"{queue}_CONTROL", control[queue] | Queue.RESUME)
            # STATE is that of this WAIT if COMPLETED was the same before, and one abort ends it: a
            # second one could end the WAIT after it.
            elif (state & State.WAITING and before and before[queue] == completed
                    and position in round_.aborts[queue] - aborted[queue]):
                aborted[queue].add(position)
                host.write(f"{queue}_CONTROL", control[queue] | Queue.ABORT)
            if completed == host.tail[queue]:  # it may have halted since STATE was read
                state = host.read(f"{queue}_STATE") if state & 0xFF != State.HALTED else state
                if state & 0xFF == State.HALTED and position not in halts[queue][-1:]:
                    halts[queue].append(position)
                    host.write(f"{queue}_CONTROL", control[queue] | Queue.RESUME)
            if completed != host.tail[queue] or state & (State.BUSY | State.HALTED):
                unfinished += 1
                host.transport.wait(number, completed, STEP)
        if not unfinished:
            return
        if seen != before:
            before, deadline, still = seen, time.monotonic() + PATIENCE, None
        elif time.monotonic() > deadline:
            # Some simulators need seconds for a few hundred cycles.
            cycle = host.read("CYCLE_LOW")
            still = cycle if still is None else still
            if cycle - still & 0xFFFF_FFFF > STILL:
                states = {queue: hex(host.read(f"{queue}_STATE")) for queue in QUEUES}
                raise TimeoutError(f"queues hang for {STILL} cycles: {states}")


def _strip_cycles(completions):
    began = last = 0
    for done in completions:
        start, end = done.pop("start"), done.pop("end")
        # Batches overlap, so one may start before the batches ahead of it end.
        assert began <= start <= end and last <= end, f"cycles decrease: {last}, {start}, {end}"
        began = start
        last = end
