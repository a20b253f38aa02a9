"""Torch tensors where arrays are taken: tables, buffers, ids."""

import hotrow
import numpy as np
import pytest
from hotrow import Batch, BatchError, RegistrationError

from tests.driver.conftest import counts, counts_of, random_ids, usable

torch = pytest.importorskip("torch")

ROWS = 20


def aligned(shape, dtype=torch.float32):
    """A tensor whose first byte lies on a multiple of 64."""
    memory = torch.zeros(int(np.prod(shape)) + 64, dtype=dtype)
    start = -memory.data_ptr() % 64 // memory.element_size()
    tensor = memory[start:start + int(np.prod(shape))].view(shape)
    return tensor.copy_(torch.arange(tensor.numel()).view(shape))


@pytest.mark.parametrize("dtype, element", [
    (torch.float32, "fp32"), (torch.float16, "fp16"), (torch.bfloat16, "bf16")])
def test_a_tensor_is_the_table(device, dtype, element):
    weights = aligned((ROWS, 8), dtype)
    table = device.register_table(weights)
    assert (table.element, table.row_bytes) == (element, 8 * weights.element_size())
    weights[3] = 100
    out = aligned((4, 8), dtype)
    device.gather((table, [3, 19]), out=out, slots=torch.tensor([2, 0]))
    assert (out[2] == 100).all() and (out[0] == weights[19]).all()


def test_parameters_of_an_embedding_bag(device):
    bag = torch.nn.EmbeddingBag(ROWS, 8, mode="sum")
    table = device.register_table(bag.weight)
    rows = torch.from_numpy(device.gather((table, torch.arange(5))))
    assert (rows == bag.weight[:5]).all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids(device, tables, dtype):
    ids = torch.from_numpy(random_ids(30, seed=1)).to(dtype)
    assert device.observe(ids).lookups == 90
    hot = device.harvest(200)
    assert counts_of(hot) == counts(
        ids.numpy())


def test_offsets(device, tables):
    pairs = [(torch.tensor([1, 2, 3]), torch.tensor([0, 0, 2])) for _ in tables]
    batch = Batch.from_offsets(pairs)
    assert batch.lengths.tolist() == [0, 2, 1] * 3
    assert device.split(batch).lookups == 9


def test_floating_ids(device, tables):
    with pytest.raises(BatchError, match=r"must be integers .*not float32"):
        device.observe(torch.zeros(2, 3))
    assert usable(device, tables)


@pytest.mark.parametrize("change", ["replace", "set"])
def test_changed_while_registered(device, tables, change):
    weights = torch.zeros(ROWS, 8)
    table = device.register_table(weights, name="w")
    if change == "replace":
        weights.data = torch.zeros(ROWS, 8)
    else:
        weights.set_(torch.zeros(4 * ROWS, 8))
    with pytest.raises(RegistrationError, match="weights of 'w' was resized or replaced"):
        device.gather((table, [0]))
    device.unregister_table(table)
    assert usable(device, tables)


def test_torch_itself_refuses_to_resize(device):
    weights = torch.zeros(ROWS, 8)
    device.register_table(weights)
    with pytest.raises(RuntimeError, match="not resizable"):
        weights.resize_(4 * ROWS, 8)


@pytest.mark.parametrize("weights, message", [
    (lambda: torch.zeros(4, 8, device="meta"), "in the CPU's memory, got one on meta"),
    (lambda: torch.zeros(4, 8, dtype=torch.float64), "not float64"),
    (lambda: torch.eye(8).to_sparse(), "has no NumPy form"),
])
def test_tensors_that_the_card_cannot_carry(device, tables, weights, message):
    with pytest.raises(RegistrationError, match=message):
        device.register_table(weights())
    assert usable(device, tables)


def test_state(device):
    weights, state = aligned((ROWS, 8)), aligned((ROWS,))
    table = device.register_table(weights, state=state)
    state_out = aligned((3,))
    device.gather((table, [7, 8, 9]), state_out=state_out)
    assert state_out.tolist() == [7, 8, 9]
    assert hotrow.Table is type(table)
