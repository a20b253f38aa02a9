"""Rows in slots of the trainer's memory, brought there by a device before their batch trains."""

import threading
from collections import Counter, deque

import torch

from ...contract import NO_SLOT
from ...errors import Error
from ..memory.slot_memory import SlotMemory
from ..optim.arithmetic import stepped
from .base import Open, Placed, Store
from .batch_stages import BatchStages
from .flights import InFlight, SlotNumbers
from .host_tables import HostTables
from .micro_batches import MicroBatches, same_bags
from .statistics import CacheStatistics

_MOST_AT_ONCE = 1 << 16  # rows fetched for slots that are filled beforehand


class CachedStore(BatchStages, MicroBatches, Store):
    """Rows in slots, and behind them the rows without one of the batches in flight.

    `BatchStages` brings them there, `MicroBatches` takes a batch in two parts; the rest of what the
    trainer calls is here.

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
    memory : SlotMemory, optional
        Where the slots lie; the host's unless it is given.

    Members
    -------
    stages : Stages
    host : HostTables
    statistics : CacheStatistics
    slots : int
        That rows of all groups have together.
    """

    def __init__(self, groups, device, placing, depth=4, look_ahead=2, workers=0, share=1,
                 before=None, memory=None):
        super().__init__(groups)
        if depth < 1 or look_ahead < 0 or depth + look_ahead >= placing.window:
            raise Error(f"depth {depth} and look_ahead {look_ahead}: this card follows "
                        f"{placing.window} batches, and needs at least one")
        self.device, self.placing = device, placing
        self.depth, self.look_ahead = depth, look_ahead
        self.lock, self.slot_memory = threading.RLock(), memory or SlotMemory()
        self.placing.clear()  # before tables come, whose parts of the directory may be others
        self._numbers = SlotNumbers(self.groups, device, share, self.slot_memory)
        self.registered, self.storages = self._numbers.registered, self._numbers.storages
        self.slots = self._numbers.slots
        self.statistics = CacheStatistics(self._numbers.names)
        self.host = HostTables(self.groups, device, self._numbers, self.statistics,
                               self.slot_memory)
        self.stages = self._make_stages(workers, before)
        self._batches, self._taken, self.parted = {}, deque(), Counter()
        self._submitted = self._next = self._finished = self._base = self._marked = 0
        self._wanted = -1
        self._abandoned = False
        # What the trainer asked of the slots' memory before it let the last batch go; what was
        # asked last beside it.
        self._released, self._arrived = self.slot_memory.mark(), None

    def prefetch(self, request):
        if not len(request.bags.ids):
            return
        batch, geometry = request.bags.device_batch(self.registered), self.device.geometry
        most = geometry.batch_samples
        if batch.lookups > geometry.batch_lookups:
            raise Error(f"batch {self._submitted} has {batch.lookups} lookups: this card takes at "
                        f"most {geometry.batch_lookups}, use smaller batches and accumulate "
                        f"gradients")
        if batch.samples > most:
            features = batch.samples // request.bags.samples
            of = f" for {features} features of a table" if features > 1 else ""
            raise Error(f"batch {self._submitted} has {request.bags.samples} samples{of}: this "
                        f"card takes at most {most // features}, use smaller batches and "
                        f"accumulate gradients")
        with self.stages.changed:
            self._batches[self._submitted] = InFlight(request, batch)
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
        self._arrive(number)
        self._next += 1
        self._taken.append(flight)
        for part in flight.parts:
            self.slot_memory.after(part.arrived, part.there)
        return [Placed(self.storages[part.segment.group].rows, part.there, self.lock)
                for part in flight.parts], flight.open

    @property
    def waiting(self):
        return self._submitted - self._next

    def apply(self, group, flat, sums, rule, sound=None):
        storage = self.storages[group]
        with self.lock:
            places = self._find(group, flat)
            at = self.slot_memory.index(places)
            storage.rows.write(at, *stepped(rule, *storage.rows.read(at), sums, sound))
            hot = places < storage.slots
            storage.dirty[places[hot]] = True
            if not bool(hot.all()):
                trained = self.slot_memory.host_rows(storage.kind, int((~hot).sum()))
                trained.copy(storage.rows.take(storage.kind, self.slot_memory.index(places[~hot])))
                self.host.write_behind(self.slot_memory.mark(), group, flat[~hot], trained)

    def finish(self):
        with self.stages.changed:
            while self._taken and self._taken[0].open.over:
                self._let_go(self._taken.popleft())
            self.stages.changed.notify_all()

    def read(self, group, flat):
        storage = self.storages[group]
        with self.lock:
            rows = self.host.fetch(group, flat)
            where, slots = storage.find(flat)
            rows.put(where, self._copies(storage, slots))
        return rows

    def flush(self):
        with self.lock:
            self.host.land()
            for group, storage in enumerate(self.storages):
                for flat, slots in storage.in_slots(dirty=True):
                    self.host.write(group, flat, self._copies(storage, slots))
                    storage.dirty[slots] = False
                    self.host.moved(group, flat)

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
        self.slot_memory.after(self._arrived)
        for group, storage in enumerate(self.storages):
            chosen, flat = self._numbers.rows_of(group, rows)
            found = slots[chosen] != NO_SLOT
            flat = flat[torch.from_numpy(found)]
            places = self._numbers.local(group, slots[chosen][found])
            for some, here in zip(flat.split(_MOST_AT_ONCE), places.split(_MOST_AT_ONCE)):
                brought = storage.kind.allocate(len(some), self.slot_memory.device)
                brought.copy(self.host.fetch(group, some))
                storage.rows.put(self.slot_memory.index(here), brought)
                self.host.moved(group, some)
            storage.place(flat, places)
            held += len(flat)
        self._released = self.slot_memory.mark()
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
                    for part in flight.parts
                    for rows in {part.brought, part.carried, part.taken_back} - {None}),
                "metadata": metadata, "metadata_bits_per_slot": 8 * metadata / self.slots,
            }

    def abandon(self):
        with self.stages.changed:
            # What is planned has changed the directory, and is carried out; the rest never was.
            self._abandoned = True
            kept = self.stages.begun("plan")
            for number in range(kept, self._submitted):
                del self._batches[number]
            self._submitted = kept
        try:
            self.stages.wait(lambda: self.stages.through("insert") == kept, "an orderly end")
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
        self.slot_memory.settle()
        self.placing.clear()
        for number in list(self.registered):
            self.device.unregister_table(self.registered.pop(number))

    def _copies(self, storage, slots):
        """Copies of the rows in slots int64[k], in host memory: Rows."""
        self.slot_memory.after(self._arrived)
        rows = self.slot_memory.host_rows(storage.kind, len(slots))
        rows.copy(storage.rows.take(storage.kind, self.slot_memory.index(slots)))
        self.slot_memory.wait(self.slot_memory.mark())
        return rows

    # Batches that are taken.

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
            self._released = self.slot_memory.mark()
            for part in flight.parts:
                self.storages[part.segment.group].release(part.area)
        del self._batches[self._finished]
        self._finished += 1

    def _arrive(self, number):
        """Wait until all rows of a batch are where it looks them up."""
        self._want(number)
        self.stages.wait(lambda: self.stages.through("insert") > number, f"batch {number}")

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
