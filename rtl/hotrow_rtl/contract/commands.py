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
            "Complete when every earlier command of the queue has, and its writes have landed."),
    Command(Opcode.WAIT, "both", ("event", "value"), None,
            "Complete when the event counter has reached `value` (modulo 2**32, half-range)."),
    Command(Opcode.SIGNAL, "both", ("event", "value"), None, "Set the event counter."),
    Command(Opcode.OBSERVE, "lookup", _BATCH, BatchFlag,
            "Count every lookup of a batch. `hits` were resident in the counters, the "
            "rows of `misses` took the place of the least counted of their set, or met one there "
            "that is counted too often to leave yet."),
    Command(Opcode.DECAY, "lookup", ("shift",), AllFlag,
            "Shift every count right; a count of zero frees its entry, and each row may leave "
            "until it is counted again. ALL frees every entry."),
    Command(Opcode.HARVEST, "lookup", ("destination", "count", "threshold"), None,
            "Write the `count` most accessed rows, over all tables, whose count is at least "
            "`threshold`. Order: by set, then by way; ties at the last rank are cut in "
            "that order. The counters keep their contents."),
    Command(Opcode.INSTALL, "lookup", ("source", "slots", "count"), InstallFlag,
            "Give each listed row a slot and write its number, or NO_SLOT if both its sets are "
            "full. A row already present keeps its slot and counts as a hit. On a card with a "
            "planner its number is that of a row which comes with the count that the counters hold "
            "of it, and no batch needs the slot."),
    Command(Opcode.REMOVE, "lookup", ("source", "slots", "count"), AllFlag,
            "Free the slot of each listed row and write its number, or NO_SLOT. ALL frees every "
            "slot and writes nothing; the next batch to be planned is then 0."),
    Command(Opcode.SPLIT, "lookup", (*_BATCH, "slots", "popular", "nonpopular", "misses"),
            BatchFlag,
            "Tell hits from misses, and popular samples (all lookups hit; an empty bag does not "
            "miss) from the others. `slots` has a word per lookup: its slot, or MISS_FLAG plus an "
            "index into `misses`, or NO_SLOT for a refused lookup. Misses are listed in order of "
            "appearance, each row once while the miss table of `miss_entries` places has one for "
            "it; other rows may be listed at each appearance."),
    Command(Opcode.PLAN, "lookup",
            (*_BATCH, "value", "slots", "fill_slots", "victim_slots", "fills", "victims"), PlanFlag,
            "Give every row of batch `value` a slot: its own, else a free one as in INSTALL, else "
            "that of the row which no batch needs, in the set with more such rows, and which goes "
            "first by the policy. Where there "
            "is none the row is bypassed. Batches are planned in order, from 0 on after a reset or "
            "a REMOVE with ALL. A batch needs a slot from PLAN or MARK until it is retired, see "
            "PLAN_RETIRED. `slots` has a word per lookup: a slot, SLOTS + k of the k-th bypassed "
            "row, or NO_SLOT for a refused lookup; SLOTS is what DIRECTORY_CHOICES, "
            "DIRECTORY_SETS and DIRECTORY_WAYS multiply to. `fills` lists the rows to be fetched, "
            "`fill_slots` their slots: a GATHER with LISTED takes both. `victims` lists the dirty "
            "rows that left a slot, `victim_slots` those slots: for a SCATTER, to be carried out "
            "before that GATHER. All lists are in order of first appearance, each row once; "
            "but of bypassed rows only those for which the miss table has a place, the others may "
            "be listed at each appearance. `hits` are lookups that found a slot: also of a row "
            "that the batch itself brings, those beyond the beats in which lookups are joined. A "
            "row's access count is what the counters hold of it when it comes, before it is "
            "counted. Nothing is planned, and the batch is "
            "not the one planned last, if the command is refused or its lengths cannot be read or "
            "do not add up."),
    Command(Opcode.MARK, "lookup", (*_BATCH, "value"), MarkFlag,
            "Keep the slots that rows of batch `value` have until it is retired. It is planned "
            "later, or may be never."),
    Command(Opcode.GATHER, "move",
            ("source", "targets", "destination", "state_destination", "count", "stride"),
            GatherFlag,
            "Copy the listed rows of registered tables to consecutive or listed slots. Of equal "
            "slots the last one's row stays, over one row port."),
    Command(Opcode.SCATTER, "move",
            ("source", "targets", "rows", "state_rows", "count", "stride"), GatherFlag,
            "Copy consecutive or listed slots to the listed rows of registered tables. Of equal "
            "rows in the list the last one stays, over one row port; what rows hold that overlap "
            "otherwise, or the slots, is undefined."),
    Command(Opcode.POOL, "move",
            ("source", "lengths", "weights", "targets", "destination", "count", "bags", "stride"),
            PoolFlag,
            "Sum each bag of listed rows of registered tables to one row of their type, zeros of "
            "an empty bag. A bag is not written if one of its rows is refused, nor any bag from "
            "the first on whose rows are not all in the list, nor any at all if the table of the "
            "first row is unknown or cannot be carried. What is wrong with a bag's slot has the "
            "index of the bag's first row."),
    Command(Opcode.UPDATE, "move",
            ("source", "lengths", "targets", "gradients", "count", "gradient_count", "stride",
             "lr", "eps"), UpdateFlag,
            "Take one step of SGD or row-wise Adagrad on each listed row of registered tables, "
            "by the sum of its gradients, at least one. A row is not written if one of its "
            "gradients is refused, nor any row from the first on without gradients, or whose "
            "gradients are not all in the array, nor any at all as in a POOL. What is wrong with "
            "a gradient has the index of its row. What a row holds that is listed twice is "
            "undefined."),
    Command(Opcode.COPY, "move", ("source", "destination", "count"), None,
            "Copy `count` bytes. Addresses and count are multiples of 4; what bytes hold that are "
            "source and destination is undefined. The bytes move in pieces of ROW_BYTES, the last "
            "one shorter: the completion's `entries` and error index count pieces."),
    Command(Opcode.FILL, "move", ("destination", "count", "value"), None,
            "Set every 4 bytes of `count` bytes to `value`; else as COPY."),
)}
