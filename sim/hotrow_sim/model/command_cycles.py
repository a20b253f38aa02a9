"""How long a command would take on the hardware: the models of ``hotrow_sim.cycles``, added up.

Batches and lists are taken by their counts, not lookup by lookup, so that a model of the card
costs no more time than its function.
"""

from math import ceil, sqrt

import numpy as np
from hotrow_rtl.config import log2
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

from ..cycles import arithmetic as pooling
from ..cycles import counters, directory
from ..cycles.lookup_engine import CLOSED, batch_command_cycles, list_command_cycles
from ..cycles.mover import ADDED, EXCHANGED, FILLED

LATENCY = 200  # cycles of the memory: request to first word, and last write to its answer
CHECKED = 6  # a command's way through check and control, besides its tables and operands
ENGAGED = 38  # to an engine, part by part, and back
SUMMED = 18  # of a jagged batch, besides the words of its lengths
OPERAND = 7  # one address operand
PORTS = 10  # of a list and its slots: to memory and back
MOVED = 27  # a GATHER or SCATTER, besides the memory and its copies
HELD_UP = 0.27  # times the root of a port's reads: reads that several ports lack on average


def command_cycles(config, command, outcome, counts):
    """Cycles from taking up a command to its outcome.

    Parameters
    ----------
    config : Config
    command : dict of str to int
    outcome : Outcome
    counts : uint32[sets, ways]
        Of the access counters when the command ended.
    """
    opcode, count, flags = command["opcode"], command["count"], command["flags"]
    served = outcome.lookups or outcome.entries or outcome.status == Status.OK
    if not served or opcode in (Opcode.NOP, Opcode.FENCE, Opcode.WAIT, Opcode.SIGNAL):
        return CHECKED
    taken = CHECKED + ENGAGED
    if opcode in (Opcode.OBSERVE, Opcode.SPLIT, Opcode.PLAN, Opcode.MARK):
        return taken + _batch_cycles(config, command, outcome)
    if opcode == Opcode.DECAY:
        if flags & AllFlag.ALL:
            return taken + counters.clear_cycles(config)
        return taken + counters.decay_cycles(config, command["shift"])
    if opcode == Opcode.HARVEST:
        scans = counters.harvest_cycles(config, counts, count, command["threshold"])
        return taken + OPERAND + scans + LATENCY + CLOSED
    if opcode == Opcode.REMOVE and flags & AllFlag.ALL:
        return taken + directory.clear_cycles(config)
    if opcode in (Opcode.GATHER, Opcode.SCATTER):
        return taken + 2 * OPERAND + _move_cycles(config, command, outcome)
    if opcode == Opcode.POOL:
        return taken + 4 * OPERAND + _pool_cycles(config, command, outcome)
    if opcode == Opcode.UPDATE:
        return taken + 3 * OPERAND + _update_cycles(config, command, outcome)
    if opcode in (Opcode.COPY, Opcode.FILL):
        return taken + 2 * OPERAND + _span_cycles(config, outcome, opcode == Opcode.FILL)
    edited = outcome.entries + outcome.refused + outcome.misses
    return taken + 2 * OPERAND + PORTS + list_command_cycles(np.arange(count) < edited, LATENCY)


def _batch_cycles(config, command, outcome):
    start = command["table_count"] + 2 * OPERAND
    if command["flags"] & BatchFlag.JAGGED:
        bags = command["samples"] * command["table_count"]
        readings = 2 if bags > config.stored_lengths else 1
        start += SUMMED + LATENCY + readings * (2 * bags // config.bus_bytes)
    written = {Opcode.SPLIT: 4, Opcode.PLAN: 5}.get(command["opcode"], 0)  # lists
    start += written * OPERAND
    per_word = config.lanes // (2 if command["flags"] & BatchFlag.ID64 else 1)
    beats = -(-command["count"] // per_word)
    listed = command["samples"] if command["opcode"] == Opcode.SPLIT else 0
    return start + batch_command_cycles(
        config, beats, listed, _result_words(config, command, outcome), bool(written), LATENCY)


def _result_words(config, command, outcome):
    """Of a SPLIT or PLAN, over the port that carries the most, as ``hotrow_rtl.top`` shares them
    out."""
    slots = 4 * command["count"]
    if command["opcode"] == Opcode.PLAN:
        fetched, left = outcome.entries, outcome.evictions
        rows, numbers = (ROW_ENTRY_BYTES * fetched, ROW_ENTRY_BYTES * left), 4 * max(fetched, left)
        others = sum(rows) + 4 * (fetched + left)
        most = (slots + others, max(slots, others), max(slots, *rows, numbers))
    else:
        samples, misses = 4 * command["samples"], ROW_ENTRY_BYTES * outcome.unique
        most = (slots + misses + samples, max(slots, misses + samples),
                max(slots, misses // 2, samples))
    return -(-most[log2(config.result_ports)] // config.bus_bytes)


def _move_cycles(config, command, outcome):
    """The steady state of ``cycles.row_mover`` for all copies alike, filled and drained.

    With STATE every row counts as having one; row ports share the copies equally.
    """
    lists = 2 if command["flags"] & GatherFlag.LISTED else 1
    idle = MOVED + 3 * LATENCY + lists
    if config.row_ports > 1:
        idle += EXCHANGED + ADDED + 2 * config.row_ports
    if not outcome.entries:
        return idle + command["count"] // config.row_ports
    copies = outcome.entries * (2 if command["flags"] & GatherFlag.STATE else 1)
    return idle + _steady_cycles(config, copies, outcome.bytes, LATENCY)


def _pool_cycles(config, command, outcome):
    """The steady state of ``cycles.pooling`` for bags all alike, of fp32, filled and drained."""
    idle = MOVED + 3 * LATENCY + pooling.ENDED + pooling.LEAVES
    if not outcome.entries:
        return idle + command["count"]
    elements, length = outcome.bytes // outcome.entries // 4, command["count"] / command["bags"]
    beats = pooling.beats_per_row(config, elements)
    joined = min(ceil(length), pooling.partial_count(elements))
    bag = max(length * _read_cycles(config, beats), pooling.adder_turns(joined) * beats)
    if command["flags"] & PoolFlag.MEAN and length > 1:
        bag = max(bag, beats * pooling.DIVIDED)
    return int(idle + command["bags"] * bag)


def _update_cycles(config, command, outcome):
    """The same, of rows with as many gradients each."""
    adagrad = bool(command["flags"] & UpdateFlag.ADAGRAD)
    idle = MOVED + 3 * LATENCY + pooling.SUMMED + pooling.APPLIED + adagrad * pooling.SQUARED
    if not outcome.entries:
        return idle + command["count"]
    elements = (outcome.bytes // outcome.entries - 4 * adagrad) // 4
    beats, each = pooling.beats_per_row(config, elements), command["gradient_count"] / command[
        "count"]
    row = max((each + 1) * _read_cycles(config, beats) + adagrad,
              (each - 1) * max(pooling.PLAIN, beats) + beats,
              (beats + LATENCY + 2) / max(8, config.outstanding))
    if adagrad:
        row = max(row, pooling.SCALAR, elements // (config.lanes // 4))
    return int(idle + command["count"] * row)


def _read_cycles(config, beats):
    """Of a row that goes to the arithmetic, which takes a word a cycle from all ports together.

    Rows are asked for in the order of the list: one whose port is full holds up the others.
    """
    reads = config.outstanding * config.row_ports
    if config.row_ports > 1:
        reads *= 1 - HELD_UP / sqrt(config.outstanding)
    return max(beats, (LATENCY + beats + 5) / reads)


def _span_cycles(config, outcome, fills):
    """The same of a COPY or FILL, which have no list."""
    read = FILLED if fills else LATENCY
    return MOVED + read + LATENCY + _steady_cycles(config, outcome.entries, outcome.bytes, read)


def _steady_cycles(config, copies, octets, read_latency):
    if not copies:
        return 0
    words = -(-octets // (copies * config.bus_bytes))
    writes = max(8, config.outstanding)
    each = max(words, (read_latency + words + 5) / config.outstanding,
               (words + LATENCY + 2) / writes)
    return int(copies * each / config.row_ports)
