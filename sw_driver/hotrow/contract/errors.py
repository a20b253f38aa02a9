"""Errors of the driver, each kind with the facts on which a program may act."""

import builtins
from typing import Any

from .generated import Opcode, Status


class Error(Exception):
    """Base of the errors that the driver raises on purpose."""


class IntegerError(Error, TypeError):
    """What is no whole number, where one is expected."""


class FileError(Error, OSError):
    """A file that the system did not write; what it was before stays."""


class TransportError(Error):
    """A transport that does not exist, cannot be opened, or fails while it is in use."""


class DeviceError(Error):
    """The card is not what the driver expects, or one of its queues has stopped."""


class RegistrationError(Error):
    """A buffer or table that cannot be registered, or that changed since it was registered."""


class HostWriteError(RegistrationError):
    """The host wrote to memory that is on the card.

    Attributes
    ----------
    address : int
        Where the card has the memory.
    first, end : int
        Bytes of the buffer that `address` is part of.
    both : bool
        Whether the card wrote to them, too.
    """

    def __init__(self, address: int, first: int, end: int, both: bool = False,
                 where: str = "an array"):
        self.address, self.first, self.end, self.both = address, first, end, both
        written = "and the card both wrote" if both else "wrote"
        advice = ("restore what flush() last fetched" if both else
                  "call upload() after such a write, before the next command")
        super().__init__(f"the host {written} to bytes {first} to {end - 1} of {where}, which is "
                         f"on the card: {advice}")


class BatchError(Error):
    """A batch or list of rows that the device cannot serve.

    Attributes
    ----------
    position : int or None
        Place of the offending id in the flat order of the batch or list.
    table, row, sample, column : int or None
        Where that id points, and its place in the batch. A list has no sample and no column.
    plan : hotrow.Plan or None
        The plan that the card made of the other ids.
    """

    plan: Any = None

    def __init__(self, message: str, *, position: int | None = None, table: int | None = None,
                 row: int | None = None, sample: int | None = None, column: int | None = None):
        super().__init__(message)
        self.position, self.table, self.row = position, table, row
        self.sample, self.column = sample, column


class CommandError(Error):
    """A command that completed with an error.

    Attributes
    ----------
    opcode : Opcode
    status : Status
    index, address : int
        Fields of the completion; their meaning depends on the status.
    """

    def __init__(self, message: str, *, opcode: Opcode, status: Status, index: int,
                 address: int):
        super().__init__(message)
        self.opcode, self.status, self.index, self.address = opcode, status, index, address


class TimeoutError(Error, builtins.TimeoutError):
    """The device did not finish within the time limit; the command may still be under way."""


class PaddedCopyWarning(UserWarning):
    """The driver copied a table's rows to a padded array, which the device can carry."""
