"""What memory the tensors take that a training keeps."""

import gc

import torch


def storages(tensors):
    """Storages of tensors, their gradients included, each once: dict of address to bytes."""
    found = {}
    for tensor in tensors:
        for each in (tensor, tensor.grad if tensor.is_leaf else None):
            if each is not None and each.layout == torch.strided and each.device.type != "meta":
                storage = each.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
            elif each is not None and each.layout == torch.sparse_coo:
                found |= storages([each._indices(), each._values()])
    return found


class Watch:
    """Bytes of the tensors of this process that came after the watch, at the fullest moment.

    Parameters
    ----------
    apart : iterable of Tensor
        Not to be counted, nor their gradients.

    Members
    -------
    peak : int
        Bytes.
    """

    def __init__(self, apart=()):
        self._apart, self.peak = [*apart, *_tensors()], 0  # kept, so that no address is used again

    def look(self, *_):
        """Count what is alive: to be called at the moments that may be the fullest."""
        apart = storages(self._apart)
        self.peak = max(self.peak, sum(
            size for address, size in storages(_tensors()).items() if address not in apart))


def _tensors():
    return [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
