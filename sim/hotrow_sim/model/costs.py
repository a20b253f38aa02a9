"""Cycles that a command takes on the hardware, by formula."""

from hotrow_rtl.contract import BatchFlag, Opcode

LATENCY = 200  # cycles from a request to memory to its first word
OVERHEAD = 40  # cycles to fetch, check and complete a command


def cycles(config, command, outcome):
    """Cycles from taking up a command to its completion.

    Parameters
    ----------
    config : Config
    command : dict of str to int
    outcome : Outcome
    """
    opcode, count, bus = command["opcode"], command["count"], config.bus_bytes
    if opcode in (Opcode.OBSERVE, Opcode.SPLIT):
        id_bytes = 8 if command["flags"] & BatchFlag.ID64 else 4
        return OVERHEAD + 2 * LATENCY + count * id_bytes // bus
    if opcode in (Opcode.INSTALL, Opcode.REMOVE):
        return OVERHEAD + 2 * LATENCY + 4 * count
    if opcode == Opcode.HARVEST:
        return OVERHEAD + LATENCY + 2 * config.counter_sets
    if opcode == Opcode.DECAY:
        return OVERHEAD + config.counter_sets
    if opcode == Opcode.GATHER:
        return OVERHEAD + 2 * LATENCY + max(4 * count, outcome.bytes // bus)
    return OVERHEAD
