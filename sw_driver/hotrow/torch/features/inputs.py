"""Ids, offsets, lengths and weights as PyTorch users pass them, checked, as tensors of Bags."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch

from ...contract.errors import BatchError
from ...operands.integers import listed

_IDS = torch.int32, torch.int64


class Keyed(Protocol):
    """The part of TorchRec's KeyedJaggedTensor that is used."""

    def keys(self) -> Iterable[str]:
        """Names of the features."""

    def values(self) -> torch.Tensor:
        """Ids of all bags, key after key."""

    def lengths(self) -> torch.Tensor:
        """Ids of each bag."""


def is_keyed(inputs: object) -> TypeGuard[Keyed]:
    """Whether these are a KeyedJaggedTensor; TorchRec need not be installed."""
    return hasattr(inputs, "keys") and hasattr(inputs, "lengths")


def keyed_parts(keyed: Keyed, names: Sequence[str], is_weighted: bool) -> tuple[
        list[str], torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Keys, ids, lengths and weights of a KeyedJaggedTensor that has these names; None for lengths
    of 1."""
    keys = list(keyed.keys())
    if keys != [*names] and set(names) - set(keys):
        raise BatchError(f"the KeyedJaggedTensor has keys {keys}, and no {set(names) - set(keys)}")
    stride_per_key = getattr(keyed, "stride_per_key", None)
    strides = list(stride_per_key()) if callable(stride_per_key) else []
    if len(set(strides)) > 1:
        raise BatchError(f"the KeyedJaggedTensor has a batch size per key "
                         f"({dict(zip(keys, strides, strict=True))}), which is not "
                         f"supported: give every key the same number of bags")
    weights = None
    if is_weighted:
        weights = keyed.weights_or_none() if hasattr(keyed, "weights_or_none") else None
        if weights is None:
            raise BatchError("the collection is weighted, and the KeyedJaggedTensor has no weights")
    values = integers(keyed.values(), "values")
    lengths = integers(keyed.lengths(), "lengths").long()
    ones = _check_lengths(keys, lengths, values.shape[0])
    return keys, values, None if ones else lengths.clone(), weights_of(weights)


def _check_lengths(keys: Sequence[str], lengths: torch.Tensor, values: int) -> bool:
    """Raise BatchError if lengths int64[keys * samples] do not divide that many values; whether all
    of them are 1."""
    count, samples = lengths.shape[0], lengths.shape[0] // max(1, len(keys))
    least, most = map(int, torch.aminmax(lengths)) if count else (0, 0)
    if least == most == 1 and samples * len(keys) == count == values:
        return True
    if least < 0 or most > values:  # each, so that their sum cannot overflow
        first = int(((lengths < 0) | (lengths > values)).nonzero()[0])
        key = repr(keys[first // samples]) if samples else "no key"
        raise BatchError(f"length {int(lengths[first])} of sample {first % max(1, samples)} of key "
                         f"{key} is not one of 0 to {values}, the number of values")
    if samples * len(keys) != count or int(lengths.sum()) != values:
        raise BatchError(f"the {count} lengths of a KeyedJaggedTensor must be as many for "
                         f"each of its {len(keys)} keys, and add up to its {values} values; they "
                         f"add up to {int(lengths.sum())}")
    return False


def paired_parts(tables: int,
                 pairs: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Ids, lengths and weights of (indices, offsets) of each of some tables."""
    if len(pairs) != tables:
        raise BatchError(f"expected (indices, offsets) of {tables} tables, got {len(pairs)}: ids "
                         f"[samples, features] are a tensor or an array")
    ids, lengths, weights = [], [], []
    for number, pair in enumerate(pairs):
        try:
            indices, offsets, *last = pair
            [weight] = last or [None]
        except (TypeError, ValueError):
            raise BatchError(f"expected (indices, offsets) or (indices, offsets, weights) of "
                             f"feature {number}, got {type(pair).__name__}") from None
        ids.append(integers(indices, f"indices of feature {number}"))
        lengths.append(lengths_of(offsets, len(ids[-1]), 1, include_last=False))
        if weight is not None:
            weights.append(_floats(weight, f"weights of feature {number}"))
            if weights[-1].shape != ids[-1].shape:
                raise BatchError(f"expected weights of feature {number} of shape "
                                 f"{list(ids[-1].shape)}, as the indices, got "
                                 f"{list(weights[-1].shape)}")
    samples = {len(each) for each in lengths}
    if len(samples) != 1:
        raise BatchError(f"every feature needs the same number of bags, got "
                         f"{', '.join(str(len(each)) for each in lengths)}")
    if weights and len(weights) != len(ids):
        raise BatchError(f"{len(weights)} of {len(ids)} features have weights: give all or none")
    return torch.cat(ids), torch.cat(lengths), torch.cat(weights) if weights else None


def host_tensor(values: object, what: str, kind: str = "integers") -> torch.Tensor:
    """`values` as a dense tensor in the host's memory.

    Parameters
    ----------
    values : tensor, NumPy array, number or sequence
    what : str
        Its name in messages.
    kind : str
        "integers" or "floats".

    Raises
    ------
    BatchError
        It is none, or holds something else.
    """
    if not isinstance(values, torch.Tensor):
        try:
            array = listed(values) if kind == "integers" else np.asarray(values)
            if not array.size and isinstance(values, (list, tuple)):  # which NumPy makes float64
                array = array.astype(np.int64 if kind == "integers" else np.float32)
            # A copy of what PyTorch does not take: other byte orders, negative strides, read-only.
            values = torch.from_numpy(array if array.flags.writeable and array.dtype.isnative and
                                      all(step >= 0 for step in array.strides) else
                                      array.astype(array.dtype.newbyteorder("=")))
        except (TypeError, ValueError):
            words = any(isinstance(each, (str, bytes)) for each in np.array(values, object).flat)
            raise BatchError(f"expected {what} as a tensor or an array of {kind}, got "
                             f"{type(values).__name__}" + (
                                 " of strings: hotrow.torch.ids_of makes ids of a column" * words)
                             ) from None
    check_elements(values, what)
    floats = values.is_floating_point()
    if (floats != (kind == "floats")) or values.is_complex() or values.dtype == torch.bool:
        raise BatchError(f"expected {what} as {kind}, got {values.dtype}")
    return values.cpu() if floats else values.detach().cpu()  # weights keep their graph


def no_elements(values: torch.Tensor) -> str:
    """What a tensor is that has not its elements one after the other, in words; empty if it has."""
    if values.is_meta:
        return "one on 'meta', without contents"
    if values.is_nested:
        return "a nested tensor: give one tensor of all elements, as values()"
    if values.layout != torch.strided:
        return f"one of layout {values.layout}: give a dense copy, as to_dense()"
    if values.is_quantized:
        return f"a quantized one, {values.dtype}: give its dequantize()"
    return ""


def check_elements(values: torch.Tensor, what: str) -> None:
    """Raise BatchError unless a tensor has its elements one after the other."""
    found = no_elements(values)
    if found:
        raise BatchError(f"expected {what} as a dense tensor in memory, got {found}")


def integers(values: object, what: str, dimensions: int = 1) -> torch.Tensor:
    if (type(values) is torch.Tensor and values.dtype in _IDS and values.is_cpu
            and values.layout is torch.strided and not values.is_nested
            and values.dim() == dimensions):
        return values
    values = host_tensor(values, what)
    if values.dim() != dimensions:
        raise BatchError(f"expected {what} with {dimensions} "
                         f"dimension{'s' * (dimensions > 1)}, got shape {list(values.shape)}" + (
                             ": one feature is ids[:, None]" * (dimensions == 2)))
    return values if values.dtype in _IDS else values.long()


def lengths_of(offsets: object, lookups: int, features: int, include_last: bool) -> torch.Tensor:
    """Lengths of bags from their offsets: int64[bags]."""
    offsets = integers(offsets, "offsets").long()
    if not include_last:
        offsets = torch.cat((offsets, torch.tensor([lookups])))
    bags = len(offsets) - 1
    lengths = offsets.diff()
    # Differences of offsets that are no positions may overflow.
    if bags < 0 or bags % features or offsets[0] != 0 or offsets[-1] != lookups or bool(
            ((lengths < 0) | (offsets[1:] < 0) | (offsets[1:] > lookups)).any()):
        raise BatchError(f"the offsets of {features} features must be as many per feature, start "
                         f"at 0, not decrease, and end at the {lookups} indices")
    return lengths


def weights_of(weights: object, what: str = "weights") -> torch.Tensor | None:
    """Weights per lookup as float32 on the host, contiguous; None for None.

    Raises
    ------
    BatchError
    """
    return None if weights is None else _floats(weights, what)


def _floats(values: object, what: str) -> torch.Tensor:
    return host_tensor(values, what, "floats").to(torch.float32).contiguous()
