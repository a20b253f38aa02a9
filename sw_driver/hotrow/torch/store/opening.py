"""The store of a collection's mode."""

from functools import partial

from ... import device as driver
from ...contract.errors import Error
from ...device import Device
from .base import Store
from .cached import CachedStore
from .cold_pooling import ColdPooling
from .placement_policy import HotlinePolicy, LookAheadPolicy, share_of
from .resident import ResidentStore

MODES = ("resident", "hotline", "scratchpipe", "freqcache")
COLD = ("gathered", "pooled")
_POLICY = {"scratchpipe": "lru", "freqcache": "lfu"}


def open_store(groups, rule, memory, device, mode, preset, policy, admission, cold,
               cache_load_factor, share, **stages) -> Store:
    """The store of a mode; a device that is given by its transport closes with the store.

    Parameters
    ----------
    groups : sequence of TableGroup
    rule : SGD, RowwiseAdagrad or Adagrad
    memory : SlotMemory
    device, mode, preset, policy, admission, cold, cache_load_factor
        As in `HotEmbeddingBagCollection`.
    share, **stages
        As in `CachedStore`.
    """
    _check(mode, device, cold, memory)
    if mode == "resident":
        return ResidentStore(groups)
    owned = isinstance(device, str)
    if owned:
        device = driver.open(device, preset)
    try:
        if cache_load_factor is not None:
            rows = sum(config.num_embeddings for group in groups for config in group.configs)
            share = share_of(device.geometry.slots, cache_load_factor * rows)
        chosen = HotlinePolicy(device) if mode == "hotline" else LookAheadPolicy(
            device, policy or _POLICY[mode], admission)
        pooling = partial(ColdPooling, rule=rule) if cold == "pooled" else None
        return CachedStore(groups, device, chosen, share=share, memory=memory, cold=pooling,
                           owns_device=owned, **stages)
    except BaseException:
        if owned:
            device.close()
        raise


def _check(mode, device, cold, memory):
    """Raise Error if these do not go together."""
    if mode not in MODES:
        raise Error(f"mode is {', '.join(MODES)}, not {mode!r}")
    if cold not in COLD:
        raise Error(f"cold is {' or '.join(map(repr, COLD))}, not {cold!r}")
    if mode != "hotline" and cold != COLD[0]:
        raise Error(f"mode {mode} has no cold rows: leave cold out")
    if device is None and mode != "resident":
        raise Error(f"mode {mode} needs a device: an open one, or a transport such as 'model' or "
                    f"'sim'")
    if device is not None and mode == "resident":
        raise Error("mode resident takes no device")
    if device is not None and not isinstance(device, (str, Device)):
        raise Error(f"device is an open hotrow.Device or the name of a transport, not {device!r}")
    if memory.asynchronous and mode == "resident":
        raise Error("mode resident trains tables in host memory: leave slots_device out")
