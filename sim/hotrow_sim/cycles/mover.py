"""Cycles of the move commands.

In the steady state a copy of w bus words takes max(w, (a + w + 5) / `outstanding`,
(w + b + 2) / max(8, `outstanding`)) cycles, with a and b the latencies of reads and writes: the
data bus, or the round trips that so many copies share. Several ports do so at once, each with its
share of the copies.
"""

from hotrow_rtl.config import Config
from hotrow_rtl.contract.encoding import ROW_ENTRY_BYTES
from hotrow_rtl.mover.addressing.port_interleave import row_port

SHORT_ROW = 64  # bytes

REQUESTED = 18  # from the first word of the list to the first address of a read
EXCHANGED = 4  # cycles more with several ports
ARRIVED = 3  # from the last beat of a burst to its arrival in order
REUSED = 3  # from there to the next address with its id
OPENED = 1  # from the arrival to the copy's first word out of the buffer
WRITTEN = 4  # from there to the write bus
BEGUN = 0  # as of a list's first word, where pieces of a span come in place of a list
FILLED = 1  # from the request of a pattern to its first word
ANSWERED = 2  # from the answer to its count
ENDED = 2  # from the last count to the outcome
ADDED = 3  # cycles more with several ports, and two for every port, to add up what they did


def buffer_words(config: Config) -> int:
    """Bus words in flight and not yet written: short rows with every id, or four of the longest."""
    return max(config.outstanding * max(1, SHORT_ROW // config.bus_bytes),
               4 * config.row_bytes // config.bus_bytes)


def move_cycles(config: Config, words, read_latency, write_latency, first_word=0, ports=None,
                at_once=None):
    """From the command's last part to its outcome, memory never stalling, nothing crossing a page.

    Parameters
    ----------
    config : Config
    words : sequence of int
        Bus words of each copy, in order: rows and, with state, states. Source and destination
        lie alike in their bus words.
    read_latency : int
        Cycles from AR to the first beat.
    write_latency : int
        Cycles from the last W to B.
    first_word : int
        Cycles from the request of the list to its first word; then it comes faster than rows.
    ports : sequence of int, optional
        With several row ports, the one of each copy (`row_steering.row_port`), all of them rows.
    at_once : int, optional
        Copies that come in one cycle, as many as a word of the list has entries.

    Returns
    -------
    int
    """
    first = first_word + REQUESTED
    if config.row_ports == 1:
        taken = _port_cycles(config, words, [first] * len(words), read_latency, write_latency)
        return taken + ENDED
    at_once = at_once or min(config.row_ports, config.bus_bytes // ROW_ENTRY_BYTES)
    taken = []
    for port in set(ports):
        copies = [number for number, at in enumerate(ports) if at == port]
        taken.append(_port_cycles(
            config, [words[number] for number in copies],
            [first + EXCHANGED + number // at_once for number in copies],
            read_latency, write_latency))
    return max(taken) + ENDED + ADDED + 2 * config.row_ports


def _port_cycles(config, words, offered, read_latency, write_latency):
    """Till the last answer is counted at one port, to which copies are `offered` in those
    cycles."""
    ids, writes = config.outstanding, max(8, config.outstanding)
    room = buffer_words(config)
    asked = beat = opened = offered[0] - 1
    retired, left, answered = [], [], []  # per copy: id free, last word read out, answer counted
    oldest, held = 0, 0  # copies from `oldest` on are in the buffer, with `held` words
    for i, count in enumerate(words):
        asked = max(asked + 1, offered[i])
        if i >= ids:
            asked = max(asked, retired[i - ids] + REUSED)
        held += count
        while held > room:
            asked = max(asked, left[oldest] + REUSED)
            held -= words[oldest]
            oldest += 1
        beat = max(asked + read_latency, beat + 1) + count - 1
        retired.append(max(beat + ARRIVED, opened))
        opened = max(retired[-1] + OPENED, left[-1] + 1 if i else 0)
        if i > writes:  # one more than there are writes waits to be told
            opened = max(opened, answered[i - writes - 1] + 1)
        left.append(opened + count - 1)
        sent = left[-1] + WRITTEN
        if i >= writes:
            sent = max(sent, answered[i - writes] + count)
        answered.append(sent + write_latency + ANSWERED)
    return answered[-1]


def span_cycles(config: Config, address, count, read_latency, write_latency, fills=False):
    """Of a COPY of `count` bytes from byte address `address`, or a FILL; else as `move_cycles`.

    Its pieces have `row_bytes`, and take as many bus words as those fill if the span begins on a
    bus word.
    """
    starts = range(0, count, config.row_bytes)
    words = [-(-min(count - start, config.row_bytes) // config.bus_bytes) for start in starts]
    return move_cycles(config, words, FILLED if fills else read_latency, write_latency, BEGUN,
                       [row_port(config, address + start) for start in starts], config.row_ports)
