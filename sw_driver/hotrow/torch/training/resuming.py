"""What a training run keeps at a checkpoint beside its tables, and how a later run goes on."""

from typing import Any

import torch
from torch import nn

from ...contract.errors import Error
from ...traces.trace import Trace
from .options import TrainOptions
from .trained_data import TrainedData

_SETTINGS = ("trace", "ids", "dense", "label", "bag", "hash_rows", "any_ids", "optimizer",
             "batch_size", "dim", "mlp_scale", "lr", "seed")


class Resuming:
    """Makes the parts of checkpoints, and refuses those of other runs and other data.

    Parameters
    ----------
    options : TrainOptions
    trace : Trace
    """

    def __init__(self, options: TrainOptions, trace: Trace) -> None:
        self._options, self._trace = options, trace
        self._data = TrainedData(trace, options.batch_size)

    def parts(self, batch: int, model: nn.Module) -> dict[str, Any]:
        """What the checkpoint of a batch has beside the tables."""
        return {"batch": batch, "settings": _settings(self._options),
                "trained": self._data.after(
                    min(batch, self._options.epoch_batches(self._trace))),
                "model": model.state_dict(), "random": torch.get_rng_state()}

    def go_on(self, path: str, kept: dict[str, Any], model: nn.Module) -> int:
        """Load the dense part of a checkpoint: the batch after which it was made.

        Raises
        ------
        Error
            It is of a run with other settings or data, or of one that has trained all batches.
        """
        ours, total = _settings(self._options), self._options.total_batches(self._trace)
        for name, value in ours.items():
            begun = kept["settings"].get(name)
            if value != begun:
                raise Error(f"{path} was trained with --{name.replace('_', '-')} {_shown(begun)}, "
                            f"not {_shown(value)}: use the options that the run began with")
        if kept["batch"] >= total:
            raise Error(f"{path} has trained {kept['batch']} batches, and this run is to end with "
                        f"{total}: ask for more --batches or --epochs")
        self._check_data(path, kept["trained"])
        model.load_state_dict(kept["model"])
        torch.set_rng_state(kept["random"])
        batch: int = kept["batch"]
        return batch

    def _check_data(self, path: str, trained: dict[str, Any]) -> None:
        """Raise Error unless the trace begins with the data that a checkpoint has trained."""
        samples, begun = trained["samples"], trained["digests"]
        here = TrainedData.digests(self._trace, samples)
        changed = [name for name, digest in begun.items() if here.get(name) != digest]
        if changed:
            raise Error(f"{', '.join(changed)} of the {samples} samples that {path} has trained "
                        f"are others in {self._trace.name} now: cells were changed, moved or taken "
                        f"out, or one is no integer, so that all are read as strings. Resume with "
                        f"the data of the run, to which lines were added at the end at most")


def _shown(value: Any) -> str:
    """An option's value as it is written."""
    return ",".join(value) if isinstance(value, (tuple, list)) else str(value)


def _settings(options: TrainOptions) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in _SETTINGS}
    return {name: [*value] if isinstance(value, tuple) else value
            for name, value in values.items()}
