"""The commands of the device contract: what each reads, and what it does."""

from dataclasses import dataclass
from enum import IntFlag

from .encoding import (
    AllFlag,
    BatchFlag,
    GatherFlag,
    InstallFlag,
    MarkFlag,
    Opcode,
    PlanFlag,
    PoolFlag,
    UpdateFlag,
)


@dataclass(frozen=True)
class Command:
    """One command: its queue, its flags, the operands it reads, and what it does."""

    opcode: Opcode
    queue: str  # "lookup", "move" or "both"
    operands: tuple[str, ...]
    flags: type[IntFlag] | None
    doc: str


_BATCH = ("source", "lengths", "count", "samples", "first_table", "table_count")

COMMANDS = {command.opcode: command for command in (
    Command(Opcode.NOP, "both", (), None, "Complete at once."),
    Command(Opcode.FENCE, "both", (), None,
            "Complete when every earlier command of the queue has completed and its writes have "
            "landed."),
    Command(Opcode.WAIT, "both", ("event", "value"), None,
            "Complete when the event counter has reached `value` (modulo 2**32, half-range)."),
    Command(Opcode.SIGNAL, "both", ("event", "value"), None, "Set the event counter."),
    Command(Opcode.OBSERVE, "lookup", _BATCH, BatchFlag,
            "Count every lookup of a batch. `hits` counts the lookups whose row has a counter. The "
            "row of a miss replaces the row with the lowest count of its set, unless that row has "
            "eviction credit left."),
    Command(Opcode.DECAY, "lookup", ("shift",), AllFlag,
            "Shift every count right and clear every eviction credit; a count of zero frees its "
            "entry. ALL frees every entry."),
    Command(Opcode.HARVEST, "lookup", ("destination", "count", "threshold"), None,
            "Write the `count` most accessed rows of all tables with a count of at least "
            "`threshold`, ordered by set, then by way. Among rows with the lowest written count, "
            "the first in that order are written. The counters keep their contents."),
    Command(Opcode.INSTALL, "lookup", ("source", "slots", "count"), InstallFlag,
            "Give each listed row a slot and write the slot, or NO_SLOT if both its sets are full. "
            "A row that has a slot keeps it and counts as a hit. On a card with a planner the "
            "policy numbers the row by its access count, and no batch holds the slot."),
    Command(Opcode.REMOVE, "lookup", ("source", "slots", "count"), AllFlag,
            "Free the slot of each listed row and write the slot, or NO_SLOT. ALL frees every slot "
            "and writes nothing; the next batch to be planned is then 0."),
    Command(Opcode.SPLIT, "lookup", (*_BATCH, "slots", "popular", "nonpopular", "misses"),
            BatchFlag,
            "Look up a batch in the directory and separate popular samples, whose lookups all hit "
            "(empty bags included), from the others. `slots` has a word per lookup: its slot, or "
            "MISS_FLAG plus an index into `misses`, or NO_SLOT for a refused lookup. `misses` "
            "lists missed rows in order of appearance, each once if the miss table of "
            "`miss_entries` entries has room for it; other rows may be listed at each appearance."),
    Command(Opcode.PLAN, "lookup",
            (*_BATCH, "value", "slots", "fill_slots", "victim_slots", "fills", "victims"), PlanFlag,
            "Give every row of batch `value` a slot: its own, else a free one as in INSTALL, else "
            "the slot of a row that no batch holds: the victim of the policy in the set that has "
            "more such rows. If there is none, the row is bypassed. Batches are planned in order, "
            "starting at 0 after a reset or a REMOVE with ALL. A batch holds its slots from PLAN "
            "or MARK until it is retired, see PLAN_RETIRED. `slots` has a word per lookup: a slot, "
            "SLOTS + k for the k-th bypassed row, or NO_SLOT for a refused lookup; SLOTS is the "
            "product of DIRECTORY_CHOICES, DIRECTORY_SETS and DIRECTORY_WAYS. `fills` lists the "
            "rows to be fetched, `fill_slots` their slots: operands of a GATHER with LISTED. "
            "`victims` lists the dirty rows that left a slot, `victim_slots` those slots: operands "
            "of a SCATTER, which must come before that GATHER. All lists are in order of first "
            "appearance, with each row once; a bypassed row for which the miss table has no room "
            "may be listed at each appearance. `hits` counts the lookups that found a slot; it "
            "includes a later lookup of a row that got its slot in this batch, unless the two were "
            "combined. A row's access count is its count before this lookup is counted. If the "
            "command is refused, or its lengths cannot be read or do not add up, nothing is "
            "planned and the same batch is planned next."),
    Command(Opcode.MARK, "lookup", (*_BATCH, "value"), MarkFlag,
            "Hold the slots that rows of batch `value` have until the batch is retired. The batch "
            "may be planned later."),
    Command(Opcode.GATHER, "move",
            ("source", "targets", "destination", "state_destination", "count", "stride"),
            GatherFlag,
            "Copy listed rows of tables to consecutive or listed slots. If a slot is listed twice, "
            "a card with one row port leaves the last row in it."),
    Command(Opcode.SCATTER, "move",
            ("source", "targets", "rows", "state_rows", "count", "stride"), GatherFlag,
            "Copy consecutive or listed slots to listed rows of tables. If a row is listed twice, "
            "a card with one row port leaves the last slot in it. The contents of rows that "
            "overlap each other in another way, or overlap the slots, are undefined."),
    Command(Opcode.POOL, "move",
            ("source", "lengths", "weights", "targets", "destination", "count", "bags",
             "first_table", "table_count", "stride"), PoolFlag,
            "Sum each bag of listed rows of tables to one row of their type; an empty bag gives "
            "zeros. A bag is not written if one of its rows is refused. If the list ends within a "
            "bag, this bag and all later ones are not written. If the table of the first row, or "
            "first column, is unknown or its rows are too long, no bag is written. The error of "
            "the first bag with one is reported; that of its slot has the index of its first row."),
    Command(Opcode.UPDATE, "move",
            ("source", "lengths", "targets", "gradients", "count", "gradient_count", "stride",
             "lr", "eps"), UpdateFlag,
            "Take one step of SGD or row-wise Adagrad on each listed row with the sum of its "
            "gradients, at least one, added as POOL adds rows. A row is not written if one "
            "of its gradients is refused. If a row has no gradients, or the array ends within its "
            "gradients, this row and all later ones are not written. If the table of the first "
            "row is unknown or its rows are too long, no row is written. An error of a gradient "
            "has the index of its row. The contents of a row that is listed twice are undefined."),
    Command(Opcode.COPY, "move", ("source", "destination", "count"), None,
            "Copy `count` bytes. Addresses and count are multiples of 4. The contents of bytes "
            "that are both source and destination are undefined. The bytes move in pieces of "
            "ROW_BYTES, of which the last may be shorter: the completion's `entries` and error "
            "index count pieces."),
    Command(Opcode.FILL, "move", ("destination", "count", "value"), None,
            "Set every 4 bytes of `count` bytes to `value`. Alignment, pieces and errors are those "
            "of COPY."),
)}
