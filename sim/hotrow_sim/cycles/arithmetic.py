"""Cycles of pooling and updating: a beat accumulated per cycle, and the adder of partial sums."""

from collections import deque
from itertools import count

from hotrow_rtl.config import ArithmeticUnits

from ..golden.arithmetic.pooling import partial_count

ENDED = 15  # from the last beat of a bag to its first partial sum at the adder
LEVEL = 10  # from a pair at the adder to its sum
QUEUED = 2  # from the read of a partial sum to the adder
ORDERED = 2  # from the last beat of a sum to its output in order
LEAVES = 11  # from a beat of a bag to its rounded word
DIVIDED = 31  # division of a beat
CONVERTED = 2  # conversion of a number of rows to fp32, plus its log2
SCALAR = 30  # Adagrad's divisions of a row
APPLIED = 25  # from the last beats of a gradient and its row to the last word
SQUARED = 111  # Adagrad's squares and scalars of a row, without the sum of the steps
PAIR_QUEUE = 8  # partial sums that wait for the adder
BAG_QUEUE = 32  # bags that wait for the adder
SUMS_IN_ORDER = 16  # bags at the adder


def beats_per_row(config: ArithmeticUnits, elements):
    return -(-elements // config.lanes)


def square_steps(config: ArithmeticUnits, elements):
    """Cycles in which Adagrad squares a row."""
    return -(-elements // config.squares)


def adder_slots(rows):
    """Adder cycles for a sum of `rows` rows of one beat."""
    slots = 0
    while rows > 1:
        rows = -(-rows // 2)
        slots += rows
    return max(1, slots)


def adagrad_row(config: ArithmeticUnits, elements):
    """Cycles of Adagrad between rows: squares, the adder of their sum, or the divisions."""
    steps = square_steps(config, elements)
    return max(steps, adder_slots(steps), SCALAR)


def sum_cycles(config: ArithmeticUnits, elements, lengths, follow=0) -> list[int]:
    """Cycles from the first word to the end of each bag's sum, without stalls.

    A simulation of the beats. The accumulator accepts one per cycle while the partial sums of two
    bags fit. Once a bag is complete, its partial sums are read at one beat per cycle. At the adder
    sums of sums go first.

    Parameters
    ----------
    config : ArithmeticUnits
    elements : int
        Of a row.
    lengths : sequence of int
        Rows of each bag.
    follow : int
        Cycles without words after those of each bag.
    """
    return _SumBeats(config, elements, list(lengths), follow).run()


def pool_cycles(config: ArithmeticUnits, elements, lengths) -> int:
    """From the first word to the last pooled word, without stalls and means; arguments as for
    `sum_cycles`."""
    return sum_cycles(config, elements, lengths)[-1] + LEAVES


class _SumBeats:
    """State of `sum_cycles`: the accumulator, the reader of partial sums, and the adder tree."""

    def __init__(self, config, elements, lengths, follow):
        self.lengths, self.follow = lengths, follow
        self.beats, self.partials = beats_per_row(config, elements), partial_count(elements)
        self.partial_room = 2 * max(2048, 2 * config.row_bytes) // config.bus_bytes
        self.sum_room = 4 * config.row_bytes // config.bus_bytes
        self.even_room = 2048 // config.bus_bytes
        self.bag = self.row = self.beat = 0  # at the accumulator
        self.waits = 0  # cycles
        self.stored = 0  # beats of partial sums
        self.complete = deque()  # of each complete bag: first cycle, partial sums
        self.reading = None  # of the bag at the reader: partial sums, index, beat
        self.read_bag = 0
        self.odd = deque()  # beats that wait for the adder: first cycle, index, final, beat, bag
        self.even = 0  # beats that wait for an odd one
        self.adding = deque()  # beats in the adder, like `odd`
        self.in_order = self.held = 0  # bags at the adder, and beats of sums
        self.done = {}  # first cycle of the finished bags
        self.out_bag = self.out_beat = 0
        self.ended = []  # cycles of the sums

    def run(self):
        for now in count():
            if self.out_bag == len(self.lengths):
                return self.ended
            self._output(now)
            self._add(now)
            self._read(now)
            self._accumulate(now)
        return None

    def _output(self, now):
        """Output a beat of the next bag in order, if it is there."""
        if self.done.get(self.out_bag, now + 1) > now:
            return
        self.held -= 1
        self.out_beat += 1
        if self.out_beat == self.beats:
            self.out_beat, self.out_bag = 0, self.out_bag + 1
            self.in_order -= 1
            self.ended.append(now + ORDERED)

    def _add(self, now):
        """One pair enters the adder: a sum of sums, else partial sums."""
        if self.adding and self.adding[0][0] == now:
            _, index, final, beat, bag = self.adding.popleft()
            if final and index == 0:
                if beat == self.beats - 1:
                    self.done[bag] = now + 1
            elif index & 1 or final:
                self.adding.append((now + LEVEL, index // 2, final, beat, bag))
                return
        if self.odd and self.odd[0][0] <= now:
            _, index, final, beat, bag = self.odd.popleft()
            self.even -= index & 1
            self.adding.append((now + LEVEL, index // 2, final, beat, bag))

    def _read(self, now):
        """Read a beat of a partial sum, if it has room on its way to the adder."""
        if self.reading is None and self.complete and self.complete[0][0] <= now:
            self.reading = [self.complete.popleft()[1], 0, 0]
        if self.reading is None:
            return
        rows, index, beat = self.reading
        sums = max(1, rows)
        final = index == sums - 1
        enters = index & 1 or final
        fits = len(self.odd) <= PAIR_QUEUE if enters else self.even <= self.even_room
        if index == 0:
            fits &= self.held < self.sum_room and self.in_order <= SUMS_IN_ORDER
        if not fits:
            return
        if index == 0:
            self.held += 1
            self.in_order += beat == self.beats - 1
        if enters:
            self.odd.append((now + QUEUED, index, final, beat, self.read_bag))
        else:
            self.even += 1
        self.stored -= rows > 0
        beat += 1
        if beat == self.beats:
            beat, index = 0, index + 1
        self.reading = [rows, index, beat]
        if index == sums:
            self.reading, self.read_bag = None, self.read_bag + 1

    def _accumulate(self, now):
        """Accumulate a beat, or end an empty bag."""
        if self.waits:
            self.waits -= 1
            return
        if (self.bag == len(self.lengths) or self.stored >= self.partial_room
                or len(self.complete) > BAG_QUEUE):
            return
        length = self.lengths[self.bag]
        if length == 0:
            self.complete.append((now + ENDED, 0))
            self.bag += 1
            return
        self.stored += self.row < self.partials
        self.beat += 1
        if self.beat == self.beats:
            self.beat, self.row = 0, self.row + 1
            if self.row == length:
                self.complete.append((now + ENDED, min(self.row, self.partials)))
                self.row, self.bag, self.waits = 0, self.bag + 1, self.follow


def mean_cycles(config: ArithmeticUnits, elements, lengths):
    """`pool_cycles` for means: the larger of the cycles of the sums and of the divisions; arguments
    as for `pool_cycles`."""
    beats = beats_per_row(config, elements)
    divisions = [beats * DIVIDED + length.bit_length() - 1 + CONVERTED if length > 1 else 0
                 for length in map(int, lengths)]
    return max(pool_cycles(config, elements, lengths) + divisions[-1],
               pool_cycles(config, elements, lengths[:1]) + sum(divisions))


def stepped_rows(config: ArithmeticUnits, elements, counts, adagrad, follow=0):
    """Cycle in which the sum of the last row's gradients ends, or Adagrad's sum of its squares;
    arguments as for `update_cycles` and `sum_cycles`."""
    summed = sum_cycles(config, elements, map(int, counts), follow)
    if not adagrad:
        return summed[-1]
    ended, beats = 0, beats_per_row(config, elements)
    for cycle in summed:  # of the last beat of a sum
        ended = max(cycle - beats, ended) + adagrad_row(config, elements)
    return ended


def squared_cycles(config: ArithmeticUnits, elements):
    """Adagrad's squares and scalars of one row."""
    levels = (square_steps(config, elements) - 1).bit_length()
    return beats_per_row(config, elements) + SQUARED + LEVEL * levels


def update_cycles(config: ArithmeticUnits, elements, counts, adagrad) -> int:
    """From the first gradient to the last updated word, without stalls.

    Parameters
    ----------
    config : ArithmeticUnits
    elements : int
        Of a row.
    counts : sequence of int
        Gradients of each row.
    adagrad : bool
        Row-wise Adagrad, else SGD.
    """
    stepped = stepped_rows(config, elements, counts, adagrad)
    if config.lanes == 1:  # adds gradients or updates rows
        stepped = max(stepped, beats_per_row(config, elements) * (sum(counts) + len(counts)))
    return stepped + APPLIED + adagrad * squared_cycles(config, elements)
