"""Command queues: a ring of commands, a ring of completions, and the doorbell between them."""

import time
from collections import deque

import numpy as np

from .contract import COMMAND, COMPLETION, Opcode
from .errors import DeviceError, TimeoutError
from .futures import Future
from .registers import ENABLE, FAULTED, STOPPED, WAITING, describe_ports, describe_queue

_MODULUS = 1 << 32  # of the counters TAIL, HEAD and COMPLETED
_SLICE = 0.05  # seconds for which the transport is left alone before state is looked at
_PAUSE = 0.0005


class CommandQueue:
    """One in-order queue of the device.

    Parameters
    ----------
    device : Device
        Offers `registers`, `regions`, `lock`, `timeout` and `account`.
    name : str
    entries : int
        Commands that can be outstanding (power of two, 2 to 65536).
    """

    def __init__(self, device, name, entries):
        self.name = name
        self._device, self._entries = device, entries
        self._registers = device.registers
        size = entries * (COMMAND.itemsize + COMPLETION.itemsize)
        regions = device.regions
        self._ring = regions.add(regions.empty(size, np.uint8), True, f"rings of the {name} queue")
        split = entries * COMMAND.itemsize
        self._commands = self._ring.array[:split].view(COMMAND)
        self._completions = self._ring.array[split:].view(COMPLETION)
        self._outstanding: deque[Future] = deque()
        self._submitted = self._completed = 0
        self._fault = None

    def start(self):
        """Enable the queue, which must be idle, at entry 0."""
        self._write("CONTROL", 0)
        self._submitted = self._completed = 0
        self._fault = None
        for name, offset in (("COMMANDS", 0), ("COMPLETIONS", self._commands.nbytes)):
            self._registers.write_wide(f"{self.name.upper()}_{name}", self._ring.packed(offset))
        self._write("ENTRIES", self._entries.bit_length() - 1)
        self._write("CONTROL", ENABLE)

    def submit(self, opcode, operands, finish, held) -> Future:
        """Queue one command.

        Parameters
        ----------
        opcode : Opcode
        operands : dict of str to int
        finish : callable
            Turns the completion record into the result, or raises.
        held : contextlib.ExitStack
            Closed as soon as the device no longer needs what the command names.
        """
        future = Future(self, f"{opcode.name} on the {self.name} queue", finish, held)
        try:
            if len(self._outstanding) == self._entries:
                self.drive(lambda: len(self._outstanding) < self._entries,
                           f"{future.label} (its ring of {self._entries} commands is full)", None)
            if self._fault is not None:
                raise self._fault
        except BaseException:
            held.close()
            raise
        command = np.zeros((), COMMAND)
        command["opcode"], command["tag"] = opcode, self._submitted % _MODULUS
        for name, value in operands.items():
            command[name] = value
        self._commands[self._submitted % self._entries] = command
        self._submitted += 1
        self._outstanding.append(future)
        self._write("TAIL", self._submitted % _MODULUS)
        return future

    def poll(self):
        """Take up the completions that have landed."""
        with self._device.lock:
            landed = (self._read("COMPLETED") - self._completed) % _MODULUS
            for _ in range(min(landed, len(self._outstanding))):
                self._take()

    def look(self):
        """Take up completions, or notice that there will be none."""
        with self._device.lock:
            self.poll()
            self._look_for_fault()

    def drive(self, reached, label, timeout):
        """Let the device run until `reached()`.

        Raises
        ------
        TimeoutError, DeviceError
        """
        timeout = self._device.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        while True:
            with self._device.lock:
                self.look()
                if reached():
                    return
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise TimeoutError(self._late(label, timeout))
                self._registers.wait(
                    self.name, self._completed % _MODULUS, min(remaining, _SLICE))
                self.poll()
                if reached():
                    return
            time.sleep(_PAUSE)  # nothing yet: another thread may have to signal an event

    def stop(self, error):
        """Give up every outstanding command; refuse others until `start`."""
        self._fault = error
        while self._outstanding:
            self._outstanding.popleft().fail(error)

    def _take(self):
        at = self._completed % self._entries
        completion = self._completions[at].copy()
        if (completion["tag"], completion["sequence"]) != (
                self._completed % _MODULUS, (self._completed + 1) % _MODULUS):
            self.stop(DeviceError(
                f"the {self.name} queue's completion {self._completed} carries tag "
                f"{completion['tag']} and sequence {completion['sequence']}: the rings were "
                f"overwritten; recover with Device.reset()"))
            return
        self._completed += 1
        self._device.account(Opcode(int(completion["opcode"])),
                             int(completion["end"]) - int(completion["start"]))
        self._outstanding.popleft().complete(completion)

    def _look_for_fault(self):
        if self._read("STATE") & FAULTED and self._fault is None:
            ports = describe_ports(self._registers.read("STATUS"))
            self.stop(DeviceError(
                f"{describe_queue(self._registers, self.name)}{ports and '; '}{ports}: recover "
                f"with Device.reset(), which keeps regions, tables, counters and directory"))

    def _late(self, label, timeout):
        state, status = self._read("STATE"), self._registers.read("STATUS")
        if state & WAITING:
            advice = (f"signal the event, or end the wait with "
                      f"Device.abort_wait(queue={self.name!r})")
        elif status & STOPPED:
            advice = f"{describe_ports(status)}; recover with Device.reset()"
        else:
            advice = "ask for the result again to go on waiting, or give up with Device.reset()"
        return (f"{label} did not complete in {timeout:g} s "
                f"({describe_queue(self._registers, self.name)}): {advice}")

    def _read(self, name):
        return self._registers.read(f"{self.name.upper()}_{name}")

    def _write(self, name, value):
        self._registers.write(f"{self.name.upper()}_{name}", value)
