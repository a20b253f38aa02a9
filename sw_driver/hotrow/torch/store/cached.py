"""Rows in slots of the trainer's memory, which a device fills before their batch trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from ...contract.errors import Error
from ...device import Device
from ...operands.batch import Batch
from ...system.forks import ForkLock
from ...system.interrupts import call_all
from ..features.bags import Bags
from ..features.configs import TableGroup
from ..features.grouping import Request
from ..memory.rows import Rows
from ..memory.slot_memory import SlotMemory, to_device
from ..optim.arithmetic import Stepping
from ..optim.card_bags import StagedBags
from ..optim.gradients import LocatedRows, Staged, StagedGradients
from ..optim.rules import Rule
from .batch_stages import BatchStages
from .cold_pooling import ColdPooling
from .device_tables import need_no_tables
from .host_tables import HostTables
from .in_flight import BatchInFlight, BatchWindow, PendingBackward
from .micro_batches import MicroBatches
from .options import Options
from .placement_policy import Policy
from .row_updates import RowUpdates
from .slot_filling import SlotFilling
from .slot_map import SlotMap
from .slot_moves import SlotMoves
from .statistics import CacheStatistics
from .write_back import WriteBack


class CachedStore:
    """Slots, and a bypass area for rows without one of the batches in flight.

    Parameters
    ----------
    groups : sequence of TableGroup
    device : Device
        Without tables of its own; nothing else may plan on it.
    policy : LookAheadPolicy or HotlinePolicy
    options : Options
        With a number of `workers`.
    memory : SlotMemory, optional
        Memory of the slots; host memory by default.
    cold : callable, optional
        Makes the ColdPooling from (groups, device, slot map, statistics).
    owns_device : bool
        Whether `close` closes the device.

    Attributes
    ----------
    filling : SlotFilling
    write_back : WriteBack
    """

    several_ranks = False

    def __init__(self, groups: Sequence[TableGroup], device: Device, policy: Policy,
                 options: Options, memory: SlotMemory | None = None,
                 cold: Callable[..., ColdPooling] | None = None, owns_device: bool = False) -> None:
        self.groups = tuple(groups)
        depth, look_ahead = options.depth, options.look_ahead
        if depth < 1 or look_ahead < 0 or depth + look_ahead >= policy.window:
            raise Error(f"depth {depth} and look_ahead {look_ahead}: this card follows "
                        f"{policy.window} batches, and needs at least one")
        need_no_tables(device)
        self.device, self.policy, self._owns_device = device, policy, owns_device
        self.depth, self.look_ahead = depth, look_ahead
        self.lock, self.slot_memory = ForkLock(), memory or SlotMemory()
        policy.clear()  # before tables come, whose parts of the directory may be others
        self.slot_map = SlotMap(self.groups, device, options.share, self.slot_memory)
        self.storages, self.slots = self.slot_map.storages, self.slot_map.slots
        self.on_card = self.slot_map.on_card
        self.statistics = CacheStatistics(self.slot_map.names)
        self.host = HostTables(self.groups, device, self.slot_map, self.statistics,
                               self.slot_memory)
        self.moves = SlotMoves(self.groups, device, self.slot_map, self.slot_memory)
        self.cold = cold and cold(self.groups, device, self.slot_map, self.statistics)
        self.pools_cold_rows = self.cold is not None
        self.window = BatchWindow(policy.window, look_ahead)
        self.batch_stages = BatchStages(
            self.window, policy, self.slot_map, self.host, self.moves, self.statistics,
            self.slot_memory, self.lock, options, self.cold)
        self.stages = self.batch_stages.stages
        self.updates = RowUpdates(self.groups, self.window, self.slot_map, self.host,
                                  self.slot_memory, self.lock)
        self.write_back = WriteBack(device, self.slot_map, self.host, self.window, self.updates,
                                    self.batch_stages, self.slot_memory, self.lock)
        self.filling = SlotFilling(device, policy, self.slot_map, self.host, self.moves,
                                   self.window, self.write_back, self.batch_stages,
                                   self.slot_memory)
        self.micro_batches = MicroBatches(self.window, self.stages, self.slot_map,
                                          self.slot_memory, self.lock)

        self.copies_excess = False

    @property
    def card(self) -> CachedStore:
        return self

    @property
    def ahead(self) -> int:
        return self.depth - 1 + self.look_ahead

    # Batches.

    @property
    def waiting(self) -> int:
        return self.window.submitted - self.window.next

    def coming(self, bags: Bags | None = None) -> Request | None:
        if not self.waiting or (bags is not None and not bags.lookups):
            return None  # a batch without lookups needs no rows, and was not recorded
        return self.window.batches[self.window.next].request

    def check_room(self) -> None:
        """Raise Error if no further batch with lookups can be taken before one has trained."""
        if not self.copies_excess:
            self.window.check_room(self.window.next)

    def prefetch(self, request: Request) -> None:
        if not request.bags.lookups:
            return
        self._check_open()
        for group in self.groups:
            if group.tables.disk is not None:
                group.tables.disk.check_room()
        batch = self.slot_map.batch(request.bags)
        self._check_size(request.bags, batch)
        with self.stages.lock:
            self.window.submit(BatchInFlight(request, batch))
            self.stages.wake()
        self.stages.start()

    def take(self, request: Request,
             begin: Callable[[], None] | None = None) -> tuple[list[LocatedRows], PendingBackward]:
        if not request.bags.lookups:
            return [LocatedRows(self.storages[each.group].rows, each.flat, self.lock)
                    for each in request.segments], PendingBackward()
        if not self.waiting:
            if self.copies_excess and self.window.full:
                return self._take_copies(request)
            self.window.check_room(self.window.next)  # what is refused must not be queued
            self.prefetch(request)
        number = self.window.next
        if self.coming() is not request:
            raise Error(f"batch {number} was prefetched with another request: batches train in "
                        f"the order of prefetch()")
        with self.stages.lock:
            self.window.want(number)
            self.stages.wake()
        self.stages.wait(lambda: self.stages.done[-1] > number, f"batch {number}")
        flight = self.window.take()
        for transfer in flight.transfers:
            self.slot_memory.wait_event(transfer.insert_event, transfer.device_places)
        located = self._located(flight)
        if begin is not None:
            begin()
        return located, flight.pending

    def _take_copies(self, request: Request) -> tuple[list[LocatedRows], PendingBackward]:
        """Copies of the rows of a batch beyond those that the card follows: it gets no slots."""
        pending = PendingBackward()
        self.updates.copied.append((request, pending))
        return self.look(request), pending

    def open_batches(self) -> Iterator[tuple[Request, list[LocatedRows], PendingBackward]]:
        for flight in reversed(self.window.taken):
            yield flight.request, self._located(flight), flight.pending

    def _located(self, flight: BatchInFlight) -> list[LocatedRows]:
        """The rows of a batch that was taken: list of LocatedRows."""
        return [LocatedRows(self.storages[transfer.segment.group].rows, transfer.device_places,
                            self.lock, transfer.sums, transfer.cold,
                            self.storages[transfer.segment.group].grouper, flight,
                            transfer.bypassed) for transfer in flight.transfers]

    def finish(self, holds_gradients: bool = False) -> None:
        if holds_gradients:
            return
        with self.stages.lock:
            while self.window.taken and self.window.taken[0].pending.done:
                with self.lock:
                    self.updates.write_owed()
                self._release(self.window.finish())
            self.updates.copied = [each for each in self.updates.copied if not each[1].done]
            self.stages.wake()

    def abandon(self) -> None:
        with self.stages.lock:
            # A planned batch has changed the directory and runs to its end; the others are dropped.
            self.window.abandoning, submitted = True, self.window.submitted
            kept = self.batch_stages.withdraw()
        failure = None
        try:
            self.stages.wait(lambda: self.stages.through("insert") == kept, "an orderly end")
        except BaseException as error:
            failure = error
        self.stages.stop()
        self.window.abandoning = False
        try:
            self.policy.drop(kept - self.window.base, submitted - self.window.base)
        except Error as error:  # of a device that does not answer
            failure = failure or error
        self.batch_stages.forget_marks(kept)
        while self.waiting:
            self.window.take()
        if failure is not None:
            try:
                self.flush()
            except Exception as lost:
                raise lost from failure
            raise failure

    def _check_size(self, bags: Bags, batch: Batch) -> None:
        geometry, number = self.device.geometry, self.window.submitted
        most = geometry.batch_samples
        if batch.lookups > geometry.batch_lookups:
            raise Error(f"batch {number} has {batch.lookups} lookups: this card takes at most "
                        f"{geometry.batch_lookups}, use smaller batches and accumulate gradients")
        if batch.samples > most:
            features = batch.samples // bags.samples
            of = f" for {features} features of a table" if features > 1 else ""
            raise Error(f"batch {number} has {bags.samples} samples{of}: this card takes at most "
                        f"{most // features}, use smaller batches and accumulate gradients")
        batch.fits = geometry

    def _release(self, flight: BatchInFlight) -> None:
        with self.lock:
            self.batch_stages.released = self.slot_memory.record_event()
            for transfer in flight.transfers:
                self.storages[transfer.segment.group].release(transfer.bypass_places)

    # Rows.

    def apply(self, group: int, flat: torch.Tensor, sums: torch.Tensor, rule: Stepping,
              finite: torch.Tensor | None = None) -> None:
        self._check_open()
        self.updates.apply(group, flat, sums, rule, finite)

    def step(self, staged: Sequence[StagedGradients], rule: Rule,
             finite: torch.Tensor | None = None) -> Callable[[], None]:
        self._check_open()
        return self.updates.step(staged, rule, finite)

    def look(self, request: Request) -> list[LocatedRows]:
        located = []
        for segment in request.segments:
            distinct, at = torch.unique(segment.flat, return_inverse=True)
            rows = self.read(segment.group, distinct)
            located.append(
                LocatedRows(Rows(to_device(rows.weights, self.slot_memory.device)), at))
        return located

    def read(self, group: int, flat: torch.Tensor) -> Rows:
        """Copies of flat rows int64[u] of a group, with every applied step."""
        if self.closed:
            tables = self.groups[group].tables
            if tables.disk is not None:
                return tables.disk.read(flat)
            return tables.rows.take(tables.kind, flat)
        storage = self.storages[group]
        with self.lock:
            self.updates.write_owed()
            fetched = self.host.fetch(group, flat)
            rows = self.slot_memory.staging_rows(storage.kind, len(flat))
            rows.copy(fetched)
            self.host.give_back(group, fetched)
            where, slots = storage.find(flat)
            rows.put(where, self.write_back.read(storage, slots))
        return rows

    def flush(self) -> None:
        self.write_back.flush()

    def upload(self) -> None:
        if not self.closed:
            self.device.upload()

    def reload(self) -> None: ...

    def reset(self) -> None:
        if not self.closed:
            self.window.need_idle("load other rows")
            self.filling.clear()

    def observe(self, request: Request) -> None:
        if request.bags.lookups:
            self._check_open()
            batch = self.slot_map.batch(request.bags)
            self.device.observe(batch)
            self.statistics.sent(batch.ids.nbytes)

    def device_table(self, number: int) -> int:
        """The device's number of a table of the collection."""
        return self.slot_map.registered[number].number

    def apply_bags(self, group: int, staged: Staged, rule: Rule) -> None:
        assert self.cold is not None and isinstance(staged, StagedBags), (
            "bags are staged where the card pools rows")
        self.cold.apply(group, staged, rule)

    def memory(self) -> dict[str, float]:
        """Bytes beside the tables, without gradients."""
        with self.stages.lock, self.lock:
            row_bytes = [group.kind.row_bytes for group in self.groups]
            metadata = sum(storage.metadata_bytes for storage in self.storages)
            return {
                "slots": sum(storage.slots * size
                             for storage, size in zip(self.storages, row_bytes, strict=True)),
                "bypass": sum(storage.area_rows * size
                              for storage, size in zip(self.storages, row_bytes, strict=True)),
                "staging": sum(
                    len(rows) * row_bytes[transfer.segment.group]
                    for flight in self.window.batches.values() for transfer in flight.transfers
                    for rows in transfer.staging),
                "metadata": metadata, "metadata_bits_per_slot": 8 * metadata / self.slots,
            }

    @property
    def closed(self) -> bool:
        """Whether the device was given back: rows are in the tables, and do not train."""
        return self.slot_map.closed

    def _check_open(self) -> None:
        """Raise Error after `close`, when rows are read in the tables and do not train."""
        self.slot_map.check_open()
        for group in self.groups:
            if group.tables.disk is not None:
                group.tables.disk.check_open()

    def close(self) -> None:
        try:
            self._give_back()
        finally:
            if self._owns_device:
                self.device.close()

    def _give_back(self) -> None:
        """Write back, and leave the device without the collection's tables, as far as it answers;
        then raise the first error."""
        if self.closed:
            return
        call_all((self.abandon, self.flush, *self._leave_device(),
                  self.slot_map.registered.clear))

    def _leave_device(self) -> Iterator[Callable[[], object]]:
        """The calls after which the device has nothing of the collection: an iterator."""
        yield self.slot_memory.synchronize_all
        yield self.policy.clear
        yield self.host.close
        yield self.moves.close
        if self.cold is not None:
            yield self.cold.close
        yield from self.slot_map.leave()
