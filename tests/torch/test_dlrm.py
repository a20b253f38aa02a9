import pytest
import torch
from hotrow.torch.training.dlrm import DLRM


@pytest.mark.parametrize("dense, tables, dim", [(13, 26, 16), (1, 4, 16), (0, 4, 8), (0, 1, 8)])
def test_interaction_is_every_pair_once(dense, tables, dim):
    torch.manual_seed(0)
    model = DLRM(dense, tables, dim, scale=0.05)
    features, pooled = torch.randn(5, dense), torch.randn(5, tables, dim)
    seen = []
    model.top.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert model(features, pooled).shape == (5,)

    for sample in range(5):
        vectors = list(pooled[sample])
        passed = pooled[sample].flatten()
        if dense:
            passed = model.bottom(features[sample])
            vectors.insert(0, passed)
        products = [vectors[i] @ vectors[j] for i in range(len(vectors)) for j in range(i)]
        expected = torch.cat((passed, torch.stack(products) if products else torch.empty(0)))
        torch.testing.assert_close(seen[0][sample], expected, msg=f"sample {sample}")


def test_sizes_of_criteo_kaggle():
    model = DLRM(13, 26, 16)
    widths = [layer.out_features for layer in model.modules() if hasattr(layer, "out_features")]
    assert widths == [512, 256, 64, 16, 512, 256, 1]
    assert model.top[0].in_features == 16 + 27 * 26 // 2


def test_scale_shrinks_hidden_layers_only():
    model = DLRM(13, 26, 16, scale=0.25)
    widths = [layer.out_features for layer in model.modules() if hasattr(layer, "out_features")]
    assert widths == [128, 64, 16, 16, 128, 64, 1]


def test_logit_can_be_negative():
    """A ReLU after the last layer would keep logits from being negative."""
    torch.manual_seed(1)
    model = DLRM(2, 3, 4, scale=0.1)
    assert (model(torch.randn(200, 2), torch.randn(200, 3, 4)) < 0).any()
