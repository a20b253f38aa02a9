"""The store of a collection's mode."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

from ... import device as driver
from ...contract.errors import Error
from ...device import Device
from ...kernels.compiler import usable_cores
from ...transports.cpu import FEWEST_SLOTS, default_slots
from ..features.configs import TableConfig, TableGroup
from ..memory.slot_memory import SlotMemory
from ..optim.rules import Rule
from .base import OwnStore
from .cached import CachedStore
from .cold_pooling import ColdPooling
from .near_memory import NearMemoryStore
from .options import Options
from .placement_policy import HotlinePolicy, LookAheadPolicy, share_of
from .resident import ResidentStore

Mode = Literal["resident", "hotline", "scratchpipe", "freqcache", "near_memory"]
MODES: tuple[Mode, ...] = get_args(Mode)
COLD = ("gathered", "pooled")
_POLICY = {"scratchpipe": "lru", "freqcache": "lfu"}


def open_store(groups: Sequence[TableGroup], rule: Rule, memory: SlotMemory,
               device: Device | str | None, mode: str, options: Options,
               slots: int | None = None) -> OwnStore:
    """The store of a mode; a device that is given by its transport closes with the store.

    Parameters
    ----------
    groups : sequence of TableGroup
    rule : SGD, RowwiseAdagrad or Adagrad
    memory : SlotMemory
    device, mode, options
        As in `HotEmbeddingBagCollection`.
    slots : int, optional
        Of a card in software that is opened; by default a part of the rows, within the memory at
        hand.
    """
    _check(mode, device, options.cold, memory)
    if mode == "resident":
        return ResidentStore(groups)
    device = driver.DEFAULT_DEVICE if device is None else device
    if mode == "near_memory" and _is_cpu(device):
        return ResidentStore(groups)
    owned = not isinstance(device, Device)
    if isinstance(device, str):
        card = ({} if device != "cpu" or options.preset is not None
                else {"slots": slots or _slots(groups)})
        device = driver.open(device, options.preset, **card)
    try:
        if mode == "near_memory":
            return NearMemoryStore(groups, device, owned)
        if options.cache_load_factor is not None:
            rows = sum(config.num_embeddings for group in groups for config in group.configs)
            options = replace(options, share=share_of(
                device.geometry.slots, options.cache_load_factor * rows))
        if options.workers is None:
            options = replace(options, workers=default_workers(device))
        chosen = HotlinePolicy(device) if mode == "hotline" else LookAheadPolicy(
            device, options.policy or _POLICY[mode])
        pooling = partial(ColdPooling, rule=rule) if options.cold == "pooled" else None
        return CachedStore(groups, device, chosen, options, memory, pooling, owned)
    except BaseException:
        if owned:
            device.close()
        raise


def default_mode(tables: Sequence[TableConfig], memory: SlotMemory, device: object,
                 options: Options) -> Mode:
    """The mode where none is named: "resident" where all tables are in memory, and neither a device
    nor slots are named; else "scratchpipe"."""
    mode: Mode
    on_disk = [table.name for table in tables if table.path is not None]
    if on_disk:
        mode, why = "scratchpipe", f"table {on_disk[0]!r} is on disk"
    elif memory.asynchronous:
        mode, why = "scratchpipe", "slots are on a GPU"
    elif any((device, options.preset, options.policy, options.cache_load_factor, options.workers,
              options.share > 1, options.cold != COLD[0])):
        mode, why = "scratchpipe", "a device or slots are named"
    else:
        mode, why = "resident", "all tables are in memory, and no device is named"
    logging.getLogger("hotrow.torch").info("mode %s, because %s", mode, why)
    return mode


def default_workers(device: Device) -> int:
    """1 where there is a core beside the trainer's and the driver waits for the device without its
    lock, else 0."""
    return int(device.registers.waits_apart and usable_cores() > 1)


def _is_cpu(device: Device | str) -> bool:
    """Whether a device is the host's cores, and its memory the host's."""
    name = device.transport.name if isinstance(device, Device) else device
    return name == "cpu"


def _slots(groups: Sequence[TableGroup]) -> int:
    """Slots of a card in software: a quarter of the rows, within the memory at hand."""
    rows = sum(config.num_embeddings for group in groups for config in group.configs)
    return min(max(rows // 4, FEWEST_SLOTS), default_slots())


def _check(mode: str, device: object, cold: str, memory: SlotMemory) -> None:
    """Raise Error if these do not go together."""
    if mode not in MODES:
        raise Error(f"mode is {', '.join(MODES)}, not {mode!r}")
    if cold not in COLD:
        raise Error(f"cold is {' or '.join(map(repr, COLD))}, not {cold!r}")
    if mode != "hotline" and cold != COLD[0]:
        raise Error(f"mode {mode} has no cold rows: leave cold out")
    if device is not None and mode == "resident":
        raise Error("mode resident takes no device")
    if device is not None and not isinstance(device, (str, Device)):
        raise Error(f"device is an open hotrow.Device or the name of a transport, not {device!r}")
    if memory.asynchronous and mode == "resident":
        raise Error("mode resident trains tables in host memory: leave slots_device out")
    if memory.asynchronous and mode == "near_memory":
        raise Error("mode near_memory has no slots: leave slots_device out")
