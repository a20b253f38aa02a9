"""The checks that a command passes before it has any effect, derived from `commands`."""

from dataclasses import dataclass
from enum import IntFlag

from ..config import Config
from .commands import COMMANDS, Command
from .encoding import (
    OPERANDS,
    AllFlag,
    BatchFlag,
    GatherFlag,
    InstallFlag,
    Opcode,
    PlanFlag,
    PoolFlag,
    UpdateFlag,
)


@dataclass(frozen=True)
class Extent:
    """The memory that an address operand names.

    Attributes
    ----------
    unit : str
        Number of elements: "count", "samples", "bags" (of a list), or "batch bags" (samples *
        table_count; of a POOL `bags` * table_count).
    element_log2 : int
        An element has 2**element_log2 bytes.
    write : bool
        The command writes the memory.
    flag : IntFlag or None
        The flag with which the command uses the operand; None for always.
    doubled_by : IntFlag or None
        The flag with which elements are twice as long.
    """

    unit: str
    element_log2: int
    write: bool = False
    flag: IntFlag | None = None
    doubled_by: IntFlag | None = None


_EXTENTS = {
    "source": Extent("count", 3),  # entries of a list
    "lengths": Extent("batch bags", 1, flag=BatchFlag.JAGGED),
    "targets": Extent("count", 2, flag=GatherFlag.LISTED),
    "slots": Extent("count", 2, write=True),
    "popular": Extent("samples", 2, write=True),
    "nonpopular": Extent("samples", 2, write=True),
    "misses": Extent("count", 3, write=True),
    "fill_slots": Extent("count", 2, write=True),
    "victim_slots": Extent("count", 2, write=True),
    "fills": Extent("count", 3, write=True),
    "victims": Extent("count", 3, write=True),
    "destination": Extent("count", 4, write=True),  # harvested entries
}
_IDS = Extent("count", 2, doubled_by=BatchFlag.ID64)  # `source` of a batch
_BYTES = {  # of a span
    "source": Extent("count", 0),
    "destination": Extent("count", 0, write=True),
}
_POOL = {
    "lengths": Extent("bags", 1),
    "targets": Extent("bags", 2, flag=PoolFlag.LISTED),
    "weights": Extent("count", 2, flag=PoolFlag.WEIGHTED),
}
_POOL_BATCH = {
    "source": Extent("count", 2),
    "lengths": Extent("batch bags", 1),
    "targets": Extent("batch bags", 2, flag=PoolFlag.LISTED),
    "weights": Extent("count", 2, flag=PoolFlag.WEIGHTED),
}
_UPDATE = {
    "lengths": Extent("count", 1),
    "targets": Extent("bags", 2, flag=UpdateFlag.LISTED),  # gradient_count shares the bytes of bags
}
SPANS = (Opcode.COPY, Opcode.FILL)  # `count` consecutive bytes each
ARITHMETIC = (Opcode.POOL, Opcode.UPDATE)  # of a card with `Config.arithmetic`
PLANNING = (Opcode.PLAN, Opcode.MARK)  # of a card with `Config.planner`
CONTRARY = {Opcode.PLAN: PlanFlag.COUNT | PlanFlag.ADMIT}  # flags that exclude each other
# The end of a row's slot depends on its table and target: these operands are checked row by row.
_CHECKED_BY_ROW = {Opcode.GATHER: ("destination", "state_destination"),
                   Opcode.SCATTER: ("rows", "state_rows"),
                   Opcode.POOL: ("destination",),
                   Opcode.UPDATE: ("gradients",)}


@dataclass(frozen=True)
class Rule:
    """How one command is checked.

    Attributes
    ----------
    flags : int
        Bits that the command defines.
    contrary : int
        Defined bits that exclude each other, or 0; a command with all of them set is refused.
    is_batch, is_list, is_span, has_event, has_stride : bool
        The shape checks of the command. At most one of the first three is set. The operands of a
        span begin on any 4 bytes and stay packed; other operands begin on a multiple of
        LIST_ALIGNMENT and are replaced by byte addresses.
    is_pool, is_update : bool
        A list with `bags`, or with `gradient_count`.
    is_plan : bool
        A batch whose results have other lengths than those of a SPLIT.
    may_be_all : bool
        With AllFlag.ALL the command reads no list.
    extents : dict
        The extent of each address operand that is checked as a whole, in the order of the checks.
    batch_flag : int
        The flag with which the list is a batch, or 0.
    batch_extents : dict
        The extents with that flag.
    """

    opcode: Opcode
    flags: int
    contrary: int
    is_batch: bool
    is_list: bool
    is_span: bool
    has_event: bool
    has_stride: bool
    is_pool: bool
    is_update: bool
    is_plan: bool
    may_be_all: bool
    extents: dict
    batch_flag: int
    batch_extents: dict


def flags_of(command: Command, config: Config) -> int:
    """Bits that the command defines on a card."""
    if command.flags is InstallFlag and not config.planner:
        return 0
    return int(sum(flag for flag in command.flags or ()
                   if flag is not PoolFlag.BATCH or config.pools_batches))


def _rule(command: Command, config: Config) -> Rule:
    operands = sorted(command.operands, key=lambda name: OPERANDS[name].offset)
    is_batch, is_span = "samples" in operands, command.opcode in SPANS
    pools_batch = command.opcode == Opcode.POOL and config.pools_batches
    special = {Opcode.POOL: _POOL, Opcode.UPDATE: _UPDATE}.get(
        command.opcode, {"source": _IDS} if is_batch else _BYTES if is_span else {})
    extents = {name: special.get(name) or _EXTENTS[name]
               for name in operands
               if OPERANDS[name].is_address
               and name not in _CHECKED_BY_ROW.get(command.opcode, ())}
    return Rule(
        opcode=command.opcode,
        flags=flags_of(command, config),
        contrary=int(CONTRARY.get(command.opcode, 0)),
        is_batch=is_batch,
        is_list="count" in operands and not is_batch and not is_span,
        is_span=is_span,
        has_event="event" in operands,
        has_stride="stride" in operands,
        is_pool=command.opcode == Opcode.POOL,
        is_update=command.opcode == Opcode.UPDATE,
        is_plan=command.opcode == Opcode.PLAN,
        may_be_all=command.flags is AllFlag,
        extents=extents,
        batch_flag=int(PoolFlag.BATCH) if pools_batch else 0,
        batch_extents=_POOL_BATCH if pools_batch else {},
    )


def rules(queue: str, config: Config) -> dict[Opcode, Rule]:
    """The rules of the commands that the queue serves."""
    return {opcode: _rule(command, config) for opcode, command in COMMANDS.items()
            if command.queue in (queue, "both")
            and (config.arithmetic or opcode not in ARITHMETIC)
            and (config.planner or opcode not in PLANNING)}
