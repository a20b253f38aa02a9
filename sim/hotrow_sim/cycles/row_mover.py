"""Cycles of a GATHER.

In the steady state a copy of w bus words takes max(w, (a + w + 5) / `outstanding`,
(w + b + 2) / max(8, `outstanding`)) cycles, with a and b the latencies of reads and writes: the
data bus, or the round trips that so many copies share.
"""

from hotrow_rtl.config import Config

SHORT_ROW = 64  # bytes

REQUESTED = 18  # from the first word of the list to the first address of a read
ARRIVED = 3  # from the last beat of a burst to its arrival in order
REUSED = 3  # from there to the next address with its id
OPENED = 1  # from the arrival to the copy's first word out of the buffer
WRITTEN = 4  # from there to the write bus
ANSWERED = 2  # from the answer to its count
ENDED = 2  # from the last count to the outcome


def buffer_words(config: Config) -> int:
    """Bus words in flight and not yet written: short rows with every id, or four of the longest."""
    return max(config.outstanding * max(1, SHORT_ROW // config.bus_bytes),
               4 * config.row_bytes // config.bus_bytes)


def gather_cycles(config: Config, words, read_latency, write_latency, first_word=0):
    """From the command to its outcome, memory never stalling and nothing crossing a page.

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

    Returns
    -------
    int
    """
    ids, writes = config.outstanding, max(8, config.outstanding)
    room = buffer_words(config)
    asked = beat = opened = first_word + REQUESTED - 1
    retired, left, answered = [], [], []  # per copy: id free, last word read out, answer counted
    oldest, held = 0, 0  # copies from `oldest` on are in the buffer, with `held` words
    for i, count in enumerate(words):
        asked += 1
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
    return answered[-1] + ENDED
