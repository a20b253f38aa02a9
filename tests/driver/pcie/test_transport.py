"""The transport `pcie` over a golden card: programs, waits, opening and closing."""

import os
import subprocess
from dataclasses import replace
from functools import partial

import hotrow
import numpy as np
import pytest
from hotrow import TransportError
from hotrow.contract.generated import REGISTERS
from hotrow.device import Device
from hotrow.transports.pcie import transport as pcie
from hotrow.transports.pcie.bar import find_function
from hotrow.transports.pcie.transport import PcieTransport
from hotrow.transports.pcie.vfio import VfioMemory
from hotrow_rtl.config import preset
from hotrow_sim.model import Device as Model

from tests.driver.conftest import answers, register_tables, usable
from tests.driver.links import LateCard, declared_transports
from tests.driver.pcie.cards import ADDRESS, BAR_BYTES, Iommu, Registers


def test_the_card_masters_the_bus_between_its_reset_and_close():
    """What a killed process left running is stopped before the card reaches memory again."""
    card, seen = Model(preset("tiny")), []
    registers = Registers(card)
    write = registers.write
    registers.write = lambda *access: (seen.append(access), write(*access))
    transport = PcieTransport(registers, lambda width: VfioMemory(5, width, Iommu(card)),
                              lambda *, master: seen.append(master),
                              lambda: seen.append("released"))
    assert seen == [False, (REGISTERS["CONTROL"], 1), True]
    transport.close()
    assert seen[3:] == [False, "released"] and registers.closed


def program(transport):
    """What commands on a card give."""
    with Device(transport, 60, 4, 1 << 20) as device:
        return answers(device, samples=200)


@pytest.mark.parametrize("name", ["tiny", "ecp5"])
def test_a_program_through_the_iommu(name):
    """Arrays anywhere, at addresses that the card has; the results are those of `model`."""
    config = preset(name)
    card = Model(config)
    iommu, registers = Iommu(card), Registers(card)
    transport = PcieTransport(registers, partial(VfioMemory, 5, ioctl=iommu))
    got = program(transport)
    assert not iommu.mapped and registers.closed
    for one, other in zip(got, program(Model(config)), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("name, own, end", [
    ("ecp5", 0, 0xFEE0_0000), ("ecp5", 20, 1 << 31), ("tiny", 0, 1 << 39), ("tiny", 20, 1 << 39)])
def test_a_card_says_which_addresses_are_the_hosts(name, own, end):
    card, ends = Model(replace(preset(name), card_memory_log2=own)), []

    def memory(width):
        made = VfioMemory(5, width, Iommu(card))
        ends.append(made._ranges._end)
        return made
    with Device(PcieTransport(Registers(card), memory), 60, 4, 1 << 20) as device:
        assert usable(device, register_tables(device))
    assert ends == [end]


def model_behind_the_iommu():
    card = Model(preset("ecp5"))
    transport = PcieTransport(Registers(card), partial(VfioMemory, 5, ioctl=Iommu(card)))
    return Device(transport, 60, 4, 1 << 20)


@pytest.mark.parametrize("opened", [
    lambda: hotrow.open("model", preset="ecp5"), lambda: hotrow.open("cpu", preset="ecp5"),
    model_behind_the_iommu], ids=["model", "cpu", "vfio"])
def test_memory_that_was_unregistered_makes_room(opened):
    """More bytes are registered, one buffer after the other, than the card has addresses for."""
    with opened() as device:
        for _ in range(9):
            device.unregister(device.register(np.zeros(1 << 30, np.uint8)))


class Interrupting(Registers):
    """Registers of a card that interrupts the host at every doorbell."""

    def __init__(self, card):
        super().__init__(card)
        self.card, self.write = card, self.ring
        self.event, self.written = os.eventfd(0, os.EFD_NONBLOCK), []

    def ring(self, offset, value):
        self.written.append((offset, value))
        self.card.write_register(offset, value)
        if offset in (REGISTERS["LOOKUP_TAIL"], REGISTERS["MOVE_TAIL"]):
            os.eventfd_write(self.event, 1)


@pytest.mark.parametrize("interrupts", [False, True])
def test_a_card_that_takes_its_time(interrupts):
    """Results are waited for; both queues' interrupts are enabled, and cleared before a wait."""
    card = LateCard(preset("tiny"))
    registers = (Interrupting if interrupts else Registers)(card)
    transport = PcieTransport(registers, partial(VfioMemory, 5, ioctl=Iommu(card.device)),
                              interrupt=registers.event if interrupts else None)
    with Device(transport, 60, 4, 1 << 20) as device:
        assert usable(device, register_tables(device))
    assert card.late > 10
    if interrupts:
        enabled, cleared = (registers.written.count(each) for each in (
            (REGISTERS["CONTROL"], 6), (REGISTERS["INTERRUPT"], 3)))
        assert cleared >= enabled > 0
        os.close(registers.event)


@pytest.mark.parametrize("after, timeout, reads", [(0, 9, 1), (3, 9, 4), (None, 0, 1)])
def test_a_wait_ends_with_a_completion_or_in_time(monkeypatch, after, timeout, reads):
    card, seen = Model(preset("tiny")), []
    registers = Registers(card)
    transport = PcieTransport(registers, partial(VfioMemory, 5, ioctl=Iommu(card)))

    def read(offset):
        seen.append(offset)
        assert len(seen) <= reads
        return 7 + (after is not None and len(seen) > after)

    monkeypatch.setattr(registers, "read", read)
    transport.wait(1, 7, timeout)
    assert seen == [REGISTERS["MOVE_COMPLETED"]] * reads


def test_registers_behind_others_in_a_bar():
    card, asked = Model(preset("tiny")), []

    class Offset(Registers):
        def __init__(self, card):
            super().__init__(card)
            read, write = self.read, self.write
            self.read = lambda offset: asked.append(offset) or read(offset - (1 << 16))
            self.write = lambda offset, value: write(offset - (1 << 16), value)

    transport = PcieTransport(Offset(card), partial(VfioMemory, 5, ioctl=Iommu(card)),
                              registers_at=1 << 16)
    with Device(transport, 60, 4, 1 << 20) as device:
        assert usable(device, register_tables(device))
    assert min(asked) >= 1 << 16


def test_closed_twice():
    card = Model(preset("tiny"))
    transport = PcieTransport(Registers(card), partial(VfioMemory, 5, ioctl=Iommu(card)))
    transport.close()
    transport.close()
    with pytest.raises(TransportError, match="'pcie' has been closed"):
        transport.read_register(0)


@pytest.mark.parametrize("spec, options, message", [
    ("pcie", {}, "no PCI function was named"),
    (f"pcie:{ADDRESS}", {"memory": "pinned"}, "memory must be 'vfio' or 'hugepages'"),
    (f"pcie:{ADDRESS}", {"bar": 3, "memory": "hugepages"}, "has no BAR 3"),
    (f"pcie:{ADDRESS}", {"memory": "hugepages"}, "expected a hotrow card of contract version"),
    (f"pcie:{ADDRESS}", {"memory": "hugepages", "registers_at": BAR_BYTES},
     f"has {BAR_BYTES} bytes of registers, none at"),
    (f"pcie:{ADDRESS}", {"lanes": 4}, "given an option it lacks"),
])
def test_opening(monkeypatch, function, spec, options, message):
    declared_transports(monkeypatch)
    monkeypatch.setattr(pcie, "find_function",
                        lambda address: find_function(address, function.parent))
    with pytest.raises((TransportError, hotrow.DeviceError), match=message):
        hotrow.open(spec, **options)


def test_one_process_at_a_time_in_huge_pages(monkeypatch, function):
    monkeypatch.setattr(pcie, "find_function",
                        lambda address: find_function(address, function.parent))
    first = pcie.open_transport(ADDRESS, memory="hugepages")
    assert (function / "config").read_bytes()[4] & 4, "bus master"
    other = subprocess.run(["flock", "--nonblock", function / "config", "true"])
    assert other.returncode, "the lock is seen by other processes"
    with pytest.raises(ValueError, match=f"another process uses PCI function {ADDRESS}: end it"):
        pcie.open_transport(ADDRESS, memory="hugepages")
    first.close()
    assert not (function / "config").read_bytes()[4] & 4, "bus master"
    pcie.open_transport(ADDRESS, memory="hugepages").close()
