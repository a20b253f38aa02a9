"""Tables with `ids="any"` in files: bits, reopened maps, and files that do not fit."""

import json
import mmap
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.ids import Expiry, initial_rows
from hotrow.torch import TableConfig

from tests.torch.test_id_maps import DIM, ROWS, RULES, batches, collection, digest, tables, train


def in_files(folder, **more):
    return [replace(config, path=folder / config.name) for config in tables(**more)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_run_in_files_that_are_opened_again(mode, rule, tmp_path):
    made = batches(seed=21)
    whole = collection("resident", rule)
    train(whole, made)
    for part, ahead in ((made[:25], 2), (made[25:40], 0), (made[40:], 1)):
        with collection(mode, rule, in_files(tmp_path)) as embeddings:
            train(embeddings, part, ahead)
            found = digest(embeddings)
    assert found == digest(whole)


def test_rows_that_have_not_begun_begin_after_a_restart(tmp_path):
    made = batches(seed=22, count=12)
    with collection(given=in_files(tmp_path)) as embeddings:
        train(embeddings, made[:10])
        before = embeddings.id_maps.maps[0].items()[0]
        for ids in made[10:]:
            embeddings.prefetch(ids)
    with collection(given=in_files(tmp_path), seed=9) as embeddings:
        assert len(embeddings.id_maps.maps[0]) > len(before)
        found, first = embeddings(made[10])[:, :DIM], made[10][:, 0].numpy().view(np.uint64)
        begun = ~np.isin(first, before)
        assert begun.any() and torch.equal(found[begun], torch.from_numpy(
            initial_rows(first[begun], DIM, 5, ROWS ** -0.5)))


@pytest.mark.filterwarnings("ignore:the file .* was not closed")
def test_files_that_were_not_closed_have_no_ids(tmp_path):
    (tmp_path / "copy").mkdir()
    with collection("scratchpipe", given=in_files(tmp_path)) as embeddings:
        train(embeddings, batches(seed=23, count=9))
        embeddings.flush()
        for name in ("user", "plain", "item"):
            shutil.copy(tmp_path / name, tmp_path / "copy" / name)
    with pytest.warns(UserWarning, match="ids of table '.*' were not saved"), collection(
            "scratchpipe", given=in_files(tmp_path / "copy")) as embeddings:
        assert [len(each) for each in embeddings.id_maps.maps.values()] == [0, 0]
        train(embeddings, batches(seed=23, count=9))


def test_files_that_do_not_fit(tmp_path):
    made = batches(seed=24, count=9)
    for folder, count in (("a", 9), ("b", 5)):
        (tmp_path / folder).mkdir()
        with collection(given=in_files(tmp_path / folder)) as embeddings:
            train(embeddings, made[:count])
    user, plain, item = in_files(tmp_path / "a")
    with pytest.raises(Error, match=r"end with one batch, and these with .*user.: 9, .item.: 5"):
        collection(given=[user, plain, replace(item, path=tmp_path / "b" / "item")])
    with pytest.raises(Error, match=r"has expiry .*age=3.* was saved with"):
        collection(given=in_files(tmp_path / "a", expiry=Expiry(age=3)))
    ids = tmp_path / "a" / "user.ids"
    kept = ids.read_bytes()
    for damage in (lambda: ids.write_bytes(kept[:len(kept) // 2]), ids.unlink):
        damage()
        with pytest.raises(Error, match=r"user.ids with the ids of table 'user' cannot be read"):
            collection(given=in_files(tmp_path / "a"))
    ids.write_bytes(kept)
    with collection(given=[user, plain, replace(item, path=None)]) as embeddings:
        assert [each.batch for each in embeddings.id_maps.maps.values()] == [9, 9]
        train(embeddings, made)


@pytest.mark.filterwarnings("ignore:the file .* was not closed")
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("ids_file", [True, False])
def test_rows_without_their_ids_are_refused(ids_file, closed, tmp_path):
    """By a table of rows, which would give rows to other ids."""
    path, other = tmp_path / "user", tmp_path / "other"
    any_ids = TableConfig("user", ROWS, DIM, ids="any", path=path)
    with collection(given=[any_ids]) as embeddings:
        train(embeddings, [ids[:, :1] for ids in batches(seed=28, count=5)])
        embeddings.flush()
        shutil.copy(path, other)
    if not closed:
        shutil.move(other, path)
    if not ids_file:
        (tmp_path / "user.ids").unlink()
    with pytest.raises(Error, match="holds another table: ids is 'any', and the table's 'rows'"):
        collection(given=[replace(any_ids, ids="rows")])
    rows = TableConfig("plain", ROWS, DIM, path=tmp_path / "plain")
    collection(given=[rows]).close()
    with pytest.raises(Error, match="holds another table: ids is 'rows', and the table's 'any'"):
        collection(given=[replace(rows, ids="any")])


def test_a_file_that_does_not_say_which_ids_it_has(tmp_path):
    path, size = tmp_path / "user", mmap.PAGESIZE
    for ids, other in (("any", "rows"), ("rows", "any")):
        config = TableConfig("user", ROWS, DIM, ids=ids, path=path)
        collection(given=[config]).close()
        content = path.read_bytes()
        header = json.loads(content[:size])
        del header["ids"]
        path.write_bytes(json.dumps(header).ljust(size).encode() + content[size:])
        with pytest.raises(Error, match=f"ids is '{ids}', and the table's '{other}'"):
            collection(given=[replace(config, ids=other)])
        collection(given=[config]).close()
        for each in tmp_path.iterdir():
            each.unlink()


def test_a_second_close_saves_no_ids(tmp_path):
    embeddings = collection(given=in_files(tmp_path))
    train(embeddings, batches(seed=25, count=5))
    embeddings.close()
    saved = (tmp_path / "user.ids").read_bytes()
    with collection(given=in_files(tmp_path)) as later:
        train(later, batches(seed=26, count=5))
    assert (tmp_path / "user.ids").read_bytes() != saved
    saved = (tmp_path / "user.ids").read_bytes()
    embeddings.close()
    assert (tmp_path / "user.ids").read_bytes() == saved


@pytest.mark.parametrize("other", ["item", "earlier"])
def test_ids_that_were_closed_with_other_rows_are_refused(other, tmp_path):
    made, names = [ids[:, ::2] for ids in batches(seed=27, count=6)], ("user", "item")
    given = [TableConfig(name, ROWS, DIM, ids="any", path=tmp_path / name) for name in names]
    files = [tmp_path / f"{name}.ids" for name in names]
    with collection(given=given) as embeddings:
        train(embeddings, made)
    earlier = [each.read_bytes() for each in files]
    with pytest.raises(Error, match="was saved with"):  # which leaves the files as they were
        collection(given=[given[0], replace(given[1], expiry=Expiry())])
    with collection(given=given) as embeddings:
        train(embeddings, made)
    later = [each.read_bytes() for each in files]
    for file, content in zip(files, later[::-1] if other == "item" else earlier, strict=True):
        file.write_bytes(content)
    with pytest.raises(Error, match=r"user.ids .* \(it was not closed with that of the table"):
        collection(given=given)
