"""A host without a driver: raw commands in the rings of any transport."""

import time

import numpy as np
from hotrow_rtl.contract.encoding import COMMAND_BYTES, COMPLETION_BYTES, QUEUES, packed_address
from hotrow_rtl.contract.registers import (
    REGISTERS,
    ControlBits,
    QueueControlBits,
    RegionCommitBits,
    StatusBits,
    TableCommitBits,
    TableFormatBits,
    TablePartitionBits,
    TableRowBits,
    place,
)
from hotrow_sim.golden.records import COMMAND_RECORD, COMPLETION_RECORD, decode, encode

PATIENCE = 60.0  # seconds until a wait fails


def aligned(size, offset=0):
    """uint8[size] at a host address of `offset` modulo 64."""
    octets = np.zeros(size + 64 + offset, np.uint8)
    start = -octets.ctypes.data % 64 + offset
    return octets[start:start + size]


class BareHost:
    """Rings, regions and tables without checks.

    Parameters
    ----------
    transport : object
        Implements the driver's transport protocol.
    entries_log2 : int
        log2 of the entries of a ring.

    Attributes
    ----------
    commands, completions : dict of str to ndarray
        The rings by queue, as records of the contract.
    addresses : dict of int to int
        Device address by handle.
    """

    def __init__(self, transport, entries_log2=3, first_handle=0):
        self.transport, self.entries = transport, 1 << entries_log2
        self.commands, self.completions, self.addresses = {}, {}, {}
        self.tail = dict.fromkeys(QUEUES, 0)
        self.await_ready()
        for index, queue in enumerate(QUEUES):
            handle = first_handle + 2 * index
            rings = aligned(self.entries * COMMAND_BYTES), aligned(self.entries * COMPLETION_BYTES)
            for offset, octets in enumerate(rings):
                self.register(handle + offset, octets)
            self.commands[queue] = rings[0].view(COMMAND_RECORD)
            self.completions[queue] = rings[1].view(COMPLETION_RECORD)
            self.write_wide(f"{queue}_COMMANDS", packed_address(handle, 0))
            self.write_wide(f"{queue}_COMPLETIONS", packed_address(handle + 1, 0))
            self.write(f"{queue}_ENTRIES", entries_log2)
            self.enable(queue)

    def read(self, register):
        return self.transport.read_register(REGISTERS[register.upper()].offset)

    def write(self, register, value):
        self.transport.write_register(REGISTERS[register.upper()].offset, value)

    def write_wide(self, register, value):
        """Write a pair of registers _LOW and _HIGH."""
        self.write(f"{register}_LOW", value & 0xFFFF_FFFF)
        self.write(f"{register}_HIGH", value >> 32)

    def await_ready(self):
        """Wait until the device has cleared its memories."""
        deadline = time.monotonic() + PATIENCE
        while not self.read("STATUS") & StatusBits.READY:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the device was not ready after {PATIENCE} s")

    def soft_reset(self):
        """Reset until no port is stopped: a port whose memory owes answers stops again."""
        deadline, running = time.monotonic() + PATIENCE, False
        while not running:
            self.write("CONTROL", ControlBits.SOFT_RESET)
            self.await_ready()
            running = self.read("STATUS") == StatusBits.READY
            if time.monotonic() > deadline:
                raise TimeoutError(f"a port was still stopped after {PATIENCE} s")

    def enable(self, queue, halt_on_error=False):
        """Restart a queue at entry 0."""
        halt = halt_on_error * QueueControlBits.HALT_ON_ERROR
        self.write(f"{queue}_CONTROL", halt)
        self.write(f"{queue}_CONTROL", QueueControlBits.ENABLE | halt)
        self.tail[queue] = 0

    def register(self, handle, octets, writable=True):
        """Attach uint8 `octets` and register them as the region of a handle."""
        address = self.transport.attach(octets, writable)
        self.addresses[handle] = address
        self.region(handle, address, octets.size, writable)

    def region(self, handle, address, size, writable=True):
        """Register a range of device addresses as the region of a handle."""
        self.write("REGION_HANDLE", handle)
        self.write_wide("REGION_BASE", address)
        self.write_wide("REGION_SIZE", size)
        self.write("REGION_COMMIT",
                   RegionCommitBits.VALID | writable * RegionCommitBits.WRITABLE)

    def table(self, number, table):
        """Register a `golden.region_check.Table`; None removes the table."""
        self.write("TABLE_NUMBER", number)
        if table is not None:
            self.write("TABLE_LAST_ROW", table.last_row)
            self.write_wide("TABLE_WEIGHTS", table.weights)
            self.write("TABLE_ROW", place(TableRowBits.STRIDE, table.stride)
                       | place(TableRowBits.BYTES, table.row_bytes))
            self.write_wide("TABLE_STATE", table.state)
            self.write("TABLE_FORMAT", place(TableFormatBits.TYPE, table.type)
                       | place(TableFormatBits.STATE_BYTES, table.state_bytes))
            self.write("TABLE_PARTITION", place(TablePartitionBits.PART, table.part)
                       | place(TablePartitionBits.PARTS_LOG2, table.parts_log2))
        self.write("TABLE_COMMIT", (table is not None) * TableCommitBits.VALID)

    def submit(self, queue, **operands):
        """Write one command to a ring, without its doorbell."""
        at = self.tail[queue] % self.entries
        self.commands[queue][at:at + 1] = encode(COMMAND_RECORD, **operands).view(COMMAND_RECORD)
        self.tail[queue] = (self.tail[queue] + 1) & 0xFFFF_FFFF

    def ring(self, queue):
        """Write the doorbell of a queue."""
        self.write(f"{queue}_TAIL", self.tail[queue])

    def wait(self, queue, completed=None):
        """Wait until `completed` commands have completed, by default all submitted ones."""
        completed = self.tail[queue] if completed is None else completed
        deadline = time.monotonic() + PATIENCE
        while (seen := self.read(f"{queue}_COMPLETED")) != completed:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{queue} queue: {seen} of {completed} commands completed after {PATIENCE} s, "
                    f"state {self.read(f'{queue}_STATE'):#x}")
            self.transport.wait(QUEUES.index(queue), seen, 1.0)

    def completion(self, queue, sequence):
        """The completion with that sequence number as a dict."""
        at = (sequence - 1) % self.entries
        return decode(COMPLETION_RECORD, self.completions[queue][at:at + 1])

    def run(self, queue, **operands):
        """Submit one command, wait for it, and return its completion."""
        self.submit(queue, **operands)
        self.ring(queue)
        self.wait(queue)
        return self.completion(queue, self.tail[queue])
