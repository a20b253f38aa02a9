"""The card whose execution is counted, and the notes of what its tests reached.

As a plugin of pytest (`-p tests.support.covered`) it replaces the preset `tiny` by `CARD`, and
notes the commands and completions of every `BareHost`. Notes are empty files in the folder that
HOTROW_COVERAGE names, where the card also writes its counts.
"""

import os
from dataclasses import replace
from pathlib import Path

from hotrow_rtl import config
from hotrow_rtl.contract.encoding import Opcode, PlanFlag, PlanPolicy, Status

FOLDER = os.environ.get("HOTROW_COVERAGE")
# Every unit of `tiny` but the mover's second row port, with two banks in place of eight, and the
# addresses of `ecp5`.
CARD = replace(config.PRESETS["tiny"], name="covered", bus_bytes=8, burst_beats=8, lane_banks=1,
               row_ports=1, address_width=32)
SPREAD = 0x9E37_79B9  # an odd number whose multiples have no regular bits


def note(*words):
    """Note a functional point, see `points`; without HOTROW_COVERAGE do nothing."""
    if FOLDER:
        (Path(FOLDER) / f"{' '.join(map(str, words))}.point").touch()


def name_of(kind, value):
    """Name of an enumeration's value, or None."""
    return kind(value).name if value in set(kind) else None


def _watch():
    """Note what every `BareHost` does."""
    from .bare_host import BareHost

    submit, ring, completion = BareHost.submit, BareHost.ring, BareHost.completion

    def noting_submit(self, queue, **operands):
        if operands["opcode"] == Opcode.PLAN and self.transport.name != "model":
            flags = int(operands.get("flags", 0))
            note("policy", PlanPolicy(flags // int(PlanFlag.POLICY_LOW) & 3).name)
        submit(self, queue, **operands)

    def noting_ring(self, queue):
        if self.transport.name == "model":
            return ring(self, queue)
        waiting = self.tail[queue] - self.read(f"{queue}_COMPLETED")
        if waiting in (0, self.entries):
            note("queue", queue, "full" if waiting else "empty")
        if self.tail[queue] > self.entries:
            note("queue", queue, "wrapped")
        ring(self, queue)

    def noting_completion(self, queue, sequence):
        found = completion(self, queue, sequence)
        opcode, status = name_of(Opcode, found["opcode"]), name_of(Status, found["status"])
        if opcode and status and self.transport.name != "model":
            note("outcome", opcode, status)
        if opcode == "PLAN" and CARD.stamp_bits < self.read("PLAN_RETIRED").bit_length() < 32:
            note("batch beyond stamps")  # numbers have wrapped in the stamps of the slots
        return found

    BareHost.submit, BareHost.ring, BareHost.completion = (
        noting_submit, noting_ring, noting_completion)


def _spread_addresses():
    """Let successive arrays differ in every bit of their address that a page leaves."""
    from hotrow_sim.address_space import FIRST, PAGE, AddressSpace

    place = AddressSpace.place

    def spread(self, host_address, size):
        self.placed = getattr(self, "placed", 0) + 1
        self._next = FIRST + (self.placed * SPREAD % (self.end - 2 * FIRST)) // PAGE * PAGE
        return place(self, host_address, size)

    AddressSpace.place = spread


def _skip_other_cards():
    """Skip a test that opens another card, whose library would take minutes to build."""
    import pytest
    from hotrow_sim.verilated import transport

    library = transport.device_library

    def of_card(card, trace=False, litedram=False):
        if card != CARD or trace or litedram:
            pytest.skip("another card")
        return library(card)

    transport.device_library = of_card


if FOLDER:
    config.PRESETS["tiny"] = CARD
    _watch()
    _spread_addresses()
    _skip_other_cards()
