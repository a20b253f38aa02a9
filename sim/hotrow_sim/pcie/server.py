"""A simulated card as a PCI function on a socket, by the vfio-user protocol."""

import errno
import json
import mmap
import os
import select
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path

import numpy as np
from hotrow_rtl.contract.encoding import QUEUES
from hotrow_rtl.contract.registers import REGISTERS

from . import messages
from .card import PcieCard
from .configuration import BAR_BYTES, SIZE, Configuration
from .messages import Command, Flag, Message, unpacked

_SLICE = 4096  # cycles between two looks at the socket
_POSTED = 64  # cycles in which a write reaches a register
_REGISTER = 4  # bytes
_LONGEST_PATH = 107  # bytes, on Linux
_COUNTS = [tuple(REGISTERS[f"{queue.upper()}_{name}"].offset for name in ("TAIL", "COMPLETED"))
           for queue in QUEUES]
_SIZES = {messages.BAR: BAR_BYTES, messages.CONFIGURATION: SIZE}


class CardServer:
    """Serve a card to one client after another.

    The clock runs while commands are under way. Memory that the client shares by a file is
    accessed in place, other memory by messages. When a client goes, its memory is out of the
    card's reach and the card is reset.

    Parameters
    ----------
    card : PcieCard
    path : Path
        Of the socket, which is removed by `close`.

    Raises
    ------
    ValueError
        See `free_socket`.
    """

    def __init__(self, card: PcieCard, path: Path):
        self._card, self._path = card, path
        free_socket(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._forget()

    def serve(self) -> None:
        """Serve clients until `close`."""
        while True:
            try:
                self._line, _ = self._listener.accept()
            except OSError:  # closed
                return
            with self._line:
                try:
                    self._converse()
                except (EOFError, ConnectionError):
                    pass
                finally:
                    self._leave()

    def close(self) -> None:
        """End `serve`, also in another thread, when the client has gone."""
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _forget(self):
        self._line, self._inbox, self._number, self._lost = None, deque(), 0, None
        self._configuration, self._event, self._seen = Configuration(), None, 0
        self._mapped = {}  # by address: (bytes, file in memory or None)

    def _leave(self):
        self._set_event(None)
        for address in self._mapped:
            self._card.unmap(address)
        for message in self._inbox:
            _close(message.files)
        self._forget()
        self._card.master(False)
        self._card.reset()

    def _converse(self):
        while True:
            while not self._inbox:
                busy = self._busy()
                self._run(_SLICE if busy else _POSTED)
                if self._inbox:  # a message that came among the replies to the card
                    break
                if select.select([self._line], [], [], 0 if busy else None)[0]:
                    self._inbox.append(messages.receive(self._line))
            self._answer(self._inbox.popleft())

    def _busy(self):
        return any(self._card.read_register(tail) != self._card.read_register(completed)
                   for tail, completed in _COUNTS)

    def _run(self, cycles):
        self._card.run(cycles)
        if self._lost:
            raise self._lost
        if self._card.interrupts != self._seen:
            self._seen = self._card.interrupts
            self._trigger()

    def _answer(self, message: Message):
        kept = []
        try:
            payload, error = self._execute(message, kept), 0
        except OSError as refused:
            payload, error = b"", refused.errno or errno.EINVAL
        finally:
            _close(file for file in message.files if file not in kept)
        if not message.flags & Flag.NO_REPLY:
            messages.send(self._line, message.number, message.command, payload,
                          Flag.REPLY | (Flag.ERROR if error else 0), error)

    def _execute(self, message, kept):
        """The payload of the answer; `kept` receives the files that stay open."""
        match message.command:
            case Command.VERSION:
                return self._version(message.payload)
            case Command.GET_INFO:
                return messages.INFO.pack(
                    messages.INFO.size, messages.RESETS | messages.IS_PCI, messages.REGIONS,
                    messages.INTERRUPTS)
            case Command.GET_REGION_INFO:
                return self._region_info(message.payload)
            case Command.GET_IRQ_INFO:
                return self._irq_info(message.payload)
            case Command.SET_IRQS:
                return self._set_irqs(message, kept)
            case Command.REGION_READ:
                return self._read(message.payload)
            case Command.REGION_WRITE:
                return self._write(message.payload)
            case Command.DMA_MAP:
                return self._map(message)
            case Command.DMA_UNMAP:
                return self._unmap(message.payload)
            case Command.RESET:
                self._configuration = Configuration()
                self._card.master(False)
                self._card.reset()
                self._seen = 0
                return b""
        raise OSError(errno.ENOTSUP, "an unknown command")

    def _version(self, payload):
        (major, _minor), _capabilities = unpacked(messages.VERSION, payload)
        if major != messages.MAJOR:
            raise OSError(errno.EINVAL, "another major version")
        capabilities = {"capabilities": {"max_msg_fds": messages.MOST_FILES,
                                         "max_data_xfer_size": messages.MOST_BYTES}}
        return messages.VERSION.pack(messages.MAJOR, messages.MINOR) + json.dumps(
            capabilities).encode() + b"\0"

    def _region_info(self, payload):
        (_, _, index, *_), _rest = unpacked(messages.REGION_INFO, payload)
        if index >= messages.REGIONS:
            raise OSError(errno.EINVAL, "no such region")
        size = _SIZES.get(index, 0)
        flags = messages.READABLE | messages.WRITABLE if size else 0
        return messages.REGION_INFO.pack(messages.REGION_INFO.size, flags, index, 0, size, 0)

    def _irq_info(self, payload):
        (_, _, index, _), _rest = unpacked(messages.IRQ_INFO, payload)
        if index >= messages.INTERRUPTS:
            raise OSError(errno.EINVAL, "no such interrupt")
        flags, count = (messages.EVENTFD | messages.NOT_RESIZED, 1) if index == messages.MSI else (
            0, 0)
        return messages.IRQ_INFO.pack(messages.IRQ_INFO.size, flags, index, count)

    def _set_irqs(self, message, kept):
        (_, flags, index, start, count), _rest = unpacked(messages.IRQ_SET, message.payload)
        if index != messages.MSI or start or count > 1 or not flags & messages.ACTION_TRIGGER:
            raise OSError(errno.EINVAL, "only one message-signalled interrupt is triggered")
        if flags & messages.DATA_EVENTFD and message.files:
            kept.append(message.files[0])
            self._set_event(message.files[0])
        elif flags & messages.DATA_NONE and count:
            self._trigger()
        else:
            self._set_event(None)
        return b""

    def _set_event(self, file):
        if self._event is not None:
            os.close(self._event)
        self._event = file
        if file is not None:
            os.set_blocking(file, False)

    def _trigger(self):
        """Trigger the client's event; another file, or a full one, is left as it is."""
        if self._event is not None:
            with suppress(OSError):
                os.eventfd_write(self._event, 1)

    def _read(self, payload):
        (offset, region, count), _rest = unpacked(messages.ACCESS, payload)
        _check_access(offset, region, count)
        if region == messages.CONFIGURATION:
            found = self._configuration.read(offset, count)
        else:
            first = offset - offset % _REGISTER
            words = b"".join(self._card.read_register(at).to_bytes(_REGISTER, "little")
                             for at in range(first, offset + count, _REGISTER))
            found = words[offset - first:offset - first + count]
        return messages.ACCESS.pack(offset, region, count) + found

    def _write(self, payload):
        (offset, region, count), octets = unpacked(messages.ACCESS, payload)
        _check_access(offset, region, count)
        if len(octets) != count:
            raise OSError(errno.EINVAL, "other bytes than announced")
        if region == messages.CONFIGURATION:
            self._configuration.write(offset, octets)
            self._card.master(self._configuration.masters)
        else:
            if offset % _REGISTER or count % _REGISTER:
                raise OSError(errno.EINVAL, "a part of a register")
            for at in range(0, count, _REGISTER):
                self._card.write_register(
                    offset + at, int.from_bytes(octets[at:at + _REGISTER], "little"))
            self._run(_POSTED)
        return messages.ACCESS.pack(offset, region, count)

    def _map(self, message):
        (_, flags, offset, address, size), _rest = unpacked(messages.MAP, message.payload)
        if not size:
            raise OSError(errno.EINVAL, "an empty range")
        memory, writable = None, bool(flags & messages.WRITABLE)
        if message.files:
            try:
                memory = mmap.mmap(message.files[0], size, offset=offset, prot=mmap.PROT_READ | (
                    mmap.PROT_WRITE if writable else 0))
            except (ValueError, OverflowError) as wrong:
                raise OSError(errno.EINVAL, str(wrong)) from wrong
            mapped = self._card.map(
                address, np.frombuffer(memory, np.uint8).ctypes.data, size, writable)
        else:
            mapped = self._card.map_remote(
                address, size, self._load, self._store, writable)
        if not mapped:
            raise OSError(errno.EEXIST, "the range wraps, or overlaps another")
        self._mapped[address] = size, memory
        return b""

    def _unmap(self, payload):
        (_, flags, address, size), _rest = unpacked(messages.UNMAP, payload)
        found = list(self._mapped) if flags & messages.UNMAP_ALL else [address]
        if not flags & messages.UNMAP_ALL and self._mapped.get(address, (None,))[0] != size:
            raise OSError(errno.EINVAL, "no such range")
        for each in found:
            self._card.unmap(each)
            del self._mapped[each]
        return messages.UNMAP.pack(messages.UNMAP.size, flags, address, size)

    def _load(self, address, count):
        """Bytes of the client's memory, or None."""
        reply = self._ask(Command.DMA_READ, messages.DMA.pack(address, count))
        octets = reply.payload[messages.DMA.size:] if reply else b""
        return octets if len(octets) == count else None

    def _store(self, address, octets):
        """Write the client's memory; return whether it could be written."""
        return self._ask(Command.DMA_WRITE,
                         messages.DMA.pack(address, len(octets)) + octets) is not None

    def _ask(self, command, payload):
        """The client's reply to a request of the card, or None; other messages wait."""
        self._number = self._number + 1 & 0xFFFF
        try:
            messages.send(self._line, self._number, command, payload)
            while True:
                message = messages.receive(self._line)
                if message.flags & messages.TYPE != Flag.REPLY:
                    self._inbox.append(message)
                elif message.number == self._number:
                    return None if message.flags & Flag.ERROR else message
        except (EOFError, OSError) as lost:  # inside the card's clock: raised after it
            self._lost = lost if isinstance(lost, ConnectionError) else ConnectionError(str(lost))
            return None


def _check_access(offset, region, count):
    size = _SIZES.get(region, 0)
    if count > messages.MOST_BYTES or offset + count > size:
        raise OSError(errno.EINVAL, f"region {region} has {size} bytes")


def _close(files):
    for file in files:
        os.close(file)


def free_socket(path: Path) -> None:
    """Remove the socket of a server that has ended.

    Raises
    ------
    ValueError
        If a server uses it, the path is something else, or no socket can be there.
    """
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is no folder: --socket needs a path in one")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ValueError(f"{path} is too long for a socket, whose path has at most "
                         f"{_LONGEST_PATH} bytes: name a shorter one")
    if not path.is_socket():
        if path.exists():
            raise ValueError(f"{path} exists and is no socket: name another path")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise ValueError(f"another process serves {path}: end it, or name another path")
