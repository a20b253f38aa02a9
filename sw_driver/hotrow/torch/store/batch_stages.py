"""The stages of a batch whose rows come to slots: plan, collect, exchange, insert."""

from functools import partial

from .stages import Stage, Stages

_ENTRY_BYTES, _SLOT_BYTES = 12, 4  # of a row in a list, with its place; of a lookup's answer


class BatchStages:
    """Part of `CachedStore`: the stages, and when each may run.

    *Plan* says which row gets which slot, *collect* reads rows from the tables (GATHER) and those
    that leave from their slots, *exchange* is the way between the two memories, *insert* writes
    those that leave to the tables (SCATTER) and the others to their slots; then the batch trains.

    What keeps every row right, however the stages of different batches run beside each other:

    - A batch is retired, and the card gives its slots away, only when it has trained.
    - Collect of a batch waits for insert of every earlier one that was planned before this one's
      rows were marked: only such a one may have taken a row of it from its slot.
    - So that marks hold, no batch is retired that was planned after a mark whose batch is yet to be
      planned: what it brought was not there to be marked.
    - Collect waits until the rows without a slot of the batch that the plan names are back.

    - What the stages ask of the slots' memory is done beside the trainer, behind what it had asked
      for when it let the last batch go; the trainer goes on behind what a batch brought.

    `number` counts from the first batch on, the card's from the last reset.
    """

    def _make_stages(self, workers, before):
        return Stages([
            Stage("plan", self._may_plan, self._plan),
            Stage("collect", self._may_collect, self._collect),
            Stage("exchange", lambda number: number < self.stages.through("collect"),
                  self._exchange),
            Stage("insert", lambda number: number < self.stages.through("exchange"), self._insert),
        ], workers, before)

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
        bags = flight.request.bags
        with self.lock:
            self.statistics.planned([self.registered[each].number for each in bags.tables],
                                    bags.counts, placing, self.device.geometry.slots)
            self.statistics.link_bytes += (
                flight.batch.ids.nbytes + _SLOT_BYTES * len(placing.slots)
                + _ENTRY_BYTES * (len(placing.fills) + len(placing.evictions)))

    def _may_collect(self, number):
        if number >= self.stages.through("plan"):
            return False
        flight, earlier, inserted = self._batches[number], number - 1, self.stages.through("insert")
        while earlier >= inserted and self._batches[earlier].marked > number:
            earlier -= 1  # it was planned with this batch's rows marked
        if earlier >= inserted:
            return False
        # What was taken and not finished keeps its gradients until this batch has been trained,
        # if the trainer waits for this batch: the tables stay as they are.
        return (flight.wait_for < self._finished or self._abandoned
                or number == self._wanted == self._next)

    def _collect(self, number):
        for part in self._batches[number].parts:
            group, storage = part.segment.group, self.storages[part.segment.group]
            part.taken_back = self.slot_memory.host_rows(storage.kind, len(part.leaving))
            with self.lock:
                part.left = self.slot_memory.aside(partial(self._take_back, part, part.taken_back),
                                                    self._released)
            part.brought = self.host.fetch(group, part.fills)

    def _exchange(self, number):
        for part in self._batches[number].parts:
            if self.slot_memory.late:
                self.slot_memory.aside(partial(self._carry, part, part.brought))
            else:
                part.carried = part.brought
            self.slot_memory.wait(part.left)

    def _insert(self, number):
        for part in self._batches[number].parts:
            group, storage = part.segment.group, self.storages[part.segment.group]
            # While the slots hold these rows, too; without the lock, as that may have to wait.
            self.host.write(group, part.leaving, part.taken_back)
            with self.lock:
                part.area = storage.reserve(part.bypassed)
                hot = part.fill_slots < storage.slots
                storage.place(part.fills[hot], part.fill_slots[hot])
                part.at = part.places(part.slots, storage.slots)
                part.arrived = self._arrived = self.slot_memory.aside(
                    partial(self._put, part, part.places(part.fill_slots, storage.slots)),
                    self._released)
                for rows in (part.fills, part.leaving, part.fills[~hot]):  # the last go back, too
                    self.host.moved(group, rows)
            part.brought = part.taken_back = None

    # What is asked of the slots' memory; it may be done later.

    def _take_back(self, part, rows):
        storage = self.storages[part.segment.group]
        rows.copy(storage.rows.take(
            storage.kind, self.slot_memory.index(part.leaving_slots)))

    def _carry(self, part, rows):
        kind = self.groups[part.segment.group].kind
        part.carried = kind.allocate(len(rows), self.slot_memory.device)
        part.carried.copy(rows)

    def _put(self, part, places):
        self.storages[part.segment.group].rows.put(self.slot_memory.index(places), part.carried)
        part.there, part.carried = self.slot_memory.index(part.at), None
