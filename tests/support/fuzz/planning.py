"""Draws PLAN and MARK for a `CommandSource`, and tracks the batches that a card has planned."""

from dataclasses import replace

from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import (
    NO_BATCH,
    ROW_ENTRY_BYTES,
    AllFlag,
    Opcode,
    PlanFlag,
    Status,
)

WORD = 0xFFFF_FFFF
# A card with 64 slots and a window of 4 batches, whose batch stamps wrap around early.
STARVED = replace(preset("tiny"), name="starved", arithmetic=0,
                  directory_sets=16, directory_partitions=2, miss_entries=32, stamp_bits=4)
RESULTS = {"slots": 4, "fill_slots": 4, "victim_slots": 4, "fills": ROW_ENTRY_BYTES,
           "victims": ROW_ENTRY_BYTES}  # bytes per lookup


class PlanningCommands:
    """The part of `CommandSource` that draws PLAN and MARK."""

    def plan(self, number):
        """PLAN of a batch; rarely with both COUNT and ADMIT, which the card refuses."""
        rng = self.rng
        operands = self.batch(Opcode.PLAN)
        flags = operands["flags"] | self._policy()
        flags |= PlanFlag.ADMIT * int(rng.random() < 0.3)
        flags |= PlanFlag.READ_ONLY * int(rng.random() < 0.3)
        if flags & PlanFlag.ADMIT and rng.random() < 0.95:
            flags &= ~PlanFlag.COUNT
        results = {name: self._result(size * operands["count"]) for name, size in RESULTS.items()}
        return operands | results | {"flags": int(flags), "value": number & WORD}

    def mark(self, number):
        """MARK of a batch."""
        operands = self.batch(Opcode.MARK)
        flags = int(operands["flags"]) & ~PlanFlag.COUNT
        return operands | {"flags": flags, "value": number & WORD}

    def _policy(self):
        return int(self.rng.integers(4)) * int(PlanFlag.POLICY_LOW)


class PlannedBatches:
    """Newest planned and retired batch, as the host knows them between rounds.

    Attributes
    ----------
    planned, retired : int
    """

    def __init__(self):
        self.planned = self.retired = -1

    def follow(self, commands, completions, retired):
        """Update the state by the completions of a round's lookup commands.

        Parameters
        ----------
        commands : list of dict
        completions : list of dict
        retired : int
            The register PLAN_RETIRED after the round.
        """
        for command, done in zip(commands, completions, strict=True):
            if command["opcode"] == Opcode.REMOVE and done["status"] == Status.OK and (
                    command.get("flags", 0) & AllFlag.ALL):
                self.planned = -1
            elif done["status"] == Status.BATCH_ORDER:
                self.planned = done["error_index"] - 1
            elif command["opcode"] == Opcode.PLAN and done["lookups"]:
                self.planned = command["value"]
        self.retired = -1 if retired == NO_BATCH else retired

    def retirement(self, rng):
        """Value for PLAN_RETIRED: mostly a valid batch, else one that the card refuses."""
        if rng.random() < 0.1:
            return int(rng.choice([self.retired - 1, self.planned + 1, 1 << 31])) & WORD
        return int(rng.integers(self.retired, self.planned + 1)) & WORD
