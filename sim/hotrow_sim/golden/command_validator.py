"""Golden model of the command validator: the commands that a queue refuses."""

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

from .outcome import Outcome
from .region_check import check_operand

_BATCHES = (Opcode.OBSERVE, Opcode.SPLIT, *PLANNING)
_MOVES = (Opcode.GATHER, Opcode.SCATTER, *ARITHMETIC)
_SPANS = (Opcode.COPY, Opcode.FILL)
_LISTS = (Opcode.INSTALL, Opcode.REMOVE, Opcode.HARVEST, *_MOVES)


def validate(command, queue, config: Config, regions, tables):
    """Check one command, before it has any effect.

    Parameters
    ----------
    command : dict of str to int
        The fields of ``contract.encoding.OPERANDS``.
    queue : str
        Queue of the command, "lookup" or "move".
    regions : dict of int to Region
    tables : dict of int to Table

    Returns
    -------
    Outcome or dict of str to int
        The outcome of the first check that fails; else the byte address of each list that the
        command reads or writes, by operand name. The addresses of spans stay packed.
    """
    return (_check_opcode(command, queue, config) or _check_shape(command, config)
            or _check_tables(command, config, tables) or _resolve(command, regions))


def lists(command):
    """The lists of a command in memory, by offset: (operand, bytes, whether it is written)."""
    opcode, flags, count = command["opcode"], command["flags"], command["count"]
    rows, words = ROW_ENTRY_BYTES * count, 4 * count
    if opcode in _BATCHES:
        return _batch_lists(command)
    if pools_batch(command):
        rows = words
    if opcode == Opcode.HARVEST:
        return [("destination", HARVEST_ENTRY_BYTES * count, True)]
    if opcode == Opcode.INSTALL or (opcode == Opcode.REMOVE and not flags & AllFlag.ALL):
        return [("source", rows, False), ("slots", words, True)]
    if opcode not in _MOVES:
        return []
    found = [("source", rows, False)]
    if opcode in (Opcode.GATHER, Opcode.SCATTER) and flags & GatherFlag.LISTED:
        found.append(("targets", words, False))
    if opcode == Opcode.POOL:
        found.append(("lengths", 2 * bag_count(command), False))
        if flags & PoolFlag.LISTED:
            found.append(("targets", 4 * bag_count(command), False))
        if flags & PoolFlag.WEIGHTED:
            found.append(("weights", words, False))
    if opcode == Opcode.UPDATE:
        found.append(("lengths", 2 * count, False))
        if flags & UpdateFlag.LISTED:
            found.append(("targets", 4 * command["gradient_count"], False))
    return found


def pools_batch(command):
    """Whether a command is a POOL of the ids of a batch."""
    return command["opcode"] == Opcode.POOL and bool(command["flags"] & PoolFlag.BATCH)


def bag_count(command):
    """Bags of a POOL."""
    return command["bags"] * (command["table_count"] if pools_batch(command) else 1)


def _batch_lists(command):
    opcode, flags, count = command["opcode"], command["flags"], command["count"]
    rows, words, samples = ROW_ENTRY_BYTES * count, 4 * count, 4 * command["samples"]
    found = [("source", count * (8 if flags & BatchFlag.ID64 else 4), False)]
    if flags & BatchFlag.JAGGED:
        found.append(("lengths", 2 * command["samples"] * command["table_count"], False))
    results = {
        Opcode.SPLIT: {"slots": words, "popular": samples, "nonpopular": samples, "misses": rows},
        Opcode.PLAN: {"slots": words, "fill_slots": words, "victim_slots": words, "fills": rows,
                      "victims": rows},
    }.get(opcode, {})
    return found + [(operand, size, True) for operand, size in results.items()]


def _spans(command):
    """The bytes of a COPY or FILL, like `lists`; aligned to 4 bytes."""
    if command["opcode"] == Opcode.COPY:
        yield "source", command["count"], False
    if command["opcode"] in _SPANS:
        yield "destination", command["count"], True


def _check_opcode(command, queue, config):
    opcode, flags = command["opcode"], command["flags"]
    absent = ((opcode in ARITHMETIC and not config.arithmetic)
              or (opcode in PLANNING and not config.planner))
    if absent or opcode not in COMMANDS or COMMANDS[opcode].queue not in ("both", queue):
        return Outcome(Status.BAD_OPCODE, opcode)
    defined = flags_of(COMMANDS[opcode], config)
    contrary = CONTRARY.get(opcode, 0)
    if flags & ~defined or (contrary and flags & contrary == contrary):
        return Outcome(Status.BAD_FLAGS, flags)
    return None


def _check_shape(command, config):
    opcode, flags, count = command["opcode"], command["flags"], command["count"]
    if opcode in (Opcode.WAIT, Opcode.SIGNAL) and command["event"] >= config.events:
        return Outcome(Status.BAD_EVENT, command["event"])
    if opcode in _BATCHES:
        return _check_batch(command, config)
    wrong = _check_batch(command, config) if pools_batch(command) else None
    if wrong:
        return wrong
    whole_directory = opcode == Opcode.REMOVE and flags & AllFlag.ALL
    if opcode in (*_LISTS, *_SPANS) and not count and not whole_directory:
        return Outcome(Status.EMPTY)
    if opcode in ARITHMETIC and not command["bags"]:
        return Outcome(Status.EMPTY)
    if opcode in _MOVES:
        stride = command["stride"]
        if not 0 < stride <= LARGEST_STRIDE or stride % ROW_ALIGNMENT:
            return Outcome(Status.MISALIGNED, stride)
    if opcode in _SPANS and count % STATE_ALIGNMENT:
        return Outcome(Status.MISALIGNED, count)
    return None


def _check_batch(command, config):
    count, samples = command["count"], command["samples"]
    bags = samples * command["table_count"]
    if not bags or not count:
        return Outcome(Status.EMPTY)
    if samples > config.batch_samples:
        return Outcome(Status.TOO_LARGE, samples)
    if count > config.batch_lookups:
        return Outcome(Status.TOO_LARGE, count)
    jagged = command["flags"] & BatchFlag.JAGGED or command["opcode"] == Opcode.POOL
    if not jagged and count != bags:
        return Outcome(Status.LOOKUPS, bags)
    return None


def _check_tables(command, config, tables):
    if command["opcode"] not in _BATCHES and not pools_batch(command):
        return None
    first = command["first_table"]
    for number in range(first, first + command["table_count"]):
        if number not in tables:
            return Outcome(Status.TABLE_UNKNOWN, number)
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
                return Outcome(status, error_address=command[operand])
            if alignment == LIST_ALIGNMENT:
                addresses[operand] = address
    return addresses
