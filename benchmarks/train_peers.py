"""Other libraries' embeddings, with whole tables in the trainer's memory."""

import torch
from hotrow.torch.training.trainer import StepResult
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from .fbgemm import Absent, table_batched


class Peer:
    """A model on the embeddings of another library; a context manager, used like `Mode`.

    Each peer adds `build(tables, rule)`, which makes the embeddings and returns their optimizer, or
    None where backward trains them; and `pooled(ids)`, float32[B, tables, dim] of ids int64[B,
    tables].

    Parameters
    ----------
    model : nn.Module
    tables : EmbeddingTables
        Initial contents of the peer.
    rule : SGD or RowwiseAdagrad

    Raises
    ------
    Absent
    """

    kind, ahead, warmed, slots, in_tables, device = "peer", 0, None, None, False, None

    def __init__(self, model, tables, rule):
        self.model, self.tables = model, tables
        self.dense_optimizer = torch.optim.SGD(model.parameters(), rule.lr)
        self.sparse_optimizer = self.build(tables, rule)

    def build(self, tables, rule):
        """Make the embeddings: their optimizer, or None where backward updates them."""

    def pooled(self, ids):
        """Embeddings of ids int64[samples, tables]: float32[samples, tables, dim]."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def learn(self, batches, ranked=None):
        """There is nothing to learn: every row is in memory."""

    def announce(self, samples):
        """There is nothing to fetch."""

    def flush(self):
        """There is nothing to write back."""

    def metadata_bits(self):
        return None

    def slot_bytes(self):
        return 0

    def step(self, samples):
        ids = torch.from_numpy(samples.ids.astype("int64"))
        logits = self.model(torch.from_numpy(samples.dense), self.pooled(ids))
        loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(samples.label))
        self.model.zero_grad()
        if self.sparse_optimizer is not None:
            self.sparse_optimizer.zero_grad()
        loss.backward()
        self.dense_optimizer.step()
        if self.sparse_optimizer is not None:
            self.sparse_optimizer.step()
        return StepResult(logits.detach().numpy(), samples.ids.size, None)


def _bag(weights):
    return nn.EmbeddingBag(weights.shape[0], weights.shape[1], mode="sum", sparse=True,
                           _weight=weights)


class TorchTables(Peer):
    """`nn.EmbeddingBag(sparse=True)`, one per table."""

    name, in_tables = "torch", True

    def build(self, tables, rule):
        self.bags = nn.ModuleList(
            _bag(weights)
            for weights, _ in map(tables.table, range(tables.count)))
        return _sparse_sgd(self.bags, rule)

    def pooled(self, ids):
        return torch.stack([bag(column[:, None]) for bag, column in zip(
            self.bags, ids.T.contiguous(), strict=True)], dim=1)


class TorchMerged(Peer):
    """`nn.EmbeddingBag(sparse=True)`, one for all tables."""

    name, in_tables = "torch merged", True

    def build(self, tables, rule):
        weights = tables.rows.weights
        self.bag = _bag(weights)
        self.first = torch.from_numpy(tables.first)
        return _sparse_sgd(self.bag, rule)

    def pooled(self, ids):
        found = self.bag((ids + self.first).view(-1, 1))
        return found.view(*ids.shape, -1)


class Fbgemm(Peer):
    """FBGEMM's table-batched embeddings on the CPU, which update in their backward."""

    name = "fbgemm"

    def build(self, tables, rule):
        self.embeddings = table_batched(tables.cardinalities, tables.dim, rule)
        for number, theirs in enumerate(self.embeddings.split_embedding_weights()):
            theirs.data.copy_(tables.table(number)[0])
        for (state,) in self.embeddings.split_optimizer_states() if rule.state else ():
            state.fill_(rule.initial)

    def pooled(self, ids):
        found = self.embeddings(ids.T.reshape(-1), torch.arange(ids.numel() + 1))
        return found.view(*ids.shape, -1)


class TorchRec(Peer):
    """TorchRec's fused collection, called with KeyedJaggedTensors."""

    name = "torchrec"

    def build(self, tables, rule):
        try:
            from torchrec import EmbeddingBagConfig, KeyedJaggedTensor
            from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
        except (ImportError, OSError) as error:
            raise Absent(f"needs the package torchrec: {error}") from None
        if rule.name != "sgd":
            raise Absent(f"runs with sgd here, not {rule.name}")
        self.keyed, self.keys = KeyedJaggedTensor, [f"t{n}" for n in range(tables.count)]
        self.embeddings = FusedEmbeddingBagCollection(
            tables=[EmbeddingBagConfig(name=key, embedding_dim=tables.dim, num_embeddings=rows,
                                       feature_names=[key])
                    for key, rows in zip(self.keys, tables.cardinalities, strict=True)],
            optimizer_type=torch.optim.SGD, optimizer_kwargs={"lr": rule.lr},
            device=torch.device("cpu"))
        theirs = self.embeddings.state_dict()
        for number, key in enumerate(self.keys):
            theirs[f"embedding_bags.{key}.weight"].copy_(tables.table(number)[0])

    def pooled(self, ids):
        keyed = self.keyed(keys=self.keys, values=ids.T.reshape(-1),
                           lengths=torch.ones(ids.numel(), dtype=torch.int64))
        return self.embeddings(keyed).values().view(*ids.shape, -1)


PEERS = (TorchTables, TorchMerged, Fbgemm, TorchRec)


def _sparse_sgd(module, rule):
    if rule.name != "sgd":
        raise Absent(f"PyTorch has no {rule.name}")
    return torch.optim.SGD(module.parameters(), rule.lr)
