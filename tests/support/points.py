"""The functional points that the tests of the card must reach, and how each is counted.

A point is a note of `covered`, as words, or a bit of a signal of the hardware that must toggle.
"""

from hotrow_rtl.contract.command_rules import PLANNING, rules
from hotrow_rtl.contract.commands import COMMANDS
from hotrow_rtl.contract.encoding import QUEUES, Opcode, PlanPolicy, Status

from .covered import CARD

ROWS = (Opcode.INSTALL, Opcode.REMOVE, Opcode.GATHER, Opcode.SCATTER, Opcode.POOL, Opcode.UPDATE)
MEMORY = {Status.REGION, Status.SLVERR, Status.DECERR, Status.TIMEOUT}

# Point: end of the module's name, and a toggle of a signal of the Verilog.
SIGNALS = {
    "set without a free slot": ("LookupBank.slots", "has_free_0:1->0"),
    "sweep of the stamps": ("LookupBank.slots", "sweep_address_0[0]:0->1"),
    "as many batches held as the stamps allow": (
        "engines.window", f"unretired[{CARD.stamp_bits - 2}]:0->1"),
    "two bypassed rows of one entry": ("LookupBank.bypasses", "is_own:0->1"),
    "a fetch that must wait for a bypassed row": ("LookupBank.bypasses", "newest[0]:0->1"),
    "three batches in flight": ("lookup_queue.executor.in_flight", "stored[1]:0->1"),
    "refused doorbell": ("queue.doorbell", "refused:0->1"),
    "queue halted, lookup": ("lookup_queue.executor", "halted:0->1"),
    "queue halted, move": ("move_queue.executor", "halted:0->1"),
}


def outcomes(rule):
    """The statuses with which a command of that rule can complete."""
    found = {Status.OK, Status.BAD_FLAGS}
    if COMMANDS[rule.opcode].queue != "both":
        found |= {Status.BAD_OPCODE}  # in the other queue
    if rule.has_event:
        found |= {Status.BAD_EVENT}
    if rule.opcode == Opcode.WAIT:
        found |= {Status.ABORTED}
    if rule.is_batch:
        found |= {Status.TOO_LARGE, Status.LOOKUPS, Status.TABLE_UNKNOWN, Status.ROW_OUT_OF_RANGE}
    if rule.is_batch or rule.is_list or rule.is_span:
        found |= MEMORY | {Status.EMPTY, Status.MISALIGNED}
    if rule.opcode == Opcode.HARVEST:
        found -= {Status.TIMEOUT}  # the completion uses the port that is silent
    if any(extent.write for extent in rule.extents.values()) or rule.has_stride:
        found |= {Status.READ_ONLY}
    if rule.opcode in ROWS:
        found |= {Status.TABLE_UNKNOWN, Status.ROW_OUT_OF_RANGE}
    if rule.has_stride:
        found |= {Status.STRIDE}
    if rule.is_pool or rule.is_update:
        found |= {Status.ROW_SHAPE, Status.LOOKUPS}
    if rule.opcode in PLANNING:
        found |= {Status.BATCH_ORDER, Status.WINDOW}
    return found


def noted():
    """Every point that is a note, by group."""
    each = {rule.opcode: rule for queue in QUEUES for rule in rules(queue, CARD).values()}
    return {
        "command by outcome": [f"outcome {opcode.name} {status.name}"
                               for opcode, rule in sorted(each.items())
                               for status in sorted(outcomes(rule))],
        "error by port and beat": [f"fault {kind} {status} {beat}"
                                   for kind in ("list", "row_read", "row_write", "result")
                                   for status in ("SLVERR", "DECERR")
                                   for beat in ("first", "middle", "last")],
        "batch": ["batch beyond stamps"],
        "policy": [f"policy {policy.name}" for policy in PlanPolicy],
        "queue": [f"queue {queue} {state}" for queue in QUEUES
                  for state in ("empty", "full", "wrapped")],
    }
