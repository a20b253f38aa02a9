"""What can go wrong, each kind with the facts a program may want to act on."""

import builtins


class Error(Exception):
    """Base of every error that the driver raises on purpose."""


class TransportError(Error):
    """No such transport, one that cannot be opened, or one that fails underway."""


class DeviceError(Error):
    """The card is not what the driver expects, or one of its queues has stopped."""


class RegistrationError(Error):
    """A buffer or table that cannot be registered, or was changed since it was."""


class BatchError(Error):
    """A batch or list of rows that the device cannot serve.

    Members
    -------
    position : int or None
        Place of the offending id in the flat order of the batch or list.
    table, row, sample, column : int or None
        What that id stands for; sample and column only in a batch.
    plan : Plan or None
        What the card planned all the same.
    """

    plan = None

    def __init__(self, message, *, position=None, table=None, row=None, sample=None, column=None):
        super().__init__(message)
        self.position, self.table, self.row = position, table, row
        self.sample, self.column = sample, column


class CommandError(Error):
    """A command that completed with an error.

    Members
    -------
    opcode : Opcode
    status : Status
    index, address : int
        As in the completion; their meaning depends on the status.
    """

    def __init__(self, message, *, opcode, status, index, address):
        super().__init__(message)
        self.opcode, self.status, self.index, self.address = opcode, status, index, address


class TimeoutError(Error, builtins.TimeoutError):
    """The device did not finish in the time allowed; the command may still be under way."""


class PaddedCopyWarning(UserWarning):
    """A table's rows had to be copied to a padded array before the device can carry them."""
