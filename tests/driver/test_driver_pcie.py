"""The transport `pcie`: its BAR and configuration as files, the IOMMU and the card as models."""

import errno
import mmap
import os
import struct
import subprocess
from dataclasses import replace
from functools import partial

import hotrow
import numpy as np
import pytest
from hotrow import RegistrationError, TransportError
from hotrow.contract.generated import IDENTITY, REGISTERS
from hotrow.device import Device
from hotrow.memory.buffer import bytes_at
from hotrow.transports.pcie import transport as pcie
from hotrow.transports.pcie import vfio
from hotrow.transports.pcie.bar import enable, find_function, sysfs_bar
from hotrow.transports.pcie.huge_pages import HugePages, huge_page_bytes
from hotrow.transports.pcie.transport import PcieTransport
from hotrow.transports.pcie.vfio import MAP, REGION, UNMAP, VfioFunction, VfioMemory
from hotrow_rtl.config import preset
from hotrow_sim.model import Device as Model

from tests.driver.conftest import answers, register_tables, usable
from tests.driver.links import LateCard, declared_transports

ADDRESS = "0000:01:00.0"
BAR_BYTES = 1 << 16
PAGE = mmap.PAGESIZE


class Registers:
    """A golden card's registers in place of a `Bar`."""

    def __init__(self, card):
        self.read, self.write, self.closed = card.read_register, card.write_register, False

    def close(self):
        self.closed = True


class Iommu:
    """The memory calls of VFIO: a golden card sees mapped memory."""

    def __init__(self, card=None):
        self.card, self.mapped, self.limit, self.refusal = card, {}, 1 << 40, errno.ENOMEM

    def __call__(self, file, request, argument):
        if request == vfio.MAP_DMA:
            size, flags, host, address, count = MAP.unpack(argument)
            assert size == MAP.size == len(argument) and flags & ~3 == 0
            assert all(each % PAGE == 0 for each in (host, address, count))
            if sum(each[1] for each in self.mapped.values()) + count > self.limit:
                raise OSError(self.refusal, os.strerror(self.refusal))
            ranges = [(first, first + each[1]) for first, each in self.mapped.items()]
            assert all(address + count <= first or end <= address for first, end in ranges)
            self.mapped[address] = host, count, flags
            if self.card:
                self.card.memory.map(address, bytes_at(host, count), flags & 2 != 0)
        else:
            assert request == vfio.UNMAP_DMA
            size, flags, address, count = UNMAP.unpack(argument)
            assert (size, flags, self.mapped.pop(address)[1]) == (len(argument), 0, count)
            if self.card:
                self.card.memory.unmap(address)
        return 0


@pytest.fixture
def function(tmp_path):
    """A function as the system shows it, and VFIO's device files."""
    folder = tmp_path / "devices" / ADDRESS
    folder.mkdir(parents=True)
    registers = np.zeros(BAR_BYTES // 4, "<u4")
    registers[REGISTERS["IDENTITY"] // 4] = IDENTITY
    (folder / "resource0").write_bytes(registers.tobytes())
    (folder / "resource2").touch()
    (folder / "config").write_bytes(bytes(range(64)))
    group = tmp_path / "groups" / "17"
    group.mkdir(parents=True)
    (folder / "iommu_group").symlink_to(group)
    (tmp_path / "vfio").mkdir()
    for name in ("vfio", "17"):
        (tmp_path / "vfio" / name).touch()
    return folder


def test_registers_of_a_bar(function):
    bar = sysfs_bar(function, 0)
    assert bar.read(REGISTERS["IDENTITY"]) == IDENTITY
    bar.write(8, 0x89AB_CDEF)
    assert (function / "resource0").read_bytes()[8:12] == bytes.fromhex("efcdab89")
    bar.write(8, 0xFFFF_FFFF)
    assert bar.read(8) == 0xFFFF_FFFF, "a value of a card that answers"
    for offset in (2, -4, BAR_BYTES):
        with pytest.raises(TransportError, match=f"has {BAR_BYTES} bytes of registers, none at"):
            bar.read(offset)
    (function / "resource0").write_bytes(b"\xff" * BAR_BYTES)  # a removed card
    with pytest.raises(TransportError, match="does not answer: the card was removed"):
        bar.read(8)
    bar.close()


@pytest.mark.parametrize("master, command", [(True, 4 | 2), (False, 2)])
def test_a_function_is_enabled(function, master, command):
    with (function / "config").open("r+b", buffering=0) as file:
        enable(file.fileno(), master=master)
    found = (function / "config").read_bytes()
    assert found == bytes([*range(4), command, *range(5, 64)])


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


@pytest.mark.parametrize("address, message", [
    (None, "no PCI function was named: write domain"), ("01:00.0", "as `lspci -D` prints"),
    ("0000:01:00.8", "is no PCI function"), ("../../etc", "is no PCI function"),
    ("0000:02:00.0", "there is no PCI function 0000:02:00.0"),
])
def test_functions_that_are_not_there(function, address, message):
    with pytest.raises(ValueError, match=message):
        find_function(address, function.parent)


@pytest.mark.parametrize("number", [1, 2])
def test_a_bar_that_is_not_there(function, number):
    with pytest.raises(ValueError, match=f"has no BAR {number} of memory"):
        sysfs_bar(function, number)


def vfio_calls(function, viable=1):
    """VFIO's calls for `function`, and what was asked."""
    asked, device = [], (function / "resource0")

    def ioctl(file, request, argument=0):
        asked.append(request)
        if request == vfio.CHECK_EXTENSION:
            return 1
        if request == vfio.GROUP_STATUS:
            argument[:] = struct.pack("=II", 8, viable)
        if request == vfio.GROUP_DEVICE:
            assert argument == ADDRESS.encode() + b"\0"
            return os.open(device, os.O_RDWR)
        if request == vfio.REGION_INFO:
            size, _, index, *_ = REGION.unpack(argument)
            assert size == len(argument) == 32
            extent = {0: (PAGE, 0), 7: (256, PAGE)}.get(index, (0, 0))
            argument[:] = REGION.pack(size, 0, index, 0, *extent)
        return 0
    return ioctl, asked


def test_a_function_by_vfio(function):
    ioctl, asked = vfio_calls(function)
    card = VfioFunction(function, function.parents[1] / "vfio", ioctl)
    bar = card.bar(0)
    assert bar.size == PAGE and bar.read(REGISTERS["IDENTITY"]) == IDENTITY
    with pytest.raises(ValueError, match="no BAR 1 of memory"):
        card.bar(1)
    bar.close()
    configuration = function / "resource0"
    assert configuration.read_bytes()[PAGE + 4] == 2, "memory space"
    card.enable(master=True)
    assert configuration.read_bytes()[PAGE + 4] == 6, "memory space, bus master"
    card.close()
    assert asked == [0x3B64, 0x3B65, 0x3B67, 0x3B68, 0x3B66, 0x3B6A, *[0x3B6C] * 4]


@pytest.mark.parametrize("count", [0, 1])
def test_interrupts_of_a_function(function, count):
    """An event by its descriptor, or None for a function without message-signalled interrupts."""
    calls, _ = vfio_calls(function)
    events = []

    def ioctl(file, request, argument=0):
        if request == vfio.IRQ_INFO:
            assert vfio.IRQ.unpack(argument)[::2] == (16, 1)
            argument[:] = vfio.IRQ.pack(16, 0, 1, count)
        if request == vfio.SET_IRQS:
            assert vfio.IRQ_EVENT.unpack(argument)[:5] == (24, 0b100100, 1, 0, 1)
            events.append(vfio.IRQ_EVENT.unpack(argument)[5])
        return calls(file, request, argument)

    card = VfioFunction(function, function.parents[1] / "vfio", ioctl)
    event = card.interrupt()
    assert events == [event] * count and (event is not None) == bool(count)
    if count:
        os.eventfd_write(event, 3)
        assert os.eventfd_read(event) == 3
        with pytest.raises(BlockingIOError):
            os.eventfd_read(event)
    card.close()


def test_functions_that_vfio_cannot_use(function):
    ioctl, _ = vfio_calls(function, viable=0)
    devices = function.parents[1] / "vfio"
    with pytest.raises(ValueError, match="have other drivers: bind them"):
        VfioFunction(function, devices, ioctl)
    (devices / "17").unlink()
    with pytest.raises(ValueError, match="not bound to vfio-pci: `modprobe vfio-pci`"):
        VfioFunction(function, devices, ioctl)
    (function / "iommu_group").unlink()
    with pytest.raises(ValueError, match="in no IOMMU group: turn the IOMMU on"):
        VfioFunction(function, devices, ioctl)


@pytest.mark.parametrize("call, answer", [(vfio.GET_API_VERSION, 1), (vfio.CHECK_EXTENSION, 0)])
def test_a_kernel_whose_vfio_is_another(function, call, answer):
    ioctl, _ = vfio_calls(function)

    def other(file, request, argument=0):
        return answer if request == call else ioctl(file, request, argument)
    with pytest.raises(ValueError, match="VFIO has no IOMMU of type 1"):
        VfioFunction(function, function.parents[1] / "vfio", other)


@pytest.mark.parametrize("name, number, advice", [
    ("vfio", errno.EACCES, "chown .*/vfio/vfio"), ("17", errno.EPERM, "chown .*/vfio/17"),
    ("17", errno.EBUSY, "another process uses the function, `fuser -v .*/17`"),
    ("vfio", errno.ENODEV, "modprobe vfio-pci"), ("17", errno.EIO, "dmesg")])
def test_devices_of_vfio_that_cannot_be_opened(function, monkeypatch, name, number, advice):
    real = os.open

    def refuse(path, flags):
        if str(path).endswith(f"vfio/{name}"):
            raise OSError(number, os.strerror(number))
        return real(path, flags)
    monkeypatch.setattr(vfio.os, "open", refuse)
    with pytest.raises(ValueError, match=rf"{name} cannot be opened \({os.strerror(number)}\): "
                                         rf".*{advice}"):
        VfioFunction(function, function.parents[1] / "vfio", vfio_calls(function)[0])


@pytest.mark.parametrize("call, number, advice", [
    (vfio.SET_IOMMU, errno.EPERM, "allow_unsafe_interrupts"),
    (vfio.GROUP_SET_CONTAINER, errno.EBUSY, "another process uses the IOMMU group"),
    (vfio.GROUP_DEVICE, errno.ENODEV, "bind it to vfio-pci again"),
    (vfio.GROUP_DEVICE, errno.EINVAL, f"set-override {ADDRESS} vfio-pci")])
def test_functions_that_vfio_does_not_give(function, call, number, advice):
    ioctl, _ = vfio_calls(function)

    def refuse(file, request, argument=0):
        if request == call:
            raise OSError(number, os.strerror(number))
        return ioctl(file, request, argument)
    with pytest.raises(ValueError, match=f"does not give {ADDRESS}.*{advice}"):
        VfioFunction(function, function.parents[1] / "vfio", refuse)


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


@pytest.mark.parametrize("width, low, high", [(32, 1 << 24, 0xFEE0_0000), (64, 1 << 32, 1 << 39)])
def test_addresses_in_the_iommu(width, low, high):
    iommu = Iommu()
    memory = VfioMemory(5, width, iommu)
    whole = np.zeros(5 * PAGE, np.uint8)
    pieces = [whole[1:], whole[:3], whole[PAGE - 1:PAGE + 2], whole]
    addresses = [memory.attach(piece, writable=number % 2) for number, piece in enumerate(pieces)]
    for piece, address in zip(pieces, addresses, strict=True):
        assert address % PAGE == piece.ctypes.data % PAGE and low <= address < high
        [(host, size, _)] = [each for first, each in iommu.mapped.items()
                                 if first <= address < first + each[1]]
        assert host <= piece.ctypes.data
        assert piece.ctypes.data + piece.size <= host + size <= (
            piece.ctypes.data + piece.size + PAGE)
    assert [flags for _, _, flags in iommu.mapped.values()] == [1, 3, 1, 3]
    for address in addresses:
        memory.detach(address)
    assert not iommu.mapped


@pytest.mark.parametrize("number, advice", [
    (errno.ENOMEM, "raise the limit of locked memory, `ulimit -l`"),
    (errno.ENOSPC, "register one larger array.*dma_entry_limit"),
    (errno.EFAULT, "cannot be locked.*hotrow.empty"), (errno.EEXIST, "open the device again"),
    (errno.EIO, "dmesg")])
def test_memory_that_the_system_does_not_map(number, advice):
    iommu = Iommu()
    iommu.limit, iommu.refusal = 2 * PAGE, number
    memory = VfioMemory(5, 64, iommu)
    reason = rf"does not map .* \({os.strerror(number)}\): .*{advice}"
    with pytest.raises(MemoryError, match=reason):
        memory.attach(np.zeros(8 * PAGE, np.uint8), True)
    memory.detach(memory.attach(np.zeros(PAGE - 64, np.uint8), True))


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


def test_closed_twice():
    card = Model(preset("tiny"))
    transport = PcieTransport(Registers(card), partial(VfioMemory, 5, ioctl=Iommu(card)))
    transport.close()
    transport.close()
    with pytest.raises(TransportError, match="'pcie' has been closed"):
        transport.read_register(0)
