"""Memory of the tensors that a training keeps."""

import gc

import torch


def storages(tensors):
    """Storages of tensors and their gradients, whatever subclasses say of theirs: dict of address
    to bytes."""
    found = {}
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            for each in (tensor, tensor.grad if tensor.is_leaf else None):
                if each is not None and each.layout == torch.strided and each.device.type != "meta":
                    storage = each.untyped_storage()
                    found[storage.data_ptr()] = storage.nbytes()
                elif each is not None and each.layout == torch.sparse_coo:
                    found |= storages([each._indices(), each._values()])
    return found


class Watch:
    """Most bytes of the tensors of this process that are younger than the watch.

    Parameters
    ----------
    apart : iterable of Tensor
        Excluded, with their gradients.

    Attributes
    ----------
    peak : int
        Bytes.
    """

    def __init__(self, apart=()):
        self._apart, self.peak = [*apart, *_tensors()], 0  # kept, so that no address is reused

    def look(self, *_):
        """Count the live tensors; call it when most are alive."""
        apart = storages(self._apart)
        self.peak = max(self.peak, sum(
            size for address, size in storages(_tensors()).items() if address not in apart))


def _tensors():
    return [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
