"""Cycles of pooling: a beat accumulated per cycle, and the adder that joins the partial sums."""

from collections import deque
from itertools import count

from hotrow_rtl.config import Config

ENDED = 15  # from a bag's last beat to the first of its partial sums at the adder
LEVEL = 10  # from a pair at the adder to its sum
QUEUED = 2  # from a partial sum to the adder
ORDERED = 2  # from the last beat of a sum to its bag
LEAVES = 10  # from a bag's beat to its word, rounded
PLAIN = 13  # of a plain sum, from the first beat of a row to that of the next
DIVIDED = 31  # cycles of a beat that is divided
CONVERTED = 2  # and log2 of the rows: of a bag's number of rows
SCALAR = 31  # cycles of a row in Adagrad's divisions
SUMMED = 35  # from a row's last gradient to its sum
APPLIED = 24  # from the last beats of a gradient and its row to the last word
SUM_OF_STEPS = 58  # of a row, from its last step to the next row, without the levels
SQUARED = 130  # Adagrad's squares and scalars of one row, without the sum of the steps


def beats_per_row(config: Config, elements):
    return -(-elements // config.lanes)


def partial_count(elements):
    """As ``golden.pooling.partial_count``."""
    count_ = 1
    while count_ < min(16, 256 / elements):
        count_ *= 2
    return count_


def adder_turns(rows):
    """Turns of the adder for a sum of so many rows of one beat."""
    turns = 0
    while rows > 1:
        rows = -(-rows // 2)
        turns += rows
    return max(1, turns)


def pool_cycles(config: Config, elements, lengths):
    """From the first word to the last pooled one, with nothing waiting; no means.

    A simulation of the beats: those accumulated, one a cycle while a ring of two bags has room;
    those of partial sums, read one a cycle once their bag is complete; and of the adder, where
    sums of sums go first.

    Parameters
    ----------
    config : Config
    elements : int
        Of a row.
    lengths : sequence of int
        Rows of each bag.

    Returns
    -------
    int
    """
    beats, partials = beats_per_row(config, elements), partial_count(elements)
    ring = 2 * max(2048, 2 * config.row_bytes) // config.bus_bytes
    room = 4 * config.row_bytes // config.bus_bytes
    depth, evens_depth = 8, 2048 // config.bus_bytes
    lengths = list(lengths)
    # What is accumulated, in order: for each beat whether it takes a place, and its bag if last.
    now = 0
    bag = row = beat = 0
    stored = 0
    waiting = deque()  # (from when on, rows of partial sums, empty)
    reading = None
    entering = deque()  # (from when on, index of pair, beats, final, ...) of odd rows
    evens = 0
    inflight = deque()  # (cycle, level, index, final, at, bag)
    in_order, held = 0, 0
    done, out_bag, out_beat, last_out = {}, 0, 0, 0
    read_bag = 0
    for now in count():
        if out_bag == len(lengths):
            break
        # Sums leave in order.
        if out_bag in done and done[out_bag] <= now:
            held -= 1
            out_beat += 1
            last_out = now
            if out_beat == beats:
                out_beat, out_bag = 0, out_bag + 1
                in_order -= 1
        # The adder.
        rises = False
        if inflight and inflight[0][0] == now:
            _, index, final, at, owner = inflight.popleft()
            if final and index == 0:
                if at == beats - 1:
                    done[owner] = now + 1
            elif index & 1 or final:
                inflight.append((now + LEVEL, index // 2, final, at, owner))
                rises = True
        if not rises and entering and entering[0][0] <= now:
            _, index, final, at, owner = entering.popleft()
            evens -= index & 1
            inflight.append((now + LEVEL, index // 2, final, at, owner))
        # Partial sums are read.
        if reading is None and waiting and waiting[0][0] <= now:
            reading = [waiting.popleft()[1], 0, 0]
        if reading:
            rows, index, at = reading
            final = index == max(1, rows) - 1
            enters = index & 1 or final
            fits = len(entering) < depth + 1 if enters else evens < evens_depth + 1
            if index == 0 and (held >= room or in_order >= 17):
                fits = False
            if fits:
                if index == 0:
                    held += 1
                    in_order += at == beats - 1
                if enters:
                    entering.append((now + QUEUED, index, final, at, read_bag))
                else:
                    evens += 1
                stored -= rows > 0
                at += 1
                if at == beats:
                    at, index = 0, index + 1
                reading = [rows, index, at]
                if index == max(1, rows):
                    reading, read_bag = None, read_bag + 1
        # Rows are accumulated.
        if bag < len(lengths) and stored < ring and len(waiting) < 33:
            if lengths[bag] == 0:
                waiting.append((now + ENDED, 0))
                bag += 1
            else:
                stored += row < partials
                beat += 1
                if beat == beats:
                    beat, row = 0, row + 1
                    if row == lengths[bag]:
                        waiting.append((now + ENDED, min(row, partials)))
                        row, bag = 0, bag + 1
    return last_out + ORDERED + LEAVES


def mean_cycles(config: Config, elements, lengths):
    """As `pool_cycles`, of means: the sums, or the divisions if those take longer.

    Parameters
    ----------
    As of `pool_cycles`.
    """
    beats = beats_per_row(config, elements)
    divisions = [beats * DIVIDED + length.bit_length() - 1 + CONVERTED if length > 1 else 0
                 for length in map(int, lengths)]
    return max(pool_cycles(config, elements, lengths) + divisions[-1],
               pool_cycles(config, elements, lengths[:1]) + sum(divisions))


def update_cycles(config: Config, elements, counts, adagrad):
    """From the first gradient to the last word updated, with nothing waiting.

    Parameters
    ----------
    config : Config
    elements : int
        Of a row.
    counts : sequence of int
        Gradients of each row.
    adagrad : bool
        Row-wise, else SGD.

    Returns
    -------
    int
    """
    beats = beats_per_row(config, elements)
    apart = max(PLAIN, beats)  # gradients of one row
    steps = 4 * elements // config.lanes
    levels = (steps - 1).bit_length()
    # Four rows are squared and summed at a time.
    row = max(steps, SCALAR, (steps + LEVEL * levels + SUM_OF_STEPS) / 4) if adagrad else 0
    summed, ended = 0, 0
    for count_ in map(int, counts):
        summed += (count_ - 1) * apart + beats
        ended = max(summed, ended) + row if adagrad else summed
    return round(ended + SUMMED + APPLIED + adagrad * (beats + SQUARED + LEVEL * levels))
