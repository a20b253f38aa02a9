"""Golden model of the region check, and the descriptors that the host registers."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import OFFSET_WIDTH, Status


@dataclass(frozen=True)
class Region:
    """A registered buffer: `size` bytes from byte address `base`."""

    base: int
    size: int
    writable: bool


@dataclass(frozen=True)
class Table:
    """A table descriptor. Sizes are in bytes, `weights` and `state` are packed addresses, `type`
    is an `Element`."""

    last_row: int
    weights: int
    row_bytes: int
    stride: int
    state: int = 0
    state_bytes: int = 0
    parts_log2: int = 0
    part: int = 0
    type: int = 0


def unpack_address(address):
    """(handle, offset) of a packed address."""
    return address >> OFFSET_WIDTH, address & (1 << OFFSET_WIDTH) - 1


def check(region, offset, size, write=False):
    """Check accesses to one region.

    Parameters
    ----------
    region : Region or None
        None if the handle is not registered.
    offset : uint64[n] or int
        First byte of each access in the region, below 2**63.
    size : int
        Bytes of each access, below 2**63.
    write : bool

    Returns
    -------
    uint8[n] or uint8
        OK, REGION or READ_ONLY.
    """
    offset = np.asarray(offset, np.uint64)
    if region is None:
        return np.full(offset.shape, Status.REGION, np.uint8)[()]
    allowed = Status.READ_ONLY if write and not region.writable else Status.OK
    beyond = offset + np.uint64(size) > np.uint64(region.size)
    return np.where(beyond, np.uint8(Status.REGION), np.uint8(allowed))


def check_operand(regions, address, size, write=False):
    """Check one packed address against the registered regions.

    Parameters
    ----------
    regions : dict of int to Region
        By handle.
    address : int
        Packed.
    size : int
        Bytes.
    write : bool

    Returns
    -------
    status : Status
        OK, REGION or READ_ONLY.
    byte_address : int
        Undefined if the access is refused.
    """
    handle, offset = unpack_address(address)
    region = regions.get(handle)
    status = Status(int(check(region, offset, size, write)))
    return status, (region.base if region else 0) + offset
