"""Memory in huge pages, at the addresses that the system's page map gives."""

import errno
import os

import hotrow
import numpy as np
import pytest
from hotrow import RegistrationError
from hotrow.device import Device
from hotrow.transports.pcie.huge_pages import HugePages, huge_page_bytes
from hotrow.transports.pcie.transport import PcieTransport
from hotrow_rtl.config import preset
from hotrow_sim.model import Device as Model

from tests.driver.pcie.cards import PAGE, Registers


class Pages(HugePages):
    """Ordinary pages with chosen numbers; a golden card sees attached memory."""

    def __init__(self, path, card, width=64):
        super().__init__(width, path, flags=0, page=1 << 21)
        self.path, self.card = path, card
        path.touch()

    def number(self, array, first, step=1, present=1):
        """Say where the pages of an array are."""
        start = array.ctypes.data // PAGE
        count = (array.ctypes.data + array.nbytes - 1) // PAGE - start + 1
        entries = np.array([present << 63 | first + step * page for page in range(count)], "<u8")
        with self.path.open("r+b") as file:
            file.seek(8 * start)
            file.write(entries.tobytes())
        return array

    def empty(self, shape, dtype):
        array = super().empty(shape, dtype)
        self.first = getattr(self, "first", 1 << 8) + (1 << 10)
        return self.number(array, self.first)

    def attach(self, octets, writable):
        address = super().attach(octets, writable)
        self.card.memory.map(address, octets, writable)
        return address

    def detach(self, address):
        self.card.memory.unmap(address)


def test_a_program_in_huge_pages(tmp_path):
    card = Model(preset("tiny"))
    pages = Pages(tmp_path / "pagemap", card)
    transport = PcieTransport(Registers(card), lambda width: pages)
    with Device(transport, 60, 4, 1 << 20) as device:
        weights = transport.empty((40, 8), np.float32)
        assert not weights.any()
        weights[:] = np.arange(320).reshape(40, 8)
        table = device.register_table(weights, name="rows")
        assert (device.gather((table, [3, 39, 3])) == weights[[3, 39, 3]]).all()
        with pytest.raises(RegistrationError, match="these pages are not in memory: allocate"):
            device.register_table(hotrow.empty((40, 8), np.float32), name="elsewhere")


@pytest.mark.parametrize("options, width, message", [
    ({"first": 1000, "step": 2}, 64, "pages of these 20000 bytes are not consecutive"),
    ({"first": 1000, "present": 0}, 64, "these pages are not in memory"),
    ({"first": 0, "step": 0}, 64, "hides the physical addresses of pages: run as the superuser"),
    ({"first": 1 << 20}, 32, "the card's addresses end at 0x100000000"),
])
def test_memory_that_the_card_cannot_reach(tmp_path, options, width, message):
    pages = Pages(tmp_path / "pagemap", None, width)
    array = np.zeros(20_000, np.uint8)
    with pytest.raises(MemoryError, match=message):
        pages.attach(pages.number(array, **options), True)


def test_memory_up_to_the_end_of_the_addresses(tmp_path):
    pages = Pages(tmp_path / "pagemap", None, 32)
    whole = np.zeros(6 * PAGE, np.uint8)
    array = whole[-whole.ctypes.data % PAGE:][:4 * PAGE]
    pages.card = Model(preset("tiny"))
    assert pages.attach(pages.number(array, (1 << 32) // PAGE - 4), True) == (1 << 32) - 4 * PAGE
    with pytest.raises(MemoryError, match="the card's addresses end at"):
        pages.attach(pages.number(array, (1 << 32) // PAGE - 3), True)


@pytest.mark.parametrize("spoil", [
    lambda pages, array: os.truncate(pages.path, array[-1:].ctypes.data // PAGE * 8),
    lambda pages, array: pages.number(array[-1:], 1003, present=0)], ids=["unknown", "absent"])
def test_memory_of_which_a_page_is_away(tmp_path, spoil):
    pages = Pages(tmp_path / "pagemap", None)
    array = pages.number(np.zeros(3 * PAGE, np.uint8), 1000)
    spoil(pages, array)
    with pytest.raises(MemoryError, match="these pages are not in memory"):
        pages.attach(array, True)


def test_huge_pages_of_the_kernels_size(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 1 kB\nHugepagesize:    1048576 kB\nDirectMap4k: 2 kB\n")
    assert huge_page_bytes(meminfo) == 1 << 30
    meminfo.write_text("MemTotal: 1 kB\n")
    with pytest.raises(ValueError, match="has no huge pages: use memory='vfio'"):
        huge_page_bytes(meminfo)


def test_too_few_huge_pages(monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")
    monkeypatch.setattr("hotrow.transports.pcie.huge_pages.mmap.mmap", refuse)
    with pytest.raises(MemoryError, match=r"pages of 1024 MB, `sysctl vm\.nr_hugepages=6`"):
        HugePages(64, page=1 << 30).empty((5 << 30) // 2, np.uint8)
