"""Cycles of the move commands.

In the steady state a copy of w bus words takes max(w, (a + w + 5) / `outstanding`,
(w + b + 2) / max(8, `outstanding`)) cycles, with read latency a and write latency b: the limit is
the data bus, or the round trips that the copies in flight share. Several ports work in parallel,
each on its share of the copies.
"""

from hotrow_rtl.config import Config
from hotrow_rtl.contract.encoding import ROW_ENTRY_BYTES
from hotrow_rtl.mover.addressing.port_interleave import row_port

SHORT_ROW = 64  # bytes
REQUESTED = 18  # from the first word of the list to the first read address
EXCHANGED = 4  # through the address crossbar of several ports
ARRIVED = 3  # from the last beat of a burst to its place in the reorder buffer
REUSED = 3  # from there to the next address with the same id
OPENED = 1  # from there to the copy's first word out of the buffer
WRITTEN = 4  # from there to the write bus
SPAN_STARTED = 0  # in place of the first word of a list, for the chunks of a span
FILLED = 1  # from the request of a fill pattern to its first word
ANSWERED = 2  # from a write response to its count
ENDED = 2  # from the last count to the outcome
ADDED = 2  # addition of the counts of several ports, plus two cycles per port


def buffer_words(config: Config) -> int:
    """Words of the reorder buffer: a short row per id, or four of the longest rows."""
    return max(config.outstanding * max(1, SHORT_ROW // config.bus_bytes),
               4 * config.row_bytes // config.bus_bytes)


def move_cycles(config: Config, words, read_latency, write_latency, first_word=0, ports=None,
                at_once=None) -> int:
    """From the last part of a command to its outcome, with memory that never stalls and copies that
    cross no page.

    Parameters
    ----------
    config : Config
    words : sequence of int
        Bus words of each copy, in order: rows and, with state, states. Source and destination
        have equal offsets in their bus words.
    read_latency : int
        Cycles from AR to the first beat.
    write_latency : int
        Cycles from the last W to B.
    first_word : int
        Cycles from the request of the list to its first word; the list is then faster than rows.
    ports : sequence of int, optional
        With several row ports, the port of each copy (`port_interleave.row_port`), all rows.
    at_once : int, optional
        Copies per cycle; default the entries of a bus word of the list.
    """
    first = first_word + REQUESTED
    if config.row_ports == 1:
        counted = _port_cycles(config, words, [first] * len(words), read_latency, write_latency)
        return counted + ENDED
    at_once = at_once or min(config.row_ports, config.bus_bytes // ROW_ENTRY_BYTES)
    counted = []
    for port in set(ports):
        copies = [number for number, at in enumerate(ports) if at == port]
        counted.append(_port_cycles(
            config, [words[number] for number in copies],
            [first + EXCHANGED + number // at_once for number in copies],
            read_latency, write_latency))
    return max(counted) + ENDED + ADDED + 2 * config.row_ports


def _port_cycles(config, words, offered, read_latency, write_latency):
    """Until one port counts its last write response; copies are `offered` in those cycles."""
    ids, writes = config.outstanding, max(8, config.outstanding)
    room = buffer_words(config)
    requested = beat = opened = offered[0] - 1
    retired, left, answered = [], [], []  # per copy: id free, last word out, response counted
    oldest, buffered = 0, 0  # copies from `oldest` on are in the buffer, with `buffered` words
    for i, count in enumerate(words):
        requested = max(requested + 1, offered[i])
        if i >= ids:
            requested = max(requested, retired[i - ids] + REUSED)
        buffered += count
        while buffered > room:
            requested = max(requested, left[oldest] + REUSED)
            buffered -= words[oldest]
            oldest += 1
        beat = max(requested + read_latency, beat + 1) + count - 1
        retired.append(max(beat + ARRIVED, opened))
        opened = max(retired[-1] + OPENED, left[-1] + 1 if i else 0)
        if i > writes:  # one more copy than there are writes waits
            opened = max(opened, answered[i - writes - 1] + 1)
        left.append(opened + count - 1)
        sent = left[-1] + WRITTEN
        if i >= writes:
            sent = max(sent, answered[i - writes] + count)
        answered.append(sent + write_latency + ANSWERED)
    return answered[-1]


def span_cycles(config: Config, address, count, read_latency, write_latency, fills=False):
    """`move_cycles` for a COPY of `count` bytes from byte address `address`, or a FILL.

    Its chunks have `row_bytes`; the span starts at a bus word.
    """
    starts = range(0, count, config.row_bytes)
    words = [-(-min(count - start, config.row_bytes) // config.bus_bytes) for start in starts]
    read = FILLED if fills else read_latency
    return move_cycles(config, words, read, write_latency, SPAN_STARTED,
                       [row_port(config, address + start) for start in starts], config.row_ports)
