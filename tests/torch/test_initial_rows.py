"""Rows that tables start with: each from its seed and its number, in every mode."""

import numpy as np
import pytest
import torch
from hotrow.ids import initial_rows
from hotrow.kernels.drawing import draw_rows
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_rows_follow_from_the_seed_and_the_number_of_the_table(dtype, optimizer):
    sizes = {"a": (1000, 8), "b": (50, 12), "c": (7, 8)}
    with HotEmbeddingBagCollection(
        [TableConfig(name, *size, dtype=dtype) for name, size in sizes.items()], mode="resident",
        optimizer=optimizer, options=Options(seed=5)) as tables:
        for number, (name, (rows, dim)) in enumerate(sizes.items()):
            drawn = initial_rows(np.arange(rows), dim, 5 + number, rows**-0.5)
            found, _ = tables.contents.table(name)
            assert torch.equal(found, torch.from_numpy(drawn).to(dtype)), name


def test_rows_of_a_part_of_a_table():
    memory = torch.zeros(40, 16)[:, :12]
    draw_rows(memory, -3, 0.25, first=2, step=5)
    drawn = initial_rows(2 + 5 * np.arange(40), 12, -3, 0.25)
    assert torch.equal(memory, torch.from_numpy(drawn))
