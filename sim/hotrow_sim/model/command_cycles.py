"""Cycles of a command on the hardware, composed of the models of ``hotrow_sim.cycles``.

The models use the counts of a batch or list, not its lookups, so that they cost little time.
"""

from math import ceil, sqrt

import numpy as np
from hotrow_rtl.config import Config, log2
from hotrow_rtl.contract.encoding import (
    ROW_ENTRY_BYTES,
    AllFlag,
    BatchFlag,
    GatherFlag,
    Opcode,
    PoolFlag,
    Status,
    UpdateFlag,
)
from hotrow_rtl.lookup.combiner.pipeline_depth import latency as combiner_latency

from ..cycles import arithmetic, counters, directory
from ..cycles.directory import list_cycles
from ..cycles.mover import ADDED, EXCHANGED, FILLED
from ..golden.command_validator import bag_count

LATENCY = 200  # of memory: from a request to its first word, and from the last word to its response
CHECKED = 6  # check and control of a command, without its tables and operands
ENGAGED = 38  # transfer of the command to an engine and of the outcome back
SUMMED = 18  # sum of the lengths of a jagged batch, without their bus words
OPERAND = 7  # one address operand
PORTS = 10  # list port and result port of a list command
MOVED = 27  # a GATHER or SCATTER, without memory latency and copies
PORT_IMBALANCE = 0.27  # with several ports: share of idle reads, times the root of a port's reads
STARTED = 14  # from the command to the first beat of its batch, without the wait for its ids
PREPARED = 6  # least cycles of that wait, plus one per lane
COUNTED = 26  # from the last combined beat of a batch through both crossbars to its statistics
PIPED = 13  # fewer with one bank: through two pipes, and without stripes
PARTED = 15  # from there to the sample lists, plus a cycle per `lanes` samples
CLOSED = 4  # from the end of the lists to the outcome, without the memory latency
LIST_CLOSED = 17  # from the last slot of a list to the outcome, without the memory latency


def batch_command_cycles(config: Config, beats, samples, words, writes, latency):
    """A batch command: STARTED + max(PREPARED + `lanes`, `latency`) + work + COUNTED + the latency
    of the combiner; if it writes results, PARTED + `latency` + CLOSED too.

    The work is one beat per cycle; for a SPLIT also `lanes` samples per cycle after the beats; or
    one word of results per cycle, if there are more words.

    Parameters
    ----------
    beats, samples : int
        Of the batch.
    words : int
        Result words on the busiest port.
    writes : bool
        The command writes results.
    latency : int
        Cycles from a request to the first word, and from the last word to its response.
    """
    started = STARTED + max(PREPARED + config.lanes, latency)
    counted = COUNTED - PIPED * (config.banks == 1) + combiner_latency(config)
    if not writes:
        return started + beats + counted
    work = max(beats - (-samples // config.lanes), words)
    return started + work + counted + PARTED + latency + CLOSED


def list_command_cycles(config: Config, valid, latency):
    """An INSTALL or REMOVE: `list_cycles` + `latency` + LIST_CLOSED."""
    banks = [0] * len(valid) if config.banks == 1 else None
    return list_cycles(valid, latency + 1, banks) + latency + LIST_CLOSED


def command_cycles(config, command, outcome, counts):
    """Cycles from the start of a command to its outcome.

    Parameters
    ----------
    config : Config
    command : dict of str to int
    outcome : Outcome
    counts : uint32[sets, ways]
        State of the access counters after the command.
    """
    served = outcome.lookups or outcome.entries or outcome.status == Status.OK
    if not served or command["opcode"] not in _ENGINES:
        return CHECKED
    operands, cycles = _ENGINES[command["opcode"]]
    if command["flags"] & AllFlag.ALL and command["opcode"] in (Opcode.DECAY, Opcode.REMOVE):
        operands = 0
    return CHECKED + ENGAGED + operands * OPERAND + cycles(config, command, outcome, counts)


def _batch_cycles(config, command, outcome, counts):
    start = command["table_count"]
    if command["flags"] & BatchFlag.JAGGED:
        bags = command["samples"] * command["table_count"]
        readings = 2 if bags > config.stored_lengths else 1
        start += SUMMED + LATENCY + readings * (2 * bags // config.bus_bytes)
    written = command["opcode"] in (Opcode.SPLIT, Opcode.PLAN)
    per_beat = max(1, config.lanes // (2 if command["flags"] & BatchFlag.ID64 else 1))
    beats = -(-command["count"] // per_beat)
    listed = command["samples"] if command["opcode"] == Opcode.SPLIT else 0
    return start + batch_command_cycles(
        config, beats, listed, _result_words(config, command, outcome), written, LATENCY)


def _result_words(config, command, outcome):
    """Bus words of a SPLIT or PLAN on the busiest result port, distributed as in
    ``hotrow_rtl.top``."""
    slots = 4 * command["count"]
    if command["opcode"] == Opcode.PLAN:
        fetched, evicted = outcome.entries, outcome.evictions
        rows, numbers = ROW_ENTRY_BYTES * (fetched + evicted), 4 * (fetched + evicted)
        most = (slots + rows + numbers, max(rows, slots + numbers),
                max(slots, ROW_ENTRY_BYTES * max(fetched, evicted), numbers))
    else:
        samples, misses = 4 * command["samples"], ROW_ENTRY_BYTES * outcome.unique
        most = (slots + misses + samples, max(misses, slots + samples),
                max(slots, misses // 2, samples))
    return -(-most[log2(config.result_ports)] // config.bus_bytes)


def _list_cycles(config, command, outcome, counts):
    """INSTALL or REMOVE."""
    if command["opcode"] == Opcode.REMOVE and command["flags"] & AllFlag.ALL:
        return directory.clear_cycles(config)
    edited = outcome.entries + outcome.refused + outcome.misses
    return PORTS + list_command_cycles(config, np.arange(command["count"]) < edited, LATENCY)


def _decay_cycles(config, command, outcome, counts):
    if command["flags"] & AllFlag.ALL:
        return counters.clear_cycles(config)
    return counters.decay_cycles(config, command["shift"])


def _harvest_cycles(config, command, outcome, counts):
    scans = counters.harvest_cycles(config, counts, command["count"], command["threshold"])
    return scans + LATENCY + CLOSED


def _move_cycles(config, command, outcome, counts):
    """The steady state of ``cycles.mover`` for equal copies, plus pipeline fill and drain.

    With STATE every row counts as one with state; the row ports share the copies equally.
    """
    lists = 2 if command["flags"] & GatherFlag.LISTED else 1
    idle = MOVED + 3 * LATENCY + lists
    if config.row_ports > 1:
        idle += EXCHANGED + ADDED + 2 * config.row_ports
    if not outcome.entries:
        return idle + command["count"] // config.row_ports
    copies = outcome.entries * (2 if command["flags"] & GatherFlag.STATE else 1)
    return idle + _steady_cycles(config, copies, outcome.bytes, LATENCY)


def _span_cycles(config, command, outcome, counts):
    """The steady state of ``cycles.mover`` for a COPY or FILL, which have no list."""
    read = FILLED if command["opcode"] == Opcode.FILL else LATENCY
    return MOVED + read + LATENCY + _steady_cycles(config, outcome.entries, outcome.bytes, read)


def _steady_cycles(config, copies, octets, read_latency):
    if not copies:
        return 0
    words = -(-octets // (copies * config.bus_bytes))
    writes = max(8, config.outstanding)
    each = max(words, (read_latency + words + 5) / config.outstanding,
               (words + LATENCY + 2) / writes)
    return int(copies * each / config.row_ports)


def _pool_cycles(config, command, outcome, counts):
    """The steady state of ``cycles.arithmetic`` for equal bags of fp32, plus fill and drain.

    The bag units share the bags equally.
    """
    idle = MOVED + 3 * LATENCY + arithmetic.ENDED + arithmetic.LEAVES
    if not outcome.entries:
        return idle + command["count"]
    bags = bag_count(command)
    elements, length = outcome.bytes // outcome.entries // 4, command["count"] / bags
    beats = arithmetic.beats_per_row(config.units, elements)
    joined = min(ceil(length), arithmetic.partial_count(elements))
    bag = max(length * _read_cycles(config, beats), arithmetic.adder_slots(joined) * beats)
    if command["flags"] & PoolFlag.MEAN and length > 1:
        bag = max(bag, beats * arithmetic.DIVIDED)
    return int(idle + ceil(bags / config.bag_units) * bag)


def _update_cycles(config, command, outcome, counts):
    """The steady state of ``cycles.arithmetic`` for rows with equal numbers of gradients."""
    adagrad = bool(command["flags"] & UpdateFlag.ADAGRAD)
    idle = (MOVED + 3 * LATENCY + arithmetic.ENDED + arithmetic.APPLIED
            + adagrad * arithmetic.SQUARED)
    if not outcome.entries:
        return idle + command["count"]
    elements = (outcome.bytes // outcome.entries - 4 * adagrad) // 4
    beats = arithmetic.beats_per_row(config.units, elements)
    each = command["gradient_count"] / command["count"]
    writers = config.row_ports / config.bag_units if config.bag_units > 1 else 1
    sums = min(ceil(each), arithmetic.partial_count(elements))
    row = max((each + 1) * _read_cycles(config, beats) + adagrad,
              arithmetic.adder_slots(sums) * beats,
              (beats + LATENCY + 2) / (max(8, config.outstanding) * writers))
    if adagrad:
        row = max(row, arithmetic.adagrad_row(config.units, elements))
    return int(idle + ceil(command["count"] / config.bag_units) * row)


def _read_cycles(config, beats):
    """Cycles per row of a bag unit, which accepts one word per cycle from all ports together.

    The mover requests rows in the order of the list, so a full port stalls the others.
    """
    reads = config.outstanding * config.row_ports / config.bag_units
    if config.row_ports > 1:
        reads *= 1 - PORT_IMBALANCE / sqrt(config.outstanding)
    return max(beats, (LATENCY + beats + 5) / reads)
_ENGINES = {  # address operands that the command transfers, and the cycles of its engine
    Opcode.OBSERVE: (2, _batch_cycles), Opcode.MARK: (2, _batch_cycles),
    Opcode.SPLIT: (6, _batch_cycles), Opcode.PLAN: (7, _batch_cycles),
    Opcode.DECAY: (0, _decay_cycles), Opcode.HARVEST: (1, _harvest_cycles),
    Opcode.INSTALL: (2, _list_cycles), Opcode.REMOVE: (2, _list_cycles),
    Opcode.GATHER: (2, _move_cycles), Opcode.SCATTER: (2, _move_cycles),
    Opcode.POOL: (4, _pool_cycles), Opcode.UPDATE: (3, _update_cycles),
    Opcode.COPY: (2, _span_cycles), Opcode.FILL: (2, _span_cycles),
}
