"""The training modes as contenders of `hotrow bench train`."""

from dataclasses import replace

import torch
from hotrow import device as driver
from hotrow.contract.errors import Error
from hotrow.contract.geometry import preset as preset_of
from hotrow.torch.training.collection_trainer import CollectionTrainer

from .options import sets_of

MODES = ("resident", "scratchpipe", "freqcache", "hotline")
_HOT = "hotline:"
_SIMULATED = ("model", "sim")  # transports that open a card of any geometry


def hot_share(name):
    """Percent of all rows that are hot in a mode `hotline:PERCENT`; None for any other name."""
    try:
        share = float(name.removeprefix(_HOT)) if name.startswith(_HOT) else 0.0
    except ValueError:
        return None
    return share if 0 < share <= 100 else None


def open_card(transport, preset, slots=None, least=0):
    """Open a card with a planner and the given number of slots.

    Parameters
    ----------
    transport, preset : str
    slots : int, optional
        A power of two; by default as in the preset.
    least : int
        Least number of slots; the next power of two is used.

    Raises
    ------
    Error
        The directory cannot have that many slots, or the transport opens no simulated card.
    """
    if transport not in _SIMULATED:
        raise Error(f"this benchmark sets the planner and the slots of the card: expected one of "
                    f"the transports {', '.join(_SIMULATED)}, got {transport!r}")
    config = preset_of(preset)
    if (slots or config.slots) < least:
        slots = 1 << (least - 1).bit_length()
    if slots is not None and slots != config.slots:
        sets = sets_of(f"a {preset} cannot have {slots} slots", slots,
                       config.directory_choices * config.directory_ways)
        config = replace(
            config, name=f"{preset}-{slots}-slots", directory_sets=sets,
            directory_partitions=min(config.directory_partitions, max(1, sets // config.banks)))
    return driver.open(transport, config)


class Mode:
    """One mode on given tables; a context manager.

    Parameters
    ----------
    name : str
        One of `MODES`, or `hotline:PERCENT`.
    model, tables, rule
        Arguments of `Trainer`.
    options : argparse.Namespace
        `transport`, `preset`, `slots`, `hot_rows`, `depth`, `look_ahead`, `workers`, `policy`.
    ranked : int64[h], optional
        Flat hot rows, the hottest first, in place of the rows that the card counts; the card has a
        slot for each.

    Attributes
    ----------
    ahead : int
        Batches to announce after the one that trains.
    warmed : int or None
        Rows with a slot before the first step.
    """

    kind = "hotrow"

    def __init__(self, name, model, tables, rule, options, ranked=None):
        self.name, self.tables, self.device, self.warmed = name, tables, None, None
        self._ranked = ranked
        self._hotline = name == "hotline" or ranked is not None
        if name == "resident":
            self.trainer, self.ahead = CollectionTrainer(model, tables, rule), 0
            return
        self.device = open_card(options.transport, options.preset, options.slots,
                                0 if ranked is None else len(ranked))
        try:
            if self._hotline:
                self._hot_rows = options.hot_rows
                self.trainer, self.ahead = CollectionTrainer(
                    model, tables, rule, self.device, "hotline"), 0
            else:
                self.trainer = CollectionTrainer(
                    model, tables, rule, self.device, name, policy=options.policy,
                    depth=options.depth, look_ahead=options.look_ahead, workers=options.workers)
                self.ahead = options.depth - 1 + options.look_ahead
        except BaseException:
            self.device.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.device is not None:
            self.trainer.collection.abandon()
            self.device.close()

    @property
    def in_tables(self):
        """Whether the tables are in the trainer's memory."""
        return self.device is None

    @property
    def slots(self):
        """Slots of the trainer; None where it has whole tables."""
        return None if self.device is None else self.device.geometry.slots

    @property
    def storages(self):
        """SlotStorages."""
        if self.device is None:
            return []
        return self.trainer.collection.store.storages

    def learn(self, batches):
        """Count batches, a list of Samples, on the device, and give slots to the most counted rows;
        or give slots to the ranked rows."""
        collection = self.trainer.collection
        if self._ranked is not None:
            self.warmed = collection.store.card.filling.warm(
                self.tables.locate(torch.from_numpy(self._ranked)))
        elif self._hotline or self.name == "freqcache":
            for samples in batches:
                self.trainer.observe(samples)
            limit = min(self._hot_rows or self.slots, self.slots) if self._hotline else None
            self.warmed = collection.learn(limit=limit)

    def announce(self, samples):
        if self.ahead:
            self.trainer.prefetch(samples)

    def step(self, samples):
        return self.trainer.step(samples)

    def flush(self):
        self.trainer.flush()

    def metadata_bits(self):
        """Bits of host memory per slot in addition to its row: float, or None without slots."""
        if not self.storages:
            return None
        tensors = [each for storage in self.storages for value in vars(storage).values()
                   for each in (value if isinstance(value, tuple) else (value,))
                   if isinstance(each, torch.Tensor)]
        return 8 * sum(each.nbytes for each in tensors) / self.slots

    def slot_bytes(self):
        """Bytes of the slots' rows and their state."""
        return sum(storage.slots * storage.kind.row_bytes for storage in self.storages)
