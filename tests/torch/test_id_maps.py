"""Tables with `ids="any"`: bits over modes and prefetches, rows that begin, resumed maps."""

import copy
import io
from collections import deque

import numpy as np
import pytest
import torch
from hotrow import BatchError
from hotrow.contract.errors import Error
from hotrow.ids import Expiry, IdMap, LeastCount, Probability, initial_rows
from hotrow.torch import (
    Adagrad,
    HotEmbedding,
    HotEmbeddingBag,
    HotEmbeddingBagCollection,
    RowwiseAdagrad,
    TableConfig,
)
from hotrow.torch.collection.id_batches import TableChanges
from hotrow.torch.collection.id_maps import KEPT
from safetensors import safe_open

ROWS, DIM, SAMPLES, BATCHES = 48, 4, 3, 60
RULES = {"sgd": lambda: "sgd", "adagrad": lambda: Adagrad(0.1), "rowwise": lambda:
         RowwiseAdagrad(0.1)}


def tables(**more):
    options = {"expiry": Expiry(), **more}
    return [TableConfig("user", ROWS, DIM, ids="any", **options),
            TableConfig("plain", 9, DIM),
            TableConfig("item", ROWS, DIM, ids="any", admission=LeastCount(2, 1 << 10),
                        expiry=Expiry(below=2, every=7), feature_names=("bought", "seen"))]


def batches(seed, count=BATCHES):
    """Ids [samples, 4] that drift: uint64 hashes of a moving range, and rows of the plain table."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        ids = rng.integers(number, number + 12, (SAMPLES, 4), np.uint64)
        hashed = (ids * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
        hashed[:, 1] = rng.integers(9, size=SAMPLES)
        made.append(torch.from_numpy(hashed))
    return made


def collection(mode="scratchpipe", rule="sgd", given=None, seed=5, **options):
    more = {} if mode == "resident" else {"device": "cpu", "preset": "tiny"}
    return HotEmbeddingBagCollection(given or tables(), mode=mode, optimizer=RULES[rule](), lr=0.1,
                                     seed=seed, **more, **options)


def step(embeddings, ids):
    found = embeddings(ids)
    (found.sum(dim=1) * torch.arange(1, len(found) + 1)).sin().sum().backward()
    embeddings.optimizer.step()
    return found.detach()


def train(embeddings, made, ahead=0):
    """Train, with that many batches prefetched; the results."""
    waiting, results = deque(), []
    for ids in made:
        if ahead:
            embeddings.prefetch(ids)
        waiting.append(ids)
        if len(waiting) > ahead:
            results.append(step(embeddings, waiting.popleft()))
    return torch.cat(results + [step(embeddings, ids) for ids in waiting])


def digest(embeddings):
    embeddings.flush()
    return embeddings.sha256(), [each.digest() for each in embeddings.id_maps.maps.values()]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_modes_and_prefetches_change_no_bit(rule):
    made = batches(seed=1)
    plain = collection("resident", rule)
    results = train(plain, made)
    expected = digest(plain)
    lost = [len(each.log.events()) for each in plain.id_maps.maps.values()]
    assert min(lost) > ROWS, "rows change hands"
    for mode, ahead, options in (("resident", 3, {}), ("scratchpipe", 0, {}),
                                 ("scratchpipe", 4, {"workers": 1}),
                                 ("freqcache", 3, {"share": 4}),
                                 ("hotline", 0, {})):
        with collection(mode, rule, **options) as embeddings:
            assert torch.equal(train(embeddings, made, ahead), results), (mode, ahead)
            assert digest(embeddings) == expected, (mode, ahead)


def test_against_a_map_in_front_of_pytorch():
    """Rows of each batch, of a map and a module of PyTorch, whose rows begin by hand."""
    made = batches(seed=2)
    config = TableConfig("user", ROWS, DIM, ids="any", admission=Probability(0.5), expiry=Expiry())
    with collection(given=[config], seed=3) as embeddings:
        ids = IdMap(ROWS, Probability(0.5), Expiry(), seed=3)
        bags = torch.nn.EmbeddingBag(ROWS, DIM, mode="sum")
        bags.weight.data[0] = embeddings.embeddings["user"].weight.detach()[0]
        trained = torch.optim.SGD(bags.parameters(), lr=0.1)
        for number, batch in enumerate(made):
            ids.done(max(0, number - KEPT))
            planned = ids.plan(batch[:, :1])
            bags.weight.data[planned.admitted_rows] = torch.from_numpy(initial_rows(
                planned.admitted_ids, DIM, 3, ROWS ** -0.5))
            expected = bags(torch.from_numpy(planned.rows))
            torch.testing.assert_close(step(embeddings, batch[:, :1]), expected.detach(),
                                       rtol=1e-5, atol=1e-6)
            trained.zero_grad()
            (expected.sum(dim=1) * torch.arange(1, SAMPLES + 1)).sin().sum().backward()
            trained.step()
        assert len(ids) > ROWS // 2 and embeddings.id_maps.maps[0].digest() == ids.digest()


def test_evaluation_admits_nothing_and_reads_the_default_row():
    with collection() as embeddings:
        train(embeddings, batches(seed=3, count=20))
        before, strange = digest(embeddings), torch.full((SAMPLES, 4), -77)
        strange[:, 1] = 0
        embeddings.eval()
        found = embeddings(strange)
        first = embeddings.embeddings["user"].weight.detach()[0]
        assert torch.equal(found[:, :DIM], first.expand(SAMPLES, DIM))
        embeddings.observe(strange)
        assert digest(embeddings) == before
        # An id that a coming batch admits has no row before that batch trains.
        embeddings.train().prefetch(strange)
        with torch.no_grad():
            assert torch.equal(embeddings(strange), found)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
@pytest.mark.parametrize("copied", ["state", "pickle"])
def test_a_run_goes_on_from_a_saved_state(mode, copied):
    made = batches(seed=4)
    whole = collection("resident", "adagrad")
    train(whole, made)
    with collection(mode, "adagrad") as first:
        for number, ids in enumerate(made[:40]):
            for coming in made[number + 4:number + 5] if number else made[:5]:
                first.prefetch(coming)  # four batches are planned when the state is saved
            step(first, ids)
        if copied == "pickle":
            second = copy.deepcopy(first)
        else:
            file = io.BytesIO()
            torch.save((first.state_dict(), first.optimizer.state_dict()), file)
            file.seek(0)
            second = collection(mode, "adagrad", seed=99)
            state, of_optimizer = torch.load(file, weights_only=True)
            second.load_state_dict(state)
            second.optimizer.load_state_dict(of_optimizer)
        first.abandon()
    with second:
        train(second, made[40:], ahead=2)
        assert digest(second) == digest(whole)


@pytest.mark.slow
def test_abandoned_batches_keep_their_rows():
    made = batches(seed=6, count=50)
    whole = collection("resident")
    train(whole, made)
    with collection() as embeddings:
        train(embeddings, made[:20])
        for ids in made[20:23]:
            embeddings.prefetch(ids)
        embeddings.abandon()
        train(embeddings, made[20:], ahead=1)
        assert digest(embeddings) == digest(whole)


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
@pytest.mark.parametrize("waiting", [0, 2])
def test_a_refused_batch_changes_no_map(mode, waiting):
    with collection(mode) as embeddings:
        made = batches(seed=7, count=12)
        train(embeddings, made[:6])
        for ids in made[6:6 + waiting]:
            embeddings.prefetch(ids)
        wrong = made[8].clone()
        wrong[2, 1] = 9
        for call in (embeddings.prefetch, *[embeddings] * (not waiting)):
            with pytest.raises(BatchError, match="id 9 of sample 2 is no row of table 'plain'"):
                call(wrong)
        for ids in made[6 + waiting:9]:
            embeddings.prefetch(ids)
        for ids in made[6:]:
            step(embeddings, ids)
        whole = collection("resident")
        train(whole, made)
        assert digest(embeddings) == digest(whole)


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_batch_without_lookups_leaves_those_that_were_prefetched(mode):
    made = batches(seed=11, count=30)
    made[5] = made[5][:0]
    whole = collection("resident")
    train(whole, made)
    with collection(mode) as embeddings:
        train(embeddings, made, ahead=3)
        assert digest(embeddings) == digest(whole)


@pytest.mark.parametrize("waiting", range(3))
def test_a_batch_that_the_card_does_not_take_keeps_its_rows(monkeypatch, waiting):
    """With so many batches prefetched; without, the batch is looked up instead."""
    made = batches(seed=12, count=40)
    whole = collection("resident")
    train(whole, made)
    with collection() as embeddings:
        train(embeddings, made[:20])
        for ids in made[20:20 + waiting]:
            embeddings.prefetch(ids)
        with monkeypatch.context() as patched, pytest.raises(Error, match="planted"):
            patched.setattr(embeddings.store, "_check_size", _planted)
            (embeddings.prefetch if waiting else embeddings)(made[20 + waiting])
        for ids in made[20 + waiting:22 + waiting]:
            embeddings.prefetch(ids)
        for ids in made[20:]:
            step(embeddings, ids)
        assert digest(embeddings) == digest(whole)


def test_a_batch_whose_rows_cannot_begin_is_left_out(monkeypatch):
    """As one that is skipped; those behind it train."""
    made, digests = batches(seed=13, count=40), []
    for skips in (True, False):
        with collection() as embeddings:
            train(embeddings, made[:20])
            for ids in made[20:23]:
                embeddings.prefetch(ids)
            if skips:
                embeddings.skip()
            else:
                with monkeypatch.context() as patched, pytest.raises(Error, match="planted"):
                    patched.setattr(embeddings.id_maps, "_write", _planted)
                    embeddings(made[20])
            train(embeddings, made[21:])
            digests.append(digest(embeddings))
    assert digests[0] == digests[1]


def _planted(*_):
    raise Error("planted")


def test_gradients_of_many_batches_reach_the_ids_that_staged_them():
    """No row changes hands while a gradient of it waits for its step."""
    made = batches(seed=8)
    with collection(given=[TableConfig("user", ROWS, DIM, ids="any", expiry=Expiry())],
                    mode="resident") as embeddings:
        for start in range(0, BATCHES, 20):
            held = {}
            for ids in made[start:start + 20]:
                embeddings(ids[:, :1]).sum().backward()
                rows = embeddings.id_maps.maps[0].find(ids[:, :1].numpy()).reshape(-1)
                for id_, row in zip(ids[:, 0].tolist(), rows.tolist(), strict=True):
                    if row:
                        assert held.setdefault(row, id_) == id_
            embeddings.optimizer.step()


def test_more_prefetched_batches_than_rows_are_kept_for_are_refused():
    """Else rows would depend on how many are prefetched; the refused batch changes nothing."""
    made = batches(8)
    with collection() as embeddings, collection() as other:
        for ids in made[:KEPT + 1]:
            embeddings.prefetch(ids)
        with pytest.raises(Error, match=r"'user' has an expiry, and no step has followed 17 batch"):
            embeddings.prefetch(made[KEPT + 1])
        assert train(embeddings, made[:KEPT + 1]).equal(train(other, made[:KEPT + 1]))
        assert digest(embeddings) == digest(other)
    with collection(given=[TableConfig("user", 900, DIM, ids="any")]) as embeddings:
        for ids in made:
            embeddings.prefetch(ids[:, :1])


def test_exports_follow_the_table():
    made, export = batches(seed=9), {}
    with collection() as embeddings:
        since = 0
        for start in range(0, BATCHES, 15):
            train(embeddings, made[start:start + 15], ahead=3)
            changes = embeddings.changes(since)["user"]
            for id_ in changes.removed.tolist():
                export.pop(id_, None)
            export.update(zip(changes.ids.tolist(), changes.weights, strict=True))
            since = changes.until
        embeddings.id_maps.forget(since)
        whole = embeddings.changes()["user"]
        assert sorted(whole.ids.tolist()) == sorted(export)
        for id_, weights in zip(whole.ids.tolist(), whole.weights, strict=True):
            assert torch.equal(export[id_], weights)


def test_changes_are_forgotten_by_table():
    made = batches(seed=9)
    with collection() as embeddings:
        train(embeddings, made[:40])
        for until, name, message in ((40, "plain", r"no table 'plain' .* user, item"),
                                     (41, None, "up to 41 cannot.* 40 batches have trained"),
                                     (-1, "user", "up to -1 cannot")):
            with pytest.raises(Error, match=message):
                embeddings.id_maps.forget(until, name)
        before, size = embeddings.changes(30), len(embeddings.id_maps.state())
        embeddings.id_maps.forget(30, "user")
        assert len(embeddings.id_maps.state()) < size
        with pytest.raises(Error, match="begins after batch 30, and events since batch 20"):
            embeddings.changes(20)
        for name, each in embeddings.changes(30).items():
            for part in ("ids", "rows", "removed"):
                assert torch.equal(getattr(each, part), getattr(before[name], part))
        copied = copy.deepcopy(embeddings)
        with pytest.raises(Error, match="begins after batch 30"):
            copied.changes(29)
        embeddings.id_maps.forget(40)
        assert all(len(each.ids) == len(each.removed) == 0
                   for each in embeddings.changes(40).values())
        train(embeddings, made[40:])
        assert before["user"].until == 40 and len(embeddings.changes(40)["user"].ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_exports_are_saved(tmp_path, dtype):
    with collection(given=[TableConfig("user", ROWS, DIM, dtype=dtype, ids="any",
                                       expiry=Expiry())]) as embeddings:
        train(embeddings, [ids[:, :1] for ids in batches(seed=9)])
        changes = embeddings.changes(since=40)["user"]
    assert len(changes.ids) and len(changes.removed)
    changes.save(tmp_path / "changes.npz")
    changes.save(tmp_path / "changes.safetensors")
    with np.load(tmp_path / "changes.npz", allow_pickle=False) as arrays, safe_open(
            tmp_path / "changes.safetensors", "pt") as tensors:
        numbers = {"since": "40", "until": str(BATCHES)}
        assert tensors.metadata().items() > numbers.items()
        assert (arrays["since"], arrays["until"]) == (40, BATCHES)
        for name in ("ids", "rows", "weights", "removed"):
            expected = getattr(changes, name)
            assert torch.equal(tensors.get_tensor(name), expected), name
            assert torch.equal(torch.from_numpy(arrays[name]).to(expected.dtype), expected), name
            for suffix in ("npz", "safetensors"):
                read = getattr(TableChanges.load(tmp_path / f"changes.{suffix}"), name)
                assert torch.equal(read.to(expected.dtype), expected), (name, suffix)
    with pytest.raises(Error, match=r"is no file of changes .*No such file"):
        TableChanges.load(tmp_path / "other.npz")
    with pytest.raises(Error, match=r"\.npz or \.safetensors, not '\.csv'"):
        changes.save(tmp_path / "changes.csv")


@pytest.mark.parametrize("call, message", [
    (lambda: TableConfig("a", 9, 4, ids="hashed"), "ids are 'rows' or 'any', not 'hashed'"),
    (lambda: TableConfig("a", 9, 4, expiry=Expiry()), "admission and expiry need ids='any'"),
    (lambda: TableConfig("a", 9, 4, admission=LeastCount(2, 9)), "admission and expiry need"),
    (lambda: collection("hotline", cold="pooled"), "cold='gathered'"),
    (lambda: collection("hotline").batches.parts().__next__(), "Call the collection"),
    (lambda: TableConfig("a", 1, 4, ids="any"), "table 'a': a map of ids needs 2 to"),
    (lambda: TableConfig("a", 9, 4, ids="any", admission=2), "'a': admission is .* LeastCount or "),
    (lambda: TableConfig("a", 9, 4, ids="any", admission=Expiry()), "'a': admission is .*Expiry"),
    (lambda: TableConfig("a", 9, 4, ids="any", expiry=50), "'a': expiry is .* Expiry, and not 50"),
    (lambda: TableConfig("a", 9, 4, ids="any", expiry=Expiry(cap=9)), "'a': the cap of 9 ids"),
    (lambda: TableConfig("a", 9, 4, ids="any", expiry=Expiry(floor=9)), "'a': 9 rows .* floor"),
    (lambda: HotEmbeddingBag(9, 4, ids="any"), "a HotEmbeddingBag has ids 0 to .*ids='any'"),
    (lambda: HotEmbedding(ROWS, DIM, collection=collection("resident"), name="user"),
     "a HotEmbedding of table 'user' has .* state_dict"),
    (lambda: collection("hotline").learn({"user": [3, 1 << 40]}), "1099511627776 is no row"),
    (lambda: collection("hotline").learn({"user": [-5]}), "-5 is no row"),
])
def test_what_is_refused(call, message):
    with pytest.raises(Error, match=message):
        call()


@pytest.mark.parametrize("inputs, message", [
    (np.array([["a"], ["b"]]), "ndarray of strings: hotrow.torch.ids_of makes ids of a column"),
    ([(np.array(["a", "b"]), [0, 1])], "feature 0 .* of strings: hotrow.torch.ids_of"),
    ([["a"], ["b"]], "tables, got 2: ids .samples, features. are a tensor or an array"),
    (torch.tensor([5, 6]), r"shape \[2\]: one feature is ids\[:, None\]"),
    (np.array([[1 << 64]], object), "integers"), (np.array([[1.0]]), "integers")], ids=str)
def test_inputs_that_are_no_ids(inputs, message):
    with collection(given=[TableConfig("a", 9, DIM, ids="any")]) as embeddings:
        with pytest.raises(BatchError, match=message):
            embeddings(inputs)
        assert embeddings.id_maps.maps[0].batch == 0


@pytest.mark.parametrize("inputs", [
    np.array([[1 << 63], [1]], np.uint64), np.array([[1 << 63], [1]], object),
    torch.tensor([[-1 << 63], [1]]), [([1 << 63, 1], [0, 1])]], ids=str)
def test_forms_of_the_same_ids(inputs):
    with collection(given=[TableConfig("a", 9, DIM, ids="any")]) as embeddings:
        embeddings(inputs)
        assert dict(zip(*(each.tolist() for each in embeddings.id_maps.maps[0].items()),
                        strict=True)) == {1 << 63: 1, 1: 2}


@pytest.mark.parametrize("state, message", [
    (None, "Missing key.*_extra_state"), (b"no", "no state of maps of ids"),
    ("other", "expected maps of ids of tables"),
    ("fewer", "has rows 48, and its map of ids was saved with 20"),
    ("expiry", "'item' has expiry Expiry.*below=2.* was saved with None")])
def test_states_that_do_not_fit(state, message):
    embeddings = collection("resident")
    train(embeddings, batches(seed=10, count=3))
    saved, before = embeddings.state_dict(), digest(embeddings)
    if state is None:
        del saved["_extra_state"]
    elif isinstance(state, bytes):
        saved["_extra_state"] = state
    elif state == "expiry":
        admission = {"user": None, "item": LeastCount(2, 1 << 10)}
        saved["_extra_state"] = collection("resident", given=[
            TableConfig(name, ROWS, DIM, ids="any", admission=each,
                        expiry=Expiry() if name == "user" else None)
            for name, each in admission.items()]).id_maps.state()
    else:
        rows, names = (ROWS, ("a", "b")) if state == "other" else (20, ("user", "item"))
        saved["_extra_state"] = collection("resident", given=[
            TableConfig(name, rows, DIM, ids="any") for name in names]).id_maps.state()
    with pytest.raises(RuntimeError, match=message):
        embeddings.load_state_dict(saved)
    assert digest(embeddings) == before


@pytest.mark.parametrize("lacking", ["_extra_state", "embedding_bags.item.weight"])
def test_rows_load_with_their_ids_or_not_at_all(lacking):
    embeddings, other = collection("resident"), collection("resident", seed=6)
    for each, seed in ((embeddings, 10), (other, 11)):
        train(each, batches(seed, count=3))
    saved, before = embeddings.state_dict(), digest(other)
    del saved[lacking]
    with pytest.raises(RuntimeError, match=f"{lacking} missing: rows of .* load together"):
        other.load_state_dict(saved, strict=False)
    other.load_state_dict({}, strict=False)
    assert digest(other) == before
    plain = [TableConfig(config.name, config.num_embeddings, DIM, feature_names=(
        config.feature_names)) for config in tables()]
    other = collection("resident", given=plain)
    before = other.sha256()
    for strict in (True, False):
        with pytest.raises(RuntimeError, match="_extra_state has the ids of rows, and no table"):
            other.load_state_dict(embeddings.state_dict(), strict)
    assert other.sha256() == before


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_batch_without_lookups_before_a_prefetched_one(mode):
    """It has no number, and the ids of the other are counted once."""
    with collection(mode, given=[TableConfig("a", 9, DIM, ids="any")]) as embeddings:
        ids = torch.tensor([[5], [6]])
        embeddings.prefetch(ids)
        assert embeddings(ids[:0]).shape == (0, DIM)
        embeddings(ids)
        assert embeddings.id_maps.maps[0].batch == 1


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_exports_of_tensors_with_memory_in_common(tmp_path, suffix):
    numbers, whole = torch.arange(8), torch.nn.Parameter(torch.rand(4, 6))
    changes = TableChanges(0, 1, numbers[::2], numbers[:4], whole[:, 1:4], numbers[:2])
    changes.save(tmp_path / f"changes.{suffix}")
    read = TableChanges.load(tmp_path / f"changes.{suffix}")
    for name in ("ids", "rows", "weights", "removed"):
        assert torch.equal(getattr(read, name), getattr(changes, name)), name
