"""Functions and memory by VFIO: what is asked of the system, and what is said where it refuses."""

import errno
import os
import struct

import numpy as np
import pytest
from hotrow.contract.generated import IDENTITY, REGISTERS
from hotrow.transports.pcie import vfio
from hotrow.transports.pcie.vfio import REGION, VfioFunction, VfioMemory

from tests.driver.pcie.cards import ADDRESS, PAGE, Iommu


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
