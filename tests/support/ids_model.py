"""A map of ids in plain Python, one id at a time: what `hotrow.ids.IdMap` must do."""

from hotrow.ids import LeastCount, Probability

BITS = (1 << 64) - 1


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & BITS
    return x ^ (x >> 31)


class Sketch:
    def __init__(self, width, seed):
        self.width, self.cells = width, [[0] * width for _ in range(4)]
        self.salts = [mix((seed + row + 1) & BITS) for row in range(4)]

    def add(self, key, count):
        places = [(mix(key ^ salt) >> 32) * self.width >> 32 for salt in self.salts]
        estimate = min(65535, count + min(cells[place] for cells, place in
                                          zip(self.cells, places, strict=True)))
        for cells, place in zip(self.cells, places, strict=True):
            cells[place] = max(cells[place], estimate)
        return estimate


class IdsModel:
    def __init__(self, rows, admission, expiry, seed):
        self.rows, self.admission, self.expiry, self.seed = rows, admission, expiry, seed
        self.cap = min(rows - 1, (expiry and expiry.cap) or rows - 1)
        self.row_of, self.count, self.last = {}, {}, {}
        self.looked_up = {}  # ids of each batch, each once; they may have been looked up since
        self.free, self.fresh, self.batch, self.completed, self.bar = [], 1, 0, 0, 0
        if isinstance(admission, LeastCount):
            self.sketch = Sketch(admission.width, seed)

    def admits(self, key, count):
        if isinstance(self.admission, LeastCount):
            return count >= self.admission.least
        if isinstance(self.admission, Probability):
            return mix(key ^ self.salt) >> 11 < self.admission.value * 2 ** 53
        return True

    def make_room(self, counts):
        """Free rows for admitted ids of these counts: events, and which of the ids get a row. If
        both admission and expiry are by count, those of the ids exceed those of the rows."""
        room, ahead = self.cap - len(self.row_of), self.cap >> 6
        if not (self.by_count and isinstance(self.admission, LeastCount)):
            lacking = len(counts) - room
            events = self.free_some(lambda key: True, max(
                lacking, ahead)) if self.expiry and lacking > 0 else []
            return events, list(range(len(counts)))[:room + len(events)]
        order = sorted((place for place, count in enumerate(counts) if count > self.bar),
                       key=lambda place: (-counts[place], place))
        served, others, events = order[:room], order[room:], []
        if others:
            held = sorted(self.count[key] for key in self.row_of
                          if self.last[key] <= self.completed)
            pairs = sum(counts[place] > low for place, low in zip(others, held, strict=False))
            highest = counts[others[0]]
            events = self.free_some(lambda key: self.count[key] < highest, max(pairs, ahead))
            self.bar = self.count[events[-1][0]] if events else min(
                [highest, *(self.count[key] for key in self.row_of)])
            served += [place for place in others if counts[place] > self.bar][:len(events)]
        return events, sorted(served)

    @property
    def by_count(self):
        return self.expiry and self.expiry.age is None and self.expiry.below is not None

    def free_some(self, due, most):
        by_count, leaving = self.by_count, []
        for batch in sorted(self.looked_up):  # the oldest lookups first
            if batch > self.completed or (len(leaving) >= most and not by_count):
                break
            keys = self.looked_up[batch] = [key for key in self.looked_up[batch]
                                            if self.last[key] == batch and key in self.row_of]
            leaving += sorted(filter(due, keys),
                              key=lambda key: (self.count[key], self.row_of[key]))
        if by_count:
            leaving.sort(key=lambda key: (self.count[key], self.last[key], self.row_of[key]))
        events = [(key, self.row_of.pop(key)) for key in leaving[:max(0, most)]]
        self.free += [row for _, row in events]
        return events

    def plan(self, ids):
        """Rows, admitted and expired (id, row) pairs."""
        self.batch += 1
        self.salt = mix(self.seed ^ mix(self.batch))
        missing, looked_up = {}, self.looked_up.setdefault(self.batch, [])
        for key in ids:
            if key in self.row_of:
                self.count[key] += 1
                if self.last[key] != self.batch:
                    self.last[key] = self.batch
                    looked_up.append(key)
            else:
                missing[key] = missing.get(key, 0) + 1
        if isinstance(self.admission, LeastCount) and self.admission.halve_every and (
                self.batch % self.admission.halve_every == 0):
            self.sketch.cells = [[cell >> 1 for cell in cells] for cells in self.sketch.cells]
        if isinstance(self.admission, LeastCount):
            missing = {key: self.sketch.add(key, count) for key, count in missing.items()}
        admitted = [key for key, count in missing.items() if self.admits(key, count)]
        expired = []
        if self.expiry is not None:
            age, below = self.expiry.age, self.expiry.below
            if self.batch % self.expiry.every == 0:
                expired += self.free_some(
                    lambda key: (age and self.last[key] <= self.batch - age)
                    or (below and self.count[key] < below), len(self.row_of) - self.expiry.floor)
                if below:
                    self.count = {key: count >> 1 for key, count in self.count.items()}
                    self.bar = 0 if expired else self.bar >> 1
        made, served = self.make_room([missing[key] for key in admitted])
        expired, events = expired + made, []
        for key in (admitted[place] for place in served):
            row = self.free.pop() if self.free else self.fresh
            self.fresh += row == self.fresh
            self.row_of[key], self.count[key], self.last[key] = row, missing[key], self.batch
            events.append((key, row))
        looked_up += [key for key, _ in events]
        return [self.row_of.get(key, 0) for key in ids], events, expired
