"""Whether a card can hold the tables of a collection: checked before memory is allocated."""

from collections.abc import Sequence

from ...contract.errors import Error
from ...contract.generated import DEFAULT_PRESET
from ...contract.geometry import PRESETS, Geometry
from ...device import Device
from ..features.configs import TableConfig
from ..memory.rows import RowKind
from ..optim.rules import Rule
from .options import Options

_MOST_ROWS = 1 << 32


def check_fits(configs: Sequence[TableConfig], rule: Rule, device: Device | str | None,
               options: Options, slots: bool = True) -> None:
    """Raise Error if the card cannot hold the tables, with the presets of cards that can.

    Cards on a link have the sizes that their registers hold: those are checked once they are open.

    Parameters
    ----------
    configs : sequence of TableConfig
    rule : Rule
    device : Device, str or None
    options : Options
    slots : bool
        Whether the tables need parts of the directory.
    """
    share = options.share if slots else 0
    for config in configs:
        if config.num_embeddings > _MOST_ROWS:
            raise Error(f"table {config.name!r} has {config.num_embeddings:,} rows: a table has at "
                        f"most 2**32, shard it or hash its ids")
    geometry = None
    if isinstance(device, Device):
        geometry = device.geometry
    elif device in ("cpu", "model", "sim", None):
        geometry = PRESETS.get(
            options.preset or (DEFAULT_PRESET if device in ("model", "sim") else "alveo-u55c"))
    wrong = geometry and _misfit(configs, rule, geometry, share)
    if wrong:
        fitting = [name for name, card in PRESETS.items()
                   if not _misfit(configs, rule, card, share)]
        advice = f"presets that fit: {', '.join(fitting)}" if fitting else "no preset fits"
        raise Error(f"{wrong}; {advice}")


def _misfit(configs: Sequence[TableConfig], rule: Rule, geometry: Geometry,
            share: int) -> str | None:
    """Why tables do not fit on a card, or None."""
    if len(configs) > geometry.tables:
        return f"there are {len(configs)} tables: this card holds at most {geometry.tables}"
    kinds = {(config.embedding_dim, config.dtype, config.path is None): config
             for config in configs}
    parts = share
    while parts < share * len(kinds):
        parts *= 2
    if parts > geometry.directory_partitions:
        return (f"{len(kinds)} kinds of tables, {share} parts of the directory: this card's "
                f"directory has {geometry.directory_partitions} parts")
    for (dim, dtype, _), config in kinds.items():
        kind = RowKind(dim, rule.state, dtype, rule.columns(dim) or None)
        size = kind.width * dtype.itemsize
        if size > geometry.row_bytes:
            return (f"a row of {config.name!r} and what {rule.name} adds to it has {size} bytes: "
                    f"this card carries at most {geometry.row_bytes}")
    return None
