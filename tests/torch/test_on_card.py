"""Collections whose tables are on a card, over a link: the same bits, and no write is missed."""

import hotrow
import pytest
import torch
from hotrow import HostWriteError, RegistrationError
from hotrow.torch import HotEmbeddingBagCollection, TableConfig
from hotrow.transports.link.transport import LinkTransport
from hotrow_sim.link.local_channel import LocalChannel
from hotrow_sim.link.model_card import ModelCard

from tests.torch.training import PLANNING, draw, train

KEPT = (TableConfig("user", 300, 8), TableConfig("item", 500, 8))


def linked(config=PLANNING, memory_bytes=1 << 20):
    """A device on a link to a golden card."""
    card = ModelCard(config, memory_bytes)
    return hotrow.Device(LinkTransport("link", LocalChannel(card.endpoint()), 60.0, 2), 60.0, 64, 0)


@pytest.fixture
def collection():
    with linked() as device, HotEmbeddingBagCollection(
            KEPT, device, "scratchpipe", "sgd", 0.5, seed=3) as collection:
        yield collection


def step(collection, ids):
    """Train on ids int64[samples, tables]; the embeddings before."""
    found = collection(ids)
    found.sum().backward()
    collection.optimizer.step()
    return found.detach()


@pytest.mark.parametrize("optimizer", [
    "rowwise_adagrad", pytest.param("adagrad", marks=pytest.mark.long)])
@pytest.mark.parametrize("options", [
    {"mode": "scratchpipe", "share": 4, "ahead": 3},
    {"mode": "freqcache", "share": 4, "policy": "freq", "admission": True}, {"mode": "hotline"},
], ids=lambda options: options["mode"])
def test_tables_state_and_losses_are_residents(monkeypatch, optimizer, options):
    batches = draw(1, 12)
    resident = train(batches, optimizer=optimizer)
    monkeypatch.setattr(hotrow, "open", lambda _, config: linked(config))
    found = train(batches, optimizer=optimizer, **options)
    assert (found.sha256, found.losses) == (resident.sha256, resident.losses)


def test_a_step_fetches_no_table(collection):
    ids = torch.tensor([[1, 2], [3, 2]])
    step(collection, ids)
    access = collection.store.device.transport.memory.access
    before = access.sent + access.fetched
    step(collection, ids + 1)
    assert access.sent + access.fetched - before < 1500 < 300 * 8 * 4


def test_weights_are_those_of_the_card(collection):
    step(collection, torch.tensor([[1, 2], [3, 2]]))
    trained = collection.embedding_bags["user"].weight
    plain = HotEmbeddingBagCollection(KEPT, None, "resident", "sgd", 0.5, seed=3)
    step(plain, torch.tensor([[1, 2], [3, 2]]))
    assert torch.equal(trained, plain.embedding_bags["user"].weight)
    assert collection.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        assert torch.equal(collection.state_dict()[name], value), name


def test_writes_into_a_table_reach_the_card(collection):
    ids = torch.tensor([[1, 2], [3, 2]])
    step(collection, ids)
    with torch.no_grad():
        collection.embedding_bags["user"].weight[3] = 7
    assert (step(collection, ids)[1, :8] == 7).all()
    state = {name: torch.full_like(value, 2) for name, value in collection.state_dict().items()}
    collection.load_state_dict(state)
    assert (collection.eval()(ids) == 2).all()
    collection.flush()


def test_a_write_that_pytorch_does_not_see_is_refused(collection):
    ids = torch.tensor([[1, 2], [3, 2]])
    step(collection, ids)
    weights = collection.contents.table("user")[0].numpy()
    before = weights[9].copy()
    weights[9] = 1
    with pytest.raises(HostWriteError, match=r"of tables 'user' to 'item' \(row 9\)"):
        collection.state_dict()
    weights[9] = before
    collection.flush()


def test_a_closed_collection_has_the_rows_of_the_card():
    ids = torch.tensor([[1, 2], [3, 2]])
    with linked() as device:
        collection = HotEmbeddingBagCollection(KEPT, device, "scratchpipe", "sgd", 0.5, seed=3)
        before = step(collection, ids)
        collection.close()
        assert not device.transport.memory._on_card()
        collection.flush()
        after = collection.eval()(ids)
    assert (after[:, :8] == before[:, :8] - 0.5).all() and (after != before).all()


def test_a_card_without_room_names_the_tables():
    with linked(memory_bytes=36 << 10) as device, pytest.raises(
            RegistrationError, match=r"rows of tables 'user' to 'item' cannot be registered: no "
                                     r"room for \d+ bytes in the card's memory of 36864"):
        HotEmbeddingBagCollection(KEPT, device, "scratchpipe")
