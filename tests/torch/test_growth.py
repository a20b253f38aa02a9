"""`grow()` of tables with `ids="any"`: bits over modes, what it refuses, and saved states."""

import copy
import io
from dataclasses import replace

import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.ids import Expiry, LeastCount
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, TrainPipeline

from tests.torch.test_id_maps import (
    DIM,
    ROWS,
    RULES,
    batches,
    collection,
    digest,
    step,
    tables,
    train,
)
from tests.torch.test_on_card import linked

MODES = {"resident": {"ahead": 2}, "scratchpipe": {"ahead": 3, "workers": 1},
         "freqcache": {"ahead": 2, "share": 4, "admission": True}, "hotline": {"ahead": 1}}


def rows_in_slots(embeddings):
    """Groups, tables, rows and slots of the rows that have one."""
    found = []
    for group, storage in enumerate(embeddings.store.storages):
        rows = embeddings.store.groups[group].tables.locate(storage.resident)
        found += zip([group] * len(rows), rows.table.tolist(), rows.row.tolist(),
                     storage.resident_slots.tolist(), strict=True)
    return found


def grown(mode, rule, made, ahead=0, **options):
    """Results, and the collection, which grew twice on the way."""
    embeddings, results = collection(mode, rule, **options), []
    for part, name in ((made[:20], "user"), (made[20:40], "item"), (made[40:], None)):
        results.append(train(embeddings, part, ahead))
        if mode == "hotline" and not embeddings.learn({"user": range(9), "item": range(40)}):
            raise AssertionError("no row is hot")
        if name is not None:
            slots, counts = rows_in_slots(embeddings), embeddings.cache.access_counts()
            assert embeddings.grow(name) == 2 * ROWS
            assert rows_in_slots(embeddings) == slots
            assert counts is None or torch.equal(embeddings.cache.access_counts(), counts)
    return torch.cat(results), embeddings


@pytest.mark.parametrize("rule", RULES)
def test_modes_change_no_bit(rule):
    made = batches(seed=11)
    results, plain = grown("resident", rule, made)
    expected = digest(plain)
    assert len(plain.id_maps.maps[0]) > ROWS and len(plain.id_maps.maps[2]) > ROWS // 3
    assert [len(table) for table in plain.state_dict().values() if len(table) < 200] == [
        2 * ROWS, 9, 2 * ROWS]
    for mode, options in MODES.items():
        found, embeddings = grown(mode, rule, made, **options)
        with embeddings:
            assert torch.equal(found, results), mode
            assert digest(embeddings) == expected, mode


def test_a_card_over_a_link_has_the_grown_table():
    made = batches(seed=12)
    results, plain = grown("resident", "rowwise", made)
    expected = digest(plain)
    with linked() as device:
        embeddings = HotEmbeddingBagCollection(
            tables(), device, "scratchpipe", RULES["rowwise"](), seed=5, share=4)
        assert embeddings.store.slots < 2 * ROWS, "rows go back to the card's memory"
        found = []
        for part, name in ((made[:20], "user"), (made[20:40], "item"), (made[40:], None)):
            found.append(train(embeddings, part, 2))
            if name is not None:
                embeddings.grow(name)
        assert torch.equal(torch.cat(found), results) and digest(embeddings) == expected
        embeddings.close()


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_grown_table_is_one_that_had_the_rows_from_the_start(mode):
    """Where none expires. A row begins alike before and after the table has grown."""
    made = batches(seed=13)
    small, large = (collection(mode, "adagrad", [TableConfig("user", rows, DIM, ids="any")])
                    for rows in (ROWS, 2 * ROWS))
    with small, large:
        large.id_maps.maps[0].first_rows = ROWS
        for each in (small, large):
            each.contents.assign("user", torch.full((1, DIM), 0.1))
        for number, ids in enumerate(each[:, :1] for each in made):
            if number == 9:
                small.grow("user")
            assert torch.equal(step(small, ids), step(large, ids)), number
        rows = small.id_maps.maps[0].items()[1]
        assert rows.max() >= ROWS and small.id_maps.maps[0].digest() == large.id_maps.maps[
            0].digest()
        for here, there in zip(small.table("user"), large.table("user"), strict=True):
            assert torch.equal(here[rows], there[rows])


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_growth_waits_for_batches(mode):
    made, whole = batches(seed=14, count=12), collection(mode)
    with collection(mode) as embeddings, whole:
        train(whole, made[:8])
        whole.grow("user")
        train(whole, made[8:])
        train(embeddings, made[:6])
        embeddings.prefetch(made[6])
        with pytest.raises(Error, match=r"batches .*step the optimizer to let table 'user' grow"):
            embeddings.grow("user")
        found = embeddings(made[6])
        with pytest.raises(Error, match=r"batches .*step the optimizer to let table 'user' grow"):
            embeddings.grow("user")
        (found.sum(dim=1) * torch.arange(1, 4)).sin().sum().backward()
        with pytest.raises(Error, match=r"staged.*step\(\) or zero_grad\(\), to let"):
            embeddings.grow("user")
        embeddings.optimizer.step()
        train(embeddings, made[7:8])
        embeddings.grow("user")
        train(embeddings, made[8:])
        assert digest(embeddings) == digest(whole)


def test_a_pipeline_goes_on_after_an_epoch():
    epochs = batches(seed=18)[:20], batches(seed=18)[20:]
    with collection() as embeddings, collection("resident") as plain:
        for made in epochs:
            train(plain, made)
            pipeline = TrainPipeline(made, embeddings, lambda ids: ids)
            for ids in pipeline:
                step(embeddings, ids)
                if pipeline.batch == 9:
                    with pytest.raises(Error, match="5 batches are in flight: end the pipel"):
                        embeddings.grow("user")
            embeddings.grow("user")
            plain.grow("user")
        assert digest(embeddings) == digest(plain)


def test_what_cannot_grow():
    mixed = [TableConfig("user", ROWS, DIM, ids="any", expiry=Expiry(cap=9)),
             TableConfig("item", ROWS, DIM, ids="any"), TableConfig("plain", 9, DIM)]
    with collection(given=mixed) as embeddings:
        before = embeddings.sha256()
        for name, message in (("user", "at most 9 ids have a row"), ("none", "there is no table"),
                              ("plain", "a table with ids='any' grows")):
            with pytest.raises(Error, match=message):
                embeddings.grow(name)
        assert embeddings.sha256() == before
    with pytest.raises(Error, match="there is none"):
        collection("resident", given=mixed[2:]).grow("plain")


@pytest.mark.parametrize("where", [
    "device", "hotrow.ids.index.Index.rebuild hotrow.ids.index.CompiledIndex.rebuild",
    "hotrow.torch.memory.rows.RowKind.allocate",
    "hotrow.torch.collection.collection.Grouping", "hotrow.torch.collection.collection.replace"])
def test_growth_without_room_leaves_the_table_as_it_was(where, monkeypatch):
    made, whole = batches(seed=15, count=20), collection()
    with collection() as embeddings, whole:
        train(whole, made)
        train(embeddings, made[:9])
        device = embeddings.store.device

        def refuse(*_, **__):
            raise MemoryError("planted")

        with monkeypatch.context() as patched:
            for each in where.split():
                if each == "device":
                    patched.setattr(device, "register", refuse)
                else:
                    patched.setattr(each, refuse)
            with pytest.raises(MemoryError):
                embeddings.grow("item")
        assert embeddings.tables[2].num_embeddings == ROWS
        train(embeddings, made[9:], ahead=2)
        assert digest(embeddings) == digest(whole)


def test_views_of_before_are_refused_and_later_ones_written():
    with collection() as embeddings:
        made = batches(seed=16, count=9)
        train(embeddings, made)
        before = embeddings.table("plain")[0]
        embeddings.grow("user")
        with pytest.raises(Error, match="has grown since"):
            before.sum()
        assert before.shape == (9, DIM) and embeddings.table("user")[0].shape == (2 * ROWS, DIM)
        assert embeddings.tables[0].num_embeddings == 2 * ROWS == embeddings.id_maps.maps[
            0].table_rows
        embeddings.table("plain")[0][:] = 7
        assert (embeddings.eval()(made[0])[:, DIM:2 * DIM] == 7).all()


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_saved_states_of_before_and_after(mode):
    made = batches(seed=17)
    with collection(mode, "adagrad") as first:
        train(first, made[:20])
        before = copy.deepcopy(first.state_dict())
        first.grow("user")
        train(first, made[20:40], ahead=2)
        file = io.BytesIO()
        torch.save((first.state_dict(), first.optimizer.state_dict()), file)
        copied = copy.deepcopy(first)
        file.seek(0)
        state, of_optimizer = torch.load(file, weights_only=True)
        small = collection(mode, "adagrad", seed=9)
        with small, pytest.raises(RuntimeError, match=r"has rows 48.*was saved with 96"):
            small.load_state_dict(state)
        with pytest.raises(RuntimeError, match=r"has rows 96.*was saved with 48"):
            first.load_state_dict(before)
        large = [replace(config, num_embeddings=2 * ROWS) if config.name == "user" else config
                 for config in tables()]
        with collection(mode, "adagrad", large, seed=9) as second:
            second.load_state_dict(state)
            second.optimizer.load_state_dict(of_optimizer)
            for each in (first, second, copied):
                train(each, made[40:], ahead=1)
            assert digest(second) == digest(first) == digest(copied)


def test_estimates_and_counts_stay():
    config = TableConfig("user", ROWS, DIM, ids="any", admission=LeastCount(3, 64))
    with collection(given=[config]) as embeddings:
        ids = torch.tensor([[5], [6], [6]])
        step(embeddings, ids)
        embeddings.grow("user")
        step(embeddings, ids)
        assert embeddings.id_maps.maps[0].find([5, 6]).tolist() == [0, 1]
        step(embeddings, ids)
        assert embeddings.id_maps.maps[0].find([5, 6]).tolist() == [2, 1]
