"""The stages that bring a batch's rows to slots: plan, collect, exchange, insert."""

from collections.abc import Iterator
from functools import partial
from threading import RLock

from ..memory.rows import Rows
from ..memory.slot_memory import Event, SlotMemory
from .cold_pooling import ColdPooling
from .host_tables import HostTables
from .in_flight import BatchWindow, GroupTransfer
from .options import Options
from .placement_policy import Policy
from .slot_map import SlotMap
from .slot_moves import SlotMoves
from .stages import Stage, Stages
from .statistics import CacheStatistics

_CALM = 64  # batches
_ENTRY_BYTES, _SLOT_BYTES = 12, 4  # of a row in a list, with its place; of a lookup's slot


class BatchStages:
    """The stages, and the conditions under which each may run.

    *Plan* gives rows their slots, and begins to read those on disk. *Collect* reads
    fills from the tables (GATHER) and victims from their slots. *Exchange* copies rows between
    the two memories. *Insert* writes victims to the tables (SCATTER) and fills to their slots; then
    the batch trains. Where the device reaches slots and tables, *insert* alone moves rows: SCATTER
    reads victims in their slots, then GATHER writes fills to theirs.

    Stages of different batches overlap. Rows stay right because:

    - The store retires a batch, and with it the card may evict the batch's rows, only when it has
      trained.
    - Collect of a batch waits for insert of every earlier batch that was planned before this one's
      rows were marked: only such a batch may have evicted a row that this one needs.
    - Where all rows move in *insert*, that order suffices, and marks only save evictions of rows
      that come soon: batches are marked while plans evict.
    - Marks hold because no batch is retired that was planned after a mark whose batch is not yet
      planned: the rows that it fetched were not resident when the mark ran.
    - Collect waits until the bypassed rows of the batch that the plan names are in the tables.
    - Operations of the stages on the slots' memory run after those that the trainer issued before
      it released the last batch; the trainer's run after the insert of its batch.

    Its parameters are parts of a `CachedStore`; the lock is held while slots and statistics change.

    Attributes
    ----------
    stages : Stages
    released : event
        After the last operation of the trainer on batches that were released.
    inserted : event
        After the last insert.
    """

    def __init__(self, window: BatchWindow, policy: Policy, slot_map: SlotMap, host: HostTables,
                 moves: SlotMoves, statistics: CacheStatistics, memory: SlotMemory, lock: RLock,
                 options: Options, cold: ColdPooling | None = None) -> None:
        self._window, self._policy, self._slot_map = window, policy, slot_map
        self._host, self._statistics, self._memory, self._lock = host, statistics, memory, lock
        self._moves, self._options, self._cold = moves, options, cold
        self._marked = 0  # batches whose rows were marked
        self._evicted = -_CALM  # last batch whose plan evicted rows
        self.released = memory.record_event()
        self.inserted: Event = None
        on_disk = any(group.tables.disk is not None for group in slot_map.groups)
        self.stages = (_PlanFirst if on_disk else Stages)([
            Stage("plan", self.may_plan, self.plan),
            Stage("collect", self.may_collect, self.collect),
            Stage("exchange", lambda number: number < self.stages.done[1], self.exchange),
            Stage("insert", lambda number: number < self.stages.done[2], self.insert),
        ], options.workers or 0, idle=self._moves_nothing)

    def restart(self) -> None:
        """Follow a clear of the directory: the next batch is the device's batch 0."""
        self._window.base = self._window.submitted

    def withdraw(self) -> int:
        """Drop the batches that are not planned: the number of the first. A plan that has begun may
        mark them: let the policy drop them once it has ended."""
        kept = self.stages.begun("plan")
        self._window.withdraw(kept)
        return kept

    def forget_marks(self, kept: int) -> None:
        """Treat batches from number `kept` on as not marked."""
        self._marked = min(self._marked, kept)

    def may_plan(self, number: int) -> bool:
        window = self._window
        return number < window.submitted and (
            number - window.finished < self._options.depth or number == window.wanted)

    def plan(self, number: int) -> None:
        window, policy = self._window, self._policy
        flight, base = window.batches[number], window.base
        with self.stages.lock:
            coming = [] if self._calm(number) else [
                window.batches[each] for each in range(
                    number, min(window.submitted, number + self._options.look_ahead + 1))]
            retired = min(window.finished, number if flight.marked_at is None
                          else flight.marked_at) - 1
        marks = []
        for ahead, each in enumerate(coming, number):
            if each.marked_at is None and ahead - retired < policy.window:
                marks.append((ahead - base, each.batch))
                each.marked_at = number
                self._marked = max(self._marked, ahead + 1)
        flight.marked = self._marked
        segments, lookups = flight.request.segments, flight.batch.lookups
        places = self._slot_map.new_places(segments, lookups)
        placement = policy.place(flight.batch, number - base, retired - base, marks, flight.lists,
                                 places)
        fills, evictions = len(placement.fills), len(placement.evictions)
        if evictions:
            self._evicted = number
        if placement.wait_for is not None:
            flight.wait_for = placement.wait_for + base
        with self._lock:
            flight.transfers = [self._slot_map.transfer(each, placement, places, policy.flag,
                                                        self._cold is None) for each in segments]
            self._statistics.planned(self._slot_map.lookups(flight.request.bags), lookups,
                                     placement, flight.transfers, fetched=self._cold is None)
            self._statistics.sent(flight.batch.ids.nbytes + _SLOT_BYTES * lookups
                                  + _ENTRY_BYTES * (fills + evictions))
        if not fills and not evictions:
            flight.lists.release()
            if self._cold is None and not self._memory.asynchronous:
                for transfer in flight.transfers:
                    transfer.device_places = transfer.places
                flight.resident = True
                return
        for transfer in flight.transfers:
            transfer.ticket = self._host.begin(transfer.segment.group, transfer.fills.flat)

    def _calm(self, number: int) -> bool:
        """Whether the rows of a batch are not marked: plans have evicted none for a while, so that
        marks would hold none back, and the order in which rows move directly needs no marks."""
        return number - self._evicted >= _CALM and all(self._moves.direct)

    def _moves_nothing(self, number: int) -> bool:
        """Whether every row of a planned batch was in its slot."""
        return self._window.batches[number].resident

    def may_collect(self, number: int) -> bool:
        if number >= self.stages.done[0]:
            return False
        window, inserted = self._window, self.stages.done[-1]
        flight, earlier = window.batches[number], number - 1
        while earlier >= inserted and window.batches[earlier].marked > number:
            earlier -= 1  # it was planned with this batch's rows marked
        if earlier >= inserted:
            return False
        # A batch that was taken and not finished keeps its gradients until this batch has trained,
        # if the trainer waits for this batch: the tables do not change meanwhile.
        return (flight.wait_for < window.finished or window.abandoning
                or number == window.wanted == window.next)

    def collect(self, number: int) -> None:
        for transfer in self._window.batches[number].transfers:
            group = transfer.segment.group
            direct = self._moves.direct[group]
            if len(transfer.victims) and not direct:
                transfer.written_back = self._host.staging(group, len(transfer.victims))
                with self._lock:
                    transfer.read_event = self._memory.run_async(
                        partial(self._read_victims, transfer, transfer.written_back),
                        self.released)
            if self._cold is not None:
                with self._lock:
                    self._cold.separate(transfer)
                self._cold.start(transfer)
            if not direct:
                transfer.fetched = self._host.fetch(group, transfer.fills.flat,
                                                    transfer.fills.listed, transfer.ticket)

    def exchange(self, number: int) -> None:
        for transfer in self._window.batches[number].transfers:
            if self._memory.asynchronous and transfer.fetched is not None:
                self._memory.run_async(partial(self._upload, transfer, transfer.fetched))
            else:
                transfer.uploaded = transfer.fetched
            self._memory.synchronize(transfer.read_event)
            if self._cold is not None:
                self._cold.finish(transfer)

    def insert(self, number: int) -> None:
        flight = self._window.batches[number]
        for transfer in flight.transfers:
            group = transfer.segment.group
            storage, victims = self._slot_map.storages[group], transfer.victims
            # Before the slots change, and without the lock, because this may wait.
            if transfer.written_back is not None:
                self._write_victims(transfer, transfer.written_back)
            elif len(victims):
                self._host.land()
                self._moves.scatter(group, victims.flat, transfer.victim_slots, victims.listed)
            with self._lock:
                try:
                    self._assign(transfer)
                    transfer.insert_event = self.inserted = self._memory.run_async(
                        partial(self._write_fills, transfer), self.released)
                except BaseException:  # the slots may hold neither these rows nor those before
                    places = transfer.fill_places
                    storage.clear(places[places < storage.slots].long())
                    raise
                self._count_moved(transfer)
            for rows in (transfer.fetched, transfer.written_back):
                self._host.give_back(group, rows)
            transfer.fetched = transfer.written_back = None
        flight.lists.release()

    def _assign(self, transfer: GroupTransfer) -> None:
        """Record which rows the places of fills hold."""
        storage = self._slot_map.storages[transfer.segment.group]
        flat, places = transfer.fills.flat, transfer.fill_places
        if not transfer.bypassed:
            storage.assign(flat, places)
        elif len(transfer.bypass_places) == len(flat):
            storage.bypass(flat, places.long())
        else:
            filled = places < storage.slots
            storage.assign(flat[filled], places[filled])
            storage.bypass(flat[~filled], places[~filled].long())

    def _write_victims(self, transfer: GroupTransfer, rows: Rows) -> None:
        """Write victims to the tables; on disk only those that were trained since they were read
        or committed, because each one takes its bytes of the log."""
        group, victims = transfer.segment.group, transfer.victims
        if self._slot_map.groups[group].tables.disk is None:
            self._host.write(group, victims.flat, rows, victims.listed)
            return
        trained = self._slot_map.storages[group].dirty[transfer.victim_slots.long()]
        kind = self._slot_map.groups[group].kind
        self._host.write(group, victims.flat[trained], rows.take(kind, trained))

    def _count_moved(self, transfer: GroupTransfer) -> None:
        fills, victims = transfer.fills, transfer.victims
        moved = fills.with_slot
        if len(victims):
            moved = moved + victims.with_slot
        if fills.bypassed:  # they cross the link twice
            moved = moved + 2 * fills.without_slot
        self._host.count_moved(transfer.segment.group, moved,
                               len(fills) + fills.bypassed + len(victims))

    # Operations on the slots' memory, which may run later.

    def _read_victims(self, transfer: GroupTransfer, rows: Rows) -> None:
        storage = self._slot_map.storages[transfer.segment.group]
        rows.copy(storage.rows, self._memory.indices(transfer.victim_slots))

    def _upload(self, transfer: GroupTransfer, rows: Rows) -> None:
        kind = self._slot_map.groups[transfer.segment.group].kind
        transfer.uploaded = kind.allocate(len(rows), self._memory.device)
        transfer.uploaded.copy(rows)

    def _write_fills(self, transfer: GroupTransfer) -> None:
        group, fills = transfer.segment.group, transfer.fills
        if transfer.uploaded is not None:
            self._slot_map.storages[group].rows.put(
                self._memory.indices(transfer.fill_places), transfer.uploaded)
        elif len(fills):
            self._host.land()
            self._moves.gather(group, fills.flat, transfer.fill_places, fills.listed)
        transfer.device_places = self._memory.indices(transfer.places)
        transfer.uploaded = None


class _PlanFirst(Stages):
    """Stages whose first begins reads of a disk, which take longest: it comes before the others.
    """

    def choose(self, ready: Iterator[int]) -> int:
        found = list(ready)
        return 0 if 0 in found else next(iter(found), -1)
