"""Golden model of the command check: what a queue refuses before a command has any effect."""

from dataclasses import dataclass

from hotrow_rtl.config import LARGEST_STRIDE, LIST_ALIGNMENT, ROW_ALIGNMENT, STATE_ALIGNMENT, Config
from hotrow_rtl.contract.command_rules import ARITHMETIC, CONTRARY, PLANNING, flags_of
from hotrow_rtl.contract.commands import COMMANDS
from hotrow_rtl.contract.encoding import (
    HARVEST_ENTRY_BYTES,
    ROW_ENTRY_BYTES,
    AllFlag,
    BatchFlag,
    GatherFlag,
    Opcode,
    PoolFlag,
    Status,
    UpdateFlag,
)

from .region_check import check_operand

_BATCHES = (Opcode.OBSERVE, Opcode.SPLIT, *PLANNING)
_MOVES = (Opcode.GATHER, Opcode.SCATTER, *ARITHMETIC)
_SPANS = (Opcode.COPY, Opcode.FILL)
_LISTS = (Opcode.INSTALL, Opcode.REMOVE, Opcode.HARVEST, *_MOVES)


@dataclass(frozen=True)
class Refusal:
    """Why a command is refused: what its completion says."""

    status: Status
    error_index: int = 0
    error_address: int = 0


def validate(command, queue, config: Config, regions, tables):
    """Check one command.

    Parameters
    ----------
    command : dict of str to int
        The fields of ``contract.OPERANDS``.
    queue : str
        The queue in which it stands, "lookup" or "move".
    regions : dict of int to Region
    tables : dict of int to Table

    Returns
    -------
    Refusal or dict of str to int
        The first check that fails decides; else the byte address of each list that the command
        reads or writes, by operand name. The addresses of spans stay packed.
    """
    return (_check_opcode(command, queue, config) or _check_shape(command, config)
            or _check_tables(command, config, tables) or _resolve(command, regions))


def lists(command):
    """The lists of a command in memory: (operand, bytes, whether it is written), by offset."""
    opcode, flags, count = command["opcode"], command["flags"], command["count"]
    if opcode in _BATCHES:
        yield "source", count * (8 if flags & BatchFlag.ID64 else 4), False
        if flags & BatchFlag.JAGGED:
            yield "lengths", 2 * command["samples"] * command["table_count"], False
    if opcode == Opcode.SPLIT:
        yield "slots", 4 * count, True
        yield "popular", 4 * command["samples"], True
        yield "nonpopular", 4 * command["samples"], True
        yield "misses", ROW_ENTRY_BYTES * count, True
    if opcode == Opcode.PLAN:
        yield "slots", 4 * count, True
        yield "popular", 4 * count, True
        yield "nonpopular", 4 * count, True
        yield "misses", ROW_ENTRY_BYTES * count, True
        yield "victims", ROW_ENTRY_BYTES * count, True
    if opcode == Opcode.INSTALL or (opcode == Opcode.REMOVE and not flags & AllFlag.ALL):
        yield "source", ROW_ENTRY_BYTES * count, False
        yield "slots", 4 * count, True
    if opcode == Opcode.HARVEST:
        yield "destination", HARVEST_ENTRY_BYTES * count, True
    if opcode in _MOVES:
        yield "source", ROW_ENTRY_BYTES * count, False
    if opcode in (Opcode.GATHER, Opcode.SCATTER) and flags & GatherFlag.LISTED:
        yield "targets", 4 * count, False
    if opcode == Opcode.POOL:
        yield "lengths", 2 * command["bags"], False
        if flags & PoolFlag.LISTED:
            yield "targets", 4 * command["bags"], False
        if flags & PoolFlag.WEIGHTED:
            yield "weights", 4 * count, False
    if opcode == Opcode.UPDATE:
        yield "lengths", 2 * count, False
        if flags & UpdateFlag.LISTED:
            yield "targets", 4 * command["gradient_count"], False


def _spans(command):
    """The bytes that a COPY or FILL touches, as of `lists`; they begin on any 4 bytes."""
    if command["opcode"] == Opcode.COPY:
        yield "source", command["count"], False
    if command["opcode"] in _SPANS:
        yield "destination", command["count"], True


def _check_opcode(command, queue, config):
    opcode, flags = command["opcode"], command["flags"]
    absent = ((opcode in ARITHMETIC and not config.arithmetic)
              or (opcode in PLANNING and not config.planner))
    if absent or opcode not in COMMANDS or COMMANDS[opcode].queue not in ("both", queue):
        return Refusal(Status.BAD_OPCODE, opcode)
    defined = flags_of(COMMANDS[opcode], config)
    contrary = CONTRARY.get(opcode, 0)
    if flags & ~defined or (contrary and flags & contrary == contrary):
        return Refusal(Status.BAD_FLAGS, flags)
    return None


def _check_shape(command, config):
    opcode, flags, count = command["opcode"], command["flags"], command["count"]
    if opcode in (Opcode.WAIT, Opcode.SIGNAL) and command["event"] >= config.events:
        return Refusal(Status.BAD_EVENT, command["event"])
    if opcode in _BATCHES:
        samples, bags = command["samples"], command["samples"] * command["table_count"]
        if not bags or not count:
            return Refusal(Status.EMPTY)
        if samples > config.batch_samples:
            return Refusal(Status.TOO_LARGE, samples)
        if count > config.batch_lookups:
            return Refusal(Status.TOO_LARGE, count)
        if not flags & BatchFlag.JAGGED and count != bags:
            return Refusal(Status.LOOKUPS, bags)
    if opcode in (*_LISTS, *_SPANS) and not count:
        if not (opcode == Opcode.REMOVE and flags & AllFlag.ALL):
            return Refusal(Status.EMPTY)
    if opcode in ARITHMETIC and not command["bags"]:
        return Refusal(Status.EMPTY)
    if opcode in _MOVES:
        stride = command["stride"]
        if not 0 < stride <= LARGEST_STRIDE or stride % ROW_ALIGNMENT:
            return Refusal(Status.MISALIGNED, stride)
    if opcode in _SPANS and count % STATE_ALIGNMENT:
        return Refusal(Status.MISALIGNED, count)
    return None


def _check_tables(command, config, tables):
    if command["opcode"] not in _BATCHES:
        return None
    first = command["first_table"]
    for number in range(first, first + command["table_count"]):
        if number not in tables:
            return Refusal(Status.TABLE_UNKNOWN, number)
    return None


def _resolve(command, regions):
    addresses = {}
    for operands, alignment in ((lists(command), LIST_ALIGNMENT),
                                (_spans(command), STATE_ALIGNMENT)):
        for operand, size, write in operands:
            status, address = check_operand(regions, command[operand], size, write)
            if status is Status.OK and address % alignment:
                status = Status.MISALIGNED
            if status is not Status.OK:
                return Refusal(status, error_address=command[operand])
            if alignment == LIST_ALIGNMENT:
                addresses[operand] = address
    return addresses
