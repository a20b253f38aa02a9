"""Collections whose tables are on a card, over a link or beside the host's memory.

They train to the same bits, and no write is missed.
"""

from dataclasses import replace

import hotrow
import pytest
import torch
from hotrow import HostWriteError, RegistrationError
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig
from hotrow.transports.link.transport import LinkTransport
from hotrow_sim.link.local_channel import LocalChannel
from hotrow_sim.link.model_card import ModelCard
from hotrow_sim.model import Device as Model

from tests.torch.training import PLANNING, draw, train

KEPT = (TableConfig("user", 300, 8), TableConfig("item", 500, 8))


def linked(config=PLANNING, memory_bytes=1 << 20):
    """A device on a link to a golden card."""
    card = ModelCard(config, memory_bytes)
    return hotrow.Device(LinkTransport("link", LocalChannel(card.endpoint()), 60.0, 2), 60.0, 64, 0)


def beside(config=PLANNING, memory_bytes=1 << 20):
    """A golden card that reaches the host's memory beside its own."""
    config = replace(config, card_memory_log2=memory_bytes.bit_length() - 1)
    return hotrow.Device(Model(config), 60.0, 64, 0)


KINDS = {"link": linked, "beside": beside}


@pytest.fixture(params=KINDS)
def opened(request):
    """Opens a device of one kind."""
    return KINDS[request.param]


@pytest.fixture
def collection(opened):
    with opened() as device, HotEmbeddingBagCollection(KEPT, device, "scratchpipe", "sgd", 0.5,
                                                       options=Options(seed=3)) as collection:
        yield collection


def step(collection, ids):
    """Train on ids int64[samples, tables]; the embeddings before."""
    found = collection(ids)
    found.sum().backward()
    collection.optimizer.step()
    return found.detach()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [
    "rowwise_adagrad", pytest.param("adagrad", marks=pytest.mark.long)])
@pytest.mark.parametrize("options", [
    {"mode": "scratchpipe", "share": 4, "ahead": 3},
    {"mode": "freqcache", "share": 4, "policy": "freq"}, {"mode": "hotline"},
], ids=lambda options: options["mode"])
def test_tables_state_and_losses_are_residents(monkeypatch, opened, optimizer, options):
    batches = draw(1, 12)
    resident = train(batches, optimizer=optimizer)
    monkeypatch.setattr(hotrow, "open", lambda _, config: opened(config))
    found = train(batches, optimizer=optimizer, **options)
    assert (found.sha256, found.losses) == (resident.sha256, resident.losses)


def test_a_step_moves_no_table():
    ids = torch.tensor([[1, 2], [3, 2]])
    with linked() as device, HotEmbeddingBagCollection(KEPT, device, "scratchpipe") as collection:
        step(collection, ids)
        access = device.transport.memory.access
        before = access.sent + access.fetched
        step(collection, ids + 1)
        assert access.sent + access.fetched - before < 1500 < 300 * 8 * 4
    with beside() as device, HotEmbeddingBagCollection(KEPT, device, "scratchpipe") as collection:
        step(collection, ids)
        copies = device.statistics["COPY"]
        step(collection, ids + 1)
        assert device.statistics["COPY"] == copies


def test_weights_are_those_of_the_card(collection):
    step(collection, torch.tensor([[1, 2], [3, 2]]))
    trained = collection.embedding_bags["user"].weight
    plain = HotEmbeddingBagCollection(KEPT, None, "resident", "sgd", 0.5, options=Options(seed=3))
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


def test_a_closed_collection_has_the_rows_of_the_card(opened):
    ids = torch.tensor([[1, 2], [3, 2]])
    with opened() as device:
        collection = HotEmbeddingBagCollection(KEPT, device, "scratchpipe", "sgd", 0.5,
                                               options=Options(seed=3))
        before = step(collection, ids)
        collection.close()
        assert not device.regions.on_card
        collection.flush()
        after = collection.eval()(ids)
    assert (after[:, :8] == before[:, :8] - 0.5).all() and (after != before).all()


def test_a_card_without_room_names_the_tables():
    with linked(memory_bytes=36 << 10) as device, pytest.raises(
            RegistrationError, match=r"rows of tables 'user' to 'item' cannot be registered: no "
                                     r"room for \d+ bytes in the card's memory of 36864"):
        HotEmbeddingBagCollection(KEPT, device, "scratchpipe")


def test_tables_that_do_not_fit_the_card_are_in_the_hosts_memory():
    """Rows of 8 elements on the card, the larger ones of 16 beside them: the same bits."""
    kept = *KEPT, TableConfig("page", 4000, 16)
    ids = torch.tensor([[1, 2, 3999], [3, 2, 7]])

    def trained(device, mode):
        with HotEmbeddingBagCollection(kept, device, mode, "sgd", 0.5,
                                       options=Options(seed=3)) as collection:
            for turn in range(3):
                step(collection, ids - turn % 2)
            found = {name: value.clone() for name, value in collection.state_dict().items()}
            return found, mode != "resident" and collection.store.slot_map.on_card
    with beside(memory_bytes=1 << 15) as device:
        found, on_card = trained(device, "scratchpipe")
    assert on_card == ["user", "item"]
    expected, _ = trained(None, "resident")
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("fits", [False, True])
def test_rows_of_a_device_that_fails(monkeypatch, fits):
    """Of tables in the host's memory none is lost; those on the card are named."""
    ids = torch.tensor([[1, 2], [3, 2]])
    device = beside(memory_bytes=1 << (20 if fits else 12))
    collection = HotEmbeddingBagCollection(KEPT, device, "scratchpipe", "sgd", 0.5,
                                           options=Options(seed=3))
    before = step(collection, ids)
    def refuse(*_, **__):
        raise hotrow.DeviceError("the queue has stopped")
    monkeypatch.setattr(device._commands, "submit", refuse)
    if fits:
        with pytest.raises(hotrow.TransportError, match="rows of 'user', 'item' that left their"):
            collection.flush()
    else:
        with pytest.warns(UserWarning, match="none is lost"):
            collection.flush()
        rows = collection.contents.table("user")[0]
        assert (rows[1] == before[0, :8] - 0.5).all()
