"""Rows in slots of the trainer's memory, brought there by a device before their batch trains."""

import threading
from collections import Counter, deque

import torch

from ..contract import NO_SLOT
from ..errors import Error
from .flights import InFlight, SlotNumbers
from .inputs import lookups_of
from .stages import Stage, Stages
from .store import Open, Placed, Store

PLAN, COLLECT, EXCHANGE, INSERT = range(4)
_MOST_AT_ONCE = 1 << 16  # rows fetched for slots that are filled beforehand
_ENTRY_BYTES, _SLOT_BYTES = 12, 4  # of a row in a list, with its place; of a lookup's answer


class CachedStore(Store):
    """Rows in slots, and behind them the rows without one of the batches in flight.

    Stages of a batch: *plan* says which row gets which slot, *collect* reads rows from the tables
    (GATHER) and those that leave from their slots, *exchange* is the way between the two memories,
    *insert* writes those that leave to the tables (SCATTER) and the others to their slots; then the
    batch trains.

    What keeps every row right, however the stages of different batches run beside each other:

    - A batch is retired, and the card gives its slots away, only when it has trained.
    - Collect of a batch waits for insert of every earlier one that was planned before this one's
      rows were marked: only such a one may have taken a row of it from its slot.
    - So that marks hold, no batch is retired that was planned after a mark whose batch is yet to be
      planned: what it brought was not there to be marked.
    - Collect waits until the rows without a slot of the batch that the plan names are back.

    Parameters
    ----------
    groups : sequence of TableGroup
    device : Device
        Without tables of its own; nothing else may plan on it.
    placing : LookAhead or HotRows
    depth : int
        Batches that may be planned and not trained.
    look_ahead : int
        Batches that are marked beyond the one that is planned.
    workers : int
        Threads of the stages; with 0 they run when a batch is taken.
    share : int
        The groups' slots are one of so many parts of the directory, a power of two.
    before : callable, optional
        Called with the name of a stage and the batch's number before it runs.

    Members
    -------
    stages : Stages
    figures : Counter
        `lookups`, `hits`, `rows_moved`, `fills`, `evictions`, `bypasses` and `link_bytes`.
    slots : int
        That rows of all groups have together.
    """

    def __init__(self, groups, device, placing, depth=4, look_ahead=2, workers=0, share=1,
                 before=None):
        super().__init__(groups)
        if depth < 1 or look_ahead < 0 or depth + look_ahead >= placing.window:
            raise Error(f"depth {depth} and look_ahead {look_ahead}: this card follows "
                        f"{placing.window} batches, and needs at least one")
        self.device, self.placing = device, placing
        self.depth, self.look_ahead = depth, look_ahead
        self.figures, self.lock = Counter(), threading.RLock()
        self.placing.clear()  # before tables come, whose parts of the directory may be others
        self._numbers = SlotNumbers(self.groups, device, share)
        self.registered, self.storages = self._numbers.registered, self._numbers.storages
        self.slots = self._numbers.slots
        self.stages = Stages([
            Stage("plan", self._may_plan, self._plan),
            Stage("collect", self._may_collect, self._collect),
            Stage("exchange", lambda number: number < self.stages.done[COLLECT], self._exchange),
            Stage("insert", lambda number: number < self.stages.done[EXCHANGE], self._insert),
        ], workers, before)
        self._batches, self._taken = {}, deque()
        self._submitted = self._next = self._finished = self._base = self._marked = 0
        self._wanted = -1
        self._abandoned = False

    # What the trainer calls.

    def prefetch(self, request):
        if not len(request.bags.ids):
            return
        most = self.device.geometry.batch_samples
        if request.bags.samples > most:
            raise Error(f"batch {self._submitted} has {request.bags.samples} samples: this card "
                        f"takes at most {most}, use smaller batches and accumulate gradients")
        with self.stages.changed:
            self._batches[self._submitted] = InFlight(
                request, request.bags.device_batch(self.registered))
            self._submitted += 1
        self.stages.start()
        self.stages.wake()

    def take(self, request):
        if not len(request.bags.ids):
            return [Placed(self.storages[each.group].rows, each.flat, self.lock)
                    for each in request.segments], Open()
        number = self._next
        if number == self._submitted:
            self.prefetch(request)
        flight = self._batches[number]
        expected = flight.request.bags
        if expected is not request.bags and not same_bags(expected, request.bags):
            raise Error(f"batch {number} is not the one that was prefetched in its place "
                        f"({len(request.bags.ids)} ids, prefetched {len(expected.ids)}): batches "
                        f"train in the order of prefetch()")
        self._want(number)
        self.stages.wait(lambda: self.stages.done[INSERT] > number, f"batch {number}")
        self._next += 1
        self._taken.append(flight)
        return [Placed(self.storages[part.segment.group].rows, part.at, self.lock)
                for part in flight.parts], flight.open

    @property
    def waiting_samples(self):
        """Samples of the batch to be taken next."""
        return self._batches[self._next].request.bags.samples

    def popular(self):
        """Whether each sample of the batch to be taken next finds all its rows in slots: bool[B].

        It must have been prefetched; its rows without a slot may still be on their way.
        """
        number = self._next
        self._want(number)
        self.stages.wait(lambda: self.stages.done[PLAN] > number, f"the plan of batch {number}")
        bags = self._batches[number].request.bags
        popular = torch.ones(bags.samples, dtype=torch.bool)
        for part in self._batches[number].parts:
            cold = part.slots >= self.storages[part.segment.group].slots
            bag = torch.repeat_interleave(
                torch.arange(len(part.segment.lengths)), part.segment.lengths)[cold]
            popular[bag % bags.samples] = False
        return popular

    def take_part(self, request, samples, wait, last):
        """Take some samples int64[k] of the batch to be taken next; the others come after.

        Parameters
        ----------
        request : Request
            Of these samples.
        samples : int64[k]
            Their places in the batch.
        wait : bool
            For the rows without a slot; else all samples must be `popular`.
        last : bool
            Whether nothing of the batch is left.
        """
        number = self._next
        flight = self._batches[number]
        if not same_bags(flight.request.bags.rows(samples), request.bags):
            raise Error(f"these are not the samples of batch {number} that were to come next")
        if wait or last:
            self._want(number)
            self.stages.wait(lambda: self.stages.done[INSERT] > number, f"batch {number}")
        if last:
            self._next += 1
            self._taken.append(flight)
        placed, count = [], flight.request.bags.samples
        for part in flight.parts:
            bags = (torch.arange(part.segment.features)[:, None] * count + samples).ravel()
            at = part.slots if part.at is None else part.at
            placed.append(Placed(self.storages[part.segment.group].rows,
                                 at[lookups_of(part.segment.lengths, bags)], self.lock))
        return placed, flight.open

    def apply(self, group, flat, sums, rule):
        storage = self.storages[group]
        with self.lock:
            places = self._find(group, flat)
            weights, state = storage.rows.read(places)
            storage.rows.write(places, *rule.update(weights.float(), sums, state))
            hot = places < storage.slots
            storage.dirty[places[hot]] = True
            if not bool(hot.all()):
                self._write(group, flat[~hot], storage.rows.take(storage.kind, places[~hot]))

    def finish(self):
        with self.stages.changed:
            while self._taken and self._taken[0].open.over:
                self._let_go(self._taken.popleft())
            self.stages.changed.notify_all()

    def read(self, group, flat):
        storage = self.storages[group]
        with self.lock:
            rows = self._fetch(group, flat)
            where, slots = storage.find(flat)
            rows.put(where, storage.rows.take(storage.kind, slots))
        return rows

    def flush(self):
        with self.lock:
            for group, storage in enumerate(self.storages):
                for flat, slots in storage.in_slots(dirty=True):
                    self._write(group, flat, storage.rows.take(storage.kind, slots))
                    storage.dirty[slots] = False
                    self._moved(group, len(slots))

    def reset(self):
        self._need_idle("load other rows")
        self.placing.clear()
        self._base, self._marked = self._submitted, self._submitted
        for storage in self.storages:
            storage.empty()

    def warm(self, rows):
        """Give rows their slots before the next batch, in place of those that have one.

        Parameters
        ----------
        rows : RowList
            By number of the device's tables, each once, the most wanted first.

        Returns
        -------
        int
            Rows that found a slot.
        """
        self._need_idle("give slots to other rows")
        self.flush()
        self.reset()
        slots, held = self.placing.install(rows), 0
        for group, storage in enumerate(self.storages):
            chosen, flat = self._numbers.rows_of(group, rows)
            found = slots[chosen] != NO_SLOT
            flat = flat[torch.from_numpy(found)]
            places = self._numbers.local(group, slots[chosen][found])
            for some, here in zip(flat.split(_MOST_AT_ONCE), places.split(_MOST_AT_ONCE)):
                storage.rows.put(here, self._fetch(group, some))
            storage.place(flat, places)
            self._moved(group, len(flat))
            held += len(flat)
        return held

    def memory(self):
        """As `HotEmbeddingBagCollection.memory`, without gradients."""
        with self.stages.changed, self.lock:
            row_bytes = [group.kind.row_bytes for group in self.groups]
            metadata = sum(storage.metadata_bytes for storage in self.storages)
            return {
                "slots": sum(storage.slots * size
                             for storage, size in zip(self.storages, row_bytes)),
                "bypass": sum(storage.area_rows * size
                              for storage, size in zip(self.storages, row_bytes)),
                "staging": sum(
                    len(rows) * row_bytes[part.segment.group] for flight in self._batches.values()
                    for part in flight.parts for rows in (part.brought, part.taken_back)
                    if rows is not None),
                "metadata": metadata, "metadata_bits_per_slot": 8 * metadata / self.slots,
            }

    def abandon(self):
        with self.stages.changed:
            # What is planned has changed the directory, and is carried out; the rest never was.
            self._abandoned = True
            kept = self.stages.begun(PLAN)
            for number in range(kept, self._submitted):
                del self._batches[number]
            self._submitted = kept
        try:
            self.stages.wait(lambda: self.stages.done[INSERT] == kept, "an orderly end")
        finally:
            self.stages.stop()
            self._abandoned = False
        self._marked = min(self._marked, kept)
        for number in range(self._next, kept):
            self._taken.append(self._batches[number])
        self._next = kept

    def close(self):
        if not self.registered:
            return
        self.abandon()
        self.flush()
        self.placing.clear()
        for number in list(self.registered):
            self.device.unregister_table(self.registered.pop(number))

    # Stages; `number` counts from the first batch on, the card's from the last reset.

    def _may_plan(self, number):
        return number < self._submitted and (
            number - self._finished < self.depth or number == self._wanted)

    def _plan(self, number):
        flight, base = self._batches[number], self._base
        with self.stages.changed:
            last = min(self._submitted, number + self.look_ahead + 1)
            coming = [self._batches[each] for each in range(number, last)]
            retired = min(self._finished, number if flight.marked_at is None
                          else flight.marked_at) - 1
        if retired >= base:
            self.placing.retire(retired - base)
        for ahead, each in enumerate(coming):
            if each.marked_at is None and number + ahead - retired < self.placing.window:
                self.placing.mark(each.batch, number + ahead - base)
                each.marked_at = number
                self._marked = max(self._marked, number + ahead + 1)
        flight.marked = self._marked
        placing = self.placing.place(flight.batch, number - base)
        if placing.wait_for >= 0:
            flight.wait_for = placing.wait_for + base
        flight.parts = [self._numbers.part(segment, placing)
                        for segment in flight.request.segments]
        with self.lock:
            self.figures.update(
                lookups=len(flight.request.bags.ids), hits=placing.hits, link_bytes=(
                    flight.batch.ids.nbytes + _SLOT_BYTES * len(placing.slots)
                    + _ENTRY_BYTES * (len(placing.fills) + len(placing.evictions))))

    def _may_collect(self, number):
        if number >= self.stages.done[PLAN]:
            return False
        flight, earlier = self._batches[number], number - 1
        while earlier >= self.stages.done[INSERT] and self._batches[earlier].marked > number:
            earlier -= 1  # it was planned with this batch's rows marked
        if earlier >= self.stages.done[INSERT]:
            return False
        # What was taken and not finished keeps its gradients until this batch has been trained,
        # if the trainer waits for this batch: the tables stay as they are.
        return (flight.wait_for < self._finished or self._abandoned
                or number == self._wanted == self._next)

    def _collect(self, number):
        for part in self._batches[number].parts:
            group, storage = part.segment.group, self.storages[part.segment.group]
            with self.lock:
                part.taken_back = storage.rows.take(storage.kind, part.leaving_slots)
            part.brought = self._fetch(group, part.fills)

    def _exchange(self, number):
        """Both memories are the host's: nothing has to be carried."""

    def _insert(self, number):
        for part in self._batches[number].parts:
            group, storage = part.segment.group, self.storages[part.segment.group]
            with self.lock:
                self._write(group, part.leaving, part.taken_back)
                part.area = storage.reserve(part.bypassed)
                slots = part.places(part.fill_slots, storage.slots)
                storage.rows.put(slots, part.brought)
                hot = part.fill_slots < storage.slots
                storage.place(part.fills[hot], part.fill_slots[hot])
                part.at = part.places(part.slots, storage.slots)
                self._moved(group, len(part.fills) + len(part.leaving) + part.bypassed)
                self.figures.update(fills=len(part.fills), evictions=len(part.leaving),
                                    bypasses=part.bypassed)
            part.brought = part.taken_back = None

    # Rows on their way.

    def _fetch(self, group, flat):
        """Rows of the tables: Rows."""
        rows = self.groups[group].kind.allocate(len(flat))
        if len(flat):
            self.device.gather(self._numbers.listed(group, flat), out=rows.array,
                               state_out=rows.side)
        return rows

    def _write(self, group, flat, rows):
        """Bring rows to the tables."""
        if len(flat):
            self.device.scatter(self._numbers.listed(group, flat), rows.array, state=rows.side)

    def _moved(self, group, count):
        self.figures.update(
            rows_moved=count, link_bytes=count * self.groups[group].kind.row_bytes)

    def _find(self, group, flat):
        """Where flat rows int64[u] are that batches taken and not finished look up."""
        places = torch.full((len(flat),), -1, dtype=torch.int64)
        for flight in self._taken:
            for part in flight.parts:
                if part.segment.group == group and len(part.segment.flat):
                    found = part.find(flat)
                    places = torch.where(found < 0, places, found)
        if bool((places < 0).any()):
            raise Error("a gradient is staged of a row that no open batch looked up: call "
                        "backward() of every batch before optimizer.step()")
        return places

    def _let_go(self, flight):
        with self.lock:
            for part in flight.parts:
                self.storages[part.segment.group].release(part.area)
        del self._batches[self._finished]
        self._finished += 1

    def _want(self, number):
        """The trainer is about to wait for this batch."""
        self._check_window(number)
        with self.stages.changed:
            self._wanted = number
            self.stages.changed.notify_all()

    def _check_window(self, number):
        if number - self._finished >= self.placing.window - self.look_ahead:
            raise Error(f"batch {number}: {number - self._finished} batches before it have not "
                        f"trained, and this card follows {self.placing.window}: call "
                        f"optimizer.step() more often, or eval() where nothing trains")

    def _need_idle(self, what):
        if self._finished != self._submitted:
            raise Error(f"{self._submitted - self._finished} batches are in flight: end the "
                        f"pipeline and step the optimizer to {what}")


def same_bags(one, other):
    """Whether two Bags look up the same."""
    return (one.tables == other.tables and torch.equal(one.ids, other.ids)
            and torch.equal(one.lengths, other.lengths))
