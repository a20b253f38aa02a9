"""Traces from files: logs with columns of any names, and Criteo's format."""

import gzip
import re

import numpy as np
import polars
import pytest
from hotrow.torch import ids_of
from hotrow.traces import TraceError, files, open_trace
from hotrow.traces import log as logs
from hotrow.traces.scaling import signed_log1p
from hotrow.traces.trace import by_first_appearance

LOG = """click\tuser\titem\tprice\tvisit
0\t0\t7\t1.5\ta
1\t2\t7\t\ta
0\t2\t3\t-9\tb
1\t1\t0\t100\tc
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text(LOG)
    return str(path)


def open_log(path, **changes):
    return open_trace(path, **{"ids": ("user", "item"), "label": "click", "dense": ("price",),
                               **changes})


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_tab_separated_file(tmp_path, packed):
    path = tmp_path / ("log.tsv.gz" if packed else "log.tsv")
    path.write_bytes(gzip.compress(LOG.encode()) if packed else LOG.encode())
    trace = open_log(str(path))
    assert (trace.columns, trace.cardinalities, trace.samples) == (("user", "item"), (3, 8), 4)
    assert not trace.synthetic and trace.labelled and trace.dense_columns == 1
    first, last = trace.batches(3, 2)
    assert first.ids.tolist() == [[0, 7], [2, 7], [2, 3]] and first.ids.dtype == np.uint32
    assert first.label.tolist() == [0, 1, 0] and last.label.tolist() == [1]
    np.testing.assert_allclose(first.dense[:, 0], [np.log(2.5), 0, -np.log(10)], rtol=1e-6)
    assert first.lengths is None and first.bag_lengths.tolist() == [1] * 6
    assert first.lookup_columns.tolist() == [0, 1] * 3
    assert trace.batch_count(3) == 2


def test_batches_begin_again_at_the_end(log):
    trace = open_log(log)
    labels = [samples.label.tolist() for samples in trace.batches(3, 4)]
    assert labels == [[0, 1, 0], [1]] * 2


def test_bags_group_consecutive_rows(log):
    trace = open_log(log, bag="visit")
    assert trace.samples == 3 and trace.cardinalities == (3, 8)
    whole = trace.batch(0, 3)
    assert whole.lengths.tolist() == [[2, 1], [1, 1], [1, 1]]
    assert whole.ids.tolist() == [0, 2, 7, 2, 3, 1, 0]
    assert whole.lookup_columns.tolist() == [0, 0, 1, 0, 1, 0, 1]
    assert whole.label.tolist() == [1, 0, 1]
    np.testing.assert_allclose(
        whole.dense[:, 0], [np.log(2.5) / 2, -np.log(10), np.log(101)], rtol=1e-6)
    assert trace.batch(1, 2).ids.tolist() == [1, 0]


@pytest.mark.parametrize("seed", range(3))
def test_bags_against_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    key = np.repeat(rng.integers(0, 3, 40), rng.integers(1, 6, 40))
    ids = rng.integers(0, 5, (len(key), 3)).astype(np.uint32)
    dense = rng.standard_normal((len(key), 2)).astype(np.float32)
    label = (rng.random(len(key)) < 0.3).astype(np.float32)
    values, lengths, mean, largest = logs.group(key, ids, dense, label)

    runs, start = [], 0
    for end in range(1, len(key) + 1):
        if end == len(key) or key[end] != key[start]:
            runs.append(slice(start, end))
            start = end
    expected = [[list(dict.fromkeys(column)) for column in ids[run].T.tolist()] for run in runs]
    assert values.tolist() == [each for bag in expected for column in bag for each in column]
    assert lengths.tolist() == [[len(column) for column in bag] for bag in expected]
    assert largest.tolist() == [label[run].max() for run in runs]
    np.testing.assert_allclose(mean, [dense[run].mean(axis=0) for run in runs], atol=1e-6)


def test_a_bag_that_no_length_can_tell(monkeypatch):
    monkeypatch.setattr(logs, "LONGEST_BAG", 3)
    ids = np.arange(5, dtype=np.uint32)[:, None]
    with pytest.raises(TraceError, match=r"5 ids of one column \(value 9 .*at most 3"):
        logs.group(np.full(5, 9), ids, np.zeros((5, 0), np.float32), None)


@pytest.mark.parametrize("changes, message", [
    ({"ids": ()}, "no id columns .* --ids; there are click, user, item, price, visit"),
    ({"ids": ("user", "shop")}, "no column 'shop': there are click, user"),
    ({"label": "buy"}, "no column 'buy'"),
    ({"dense": ("weight",)}, "no column 'weight'"),
    ({"bag": "basket"}, "no column 'basket'"),
    ({"ids": ("price",)}, "column 'price', line 2: expected an integer of 64 bits, not '1.5'"),
    ({"ids": ("item",), "label": "user"}, "'user', line 3: a label is 0 or 1, not '2': name ano"),
    ({"label": "user"}, "column 'user' is the label: leave it out of --ids"),
    ({"dense": ("price", "click")}, "column 'click' is the label: leave it out of --dense"),
    ({"ids": ("user", "item", "user")}, "--ids names column 'user' twice: leave one of them out"),
    ({"label": "visit"}, "column 'visit', line 2: a label is 0 or 1, not 'a'"),
    ({"dense": ("visit",)}, "column 'visit', line 2: expected a finite number, not 'a'"),
    ({"rows": (3, 7)}, "column 'item', line 2: id 7 in a table of 7 rows"),
    ({"ids": ("visit",)}, "expected an integer of 64 bits, not 'a': hotrow train takes any id "),
    ({"rows": (3,)}, "1 row counts for 2 id columns"),
])
def test_wrong_columns(log, changes, message):
    with pytest.raises(TraceError, match=message):
        open_log(log, **changes)


@pytest.mark.parametrize("cell, message", [
    ("-4", "an id is at least 0, not '-4'"),
    ("", "expected an id, the cell is empty: hotrow train takes any id with --any-ids ROWS"),
    ("4294967296", "an id is at most 4294967295, unless --hash-rows N hashes the ids, not "
     "'4294967296': hotrow train takes any id with --any-ids ROWS --mode scratchpipe"),
    ("99999999999999999999", "expected an integer of 64 bits, not '99999999999999999999'"),
    ("1e3", "expected an integer of 64 bits, not '1e3'"),
])
def test_wrong_ids(tmp_path, cell, message):
    path = tmp_path / "log.tsv"
    path.write_text(LOG.replace("\n1\t1\t0", f"\n1\t{cell}\t0"))
    with pytest.raises(TraceError, match=f"column 'user', line 5: {re.escape(message)}"):
        open_log(str(path))


@pytest.mark.parametrize("content, message", [
    ("", "is empty"),
    ("click|user\n0|1\n", "no column 'user': .*: separate columns by tabs, commas or semicolons"),
    ("click\tuser\titem\tprice\n", "has a header and no rows"),
    ("click\tuser\titem\tprice\n0\t1\t2\t3\t4\t5\n", "a line has more cells than the first"),
    ("click,user,item,price\n0,\"1,2,3\n", "a quote has no end"),
    ("click\tuser\r0\t1\r", "end with a carriage return alone: end them with a line feed"),
])
def test_wrong_files(tmp_path, content, message):
    path = tmp_path / "log.tsv"
    path.write_text(content)
    with pytest.raises(TraceError, match=message) as refusal:
        open_log(str(path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["user;price\n7;0.5\n9;1.5\n", "user,price\n7.0,0.5\n9.00,1.5\n",
                                  'user;price\n"7";0.5\n9;1.5\n'],
                         ids=["semicolons", "ids with a point", "quoted"])
def test_forms_of_a_text(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text)
    samples = open_trace(str(path), ["user"], dense=["price"]).batch(0, 2)
    assert samples.ids.ravel().tolist() == [7, 9] and samples.dense.ravel().tolist() != [0, 0]


@pytest.mark.parametrize("cells, integers", [
    (["7", "-1", None, " 24", str(2**64 - 1)], [7, -1, 24, -1]), (["24.0", None, "3.0"], [24, 3]),
    (["ann", "bob", None, "ann"], None), (["0xff", "b7", "12"], None), ([str(2**64), "1"], None),
    (["85123A", "22423", "é", " x"], None), (["1.5", "2.5"], None), (["007", "7"], None),
    (["+7", "7"], None), (["-0", "0"], None), (["1e30", "x"], None), (["nan", "NaN", "x"], None)])
def test_any_ids_of_cells(cells, integers):
    text = polars.Series(cells, dtype=polars.String)
    found = files.any_ids(text, 2).tolist()
    if integers is None:
        assert found == ids_of(text).tolist()
    else:
        assert [each for each, cell in zip(found, cells, strict=True) if cell] == integers
        assert all(each == ids_of([""]).item() for each, cell in zip(found, cells, strict=True)
                   if cell is None)


def test_nan_is_an_empty_cell_among_integers():
    for cell in ("NaN", "nan", None):
        text = polars.Series([cell, "7", str(2**63)], dtype=polars.String)
        assert files.any_ids(text, 2).tolist() == [ids_of([""]).item(), 7, -2**63]


@pytest.mark.parametrize("cell", ["1.152921504606847e+18", "9007199254740992.0", "-1E20"])
def test_floats_that_lost_digits_of_an_id_are_refused(cell):
    text = polars.Series("user", ["7.0", None, "NaN", cell], dtype=polars.String)
    with pytest.raises(TraceError, match=r"column 'user', line 5: a float has lost digits.*Int64"):
        files.any_ids(text, 2)


def test_columns_of_parquet_without_text(tmp_path):
    path = tmp_path / "log"
    for values, message in (([b"a", b"\xff"], "bytes that are no UTF"), ([[1], [2]], "has lists")):
        polars.DataFrame({"user": values, "item": [3, 1]}).write_parquet(path)
        assert open_trace(str(path), ["item"], any_ids=9).batch(0, 2).ids.ravel().tolist() == [3, 1]
        with pytest.raises(TraceError, match=message):
            open_trace(str(path), ["user"], any_ids=9)
    polars.DataFrame({"user": [float(1 << 60), 1.0]}).write_parquet(path)
    with pytest.raises(TraceError, match="column 'user', line 2: a float has lost digits"):
        open_trace(str(path), ["user"], any_ids=9)


@pytest.mark.parametrize("ending", ["tsv", "csv", "csv.gz", "parquet"])
def test_any_ids_of_files(tmp_path, ending):
    """Columns of strings and of integers of 64 bits, in bags: the ids that `ids_of` gives them."""
    frame = polars.DataFrame({"user": ["ann", "ann", "bob"], "item": [2**63, 1, 1],
                              "visit": ["a", "a", "b"]}, schema_overrides={"item": polars.UInt64})
    path = tmp_path / f"log.{ending}"
    if ending == "parquet":
        frame.write_parquet(path)
    else:
        text = frame.write_csv(separator="\t" if ending == "tsv" else ",").encode()
        path.write_bytes(gzip.compress(text) if "gz" in ending else text)
    trace = open_trace(str(path), ["user", "item"], any_ids=100)
    samples = trace.batch(0, 3)
    assert trace.cardinalities == (3, 3) and samples.ids.dtype == np.int64
    for column, name in enumerate(trace.columns):
        assert samples.ids[:, column].tolist() == ids_of(frame[name]).tolist()
    bags = open_trace(str(path), ["user", "item"], bag="visit", any_ids=2)
    assert bags.cardinalities == (2, 2)
    assert bags.batch(0, 2).ids.tolist() == [
        ids_of(["ann"]).item(), -2**63, 1, ids_of(["bob"]).item(), 1]


def test_ids_that_are_no_rows_are_numbered_for_a_study(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item\nu-7,4\nu-1,0\n,2\nu-7,4\n")
    trace = open_trace(str(path), ["user", "item"], numbered=True)
    assert trace.cardinalities == (3, 5)
    assert trace.batch(0, 4).ids.tolist() == [[0, 4], [1, 0], [2, 2], [0, 4]]
    with pytest.raises(TraceError, match="'u-7': hotrow train takes any id"):
        open_trace(str(path), ["user", "item"])
    with pytest.raises(TraceError, match="expected an integer"):
        open_trace(str(path), ["user", "item"], hash_rows=2, numbered=True)
    path.write_text("user\n9007199254740993.0\n1.0\n")
    with pytest.raises(TraceError, match="a float has lost digits"):
        open_trace(str(path), ["user"], numbered=True)


def test_parquet(tmp_path):
    path = tmp_path / "log"
    polars.DataFrame({"user": [7, 9], "price": [0.5, 1.5], "click": [True, False],
                      "tags": [[1], [2, 3]]}).write_parquet(path)
    samples = open_trace(str(path), ["user"], "click", ["price"]).batch(0, 2)
    assert samples.ids.ravel().tolist() == [7, 9] and samples.label.tolist() == [1, 0]


@pytest.mark.parametrize("content, message", [
    (b"user\0price\n1\0" + b"2\n", "is no text in UTF-8: expected columns separated"),
    (bytes(range(128, 256)) * 9, "is no text in UTF-8"),
    ("user,caf\u00e9\n1,2\n".encode("latin-1"), "iconv -f latin1 -t utf-8 converts older text"),
    ("user,name\n1,caf\u00e9\n".encode("latin-1"), "iconv -f latin1 -t utf-8 converts older text"),
    ("user,price\n1,2\n".encode("utf-16"), "is no text in UTF-8"),
    (b"PK\3\4" + bytes(9), "a zip archive or a spreadsheet: unpack it, or save it as text"),
    (b"BZh91AY", "is packed by bzip2: unpack it"), (b"\x28\xb5\x2f\xfd", "is packed by zstd"),
    (b"PAR1 and no more", "the file is cut"), (None, "is a folder: name a file in it"),
    (gzip.compress(b"user\n1\n" * 99)[:-9], "no complete gzip file: copy or pack it again")],
    ids=["zeros", "no UTF-8", "Latin-1", "Latin-1 below", "UTF-16", "zip", "bzip2", "zstd",
         "damaged Parquet", "folder", "cut gzip"])
def test_what_is_no_table(tmp_path, content, message):
    path = tmp_path / "log"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        open_trace(str(path), ["user"])


@pytest.mark.parametrize("spec, meant", [("sampel", "sample"), ("zipff:1", "zipf"),
                                         ("critoe:log.tsv", "criteo")])
def test_a_name_with_a_slip(spec, meant):
    with pytest.raises(TraceError, match=f"did you mean {meant}"):
        open_trace(spec)


def test_a_column_of_lists(tmp_path):
    path = tmp_path / "log.parquet"
    polars.DataFrame({"user": [7, 9], "tags": [[1], [2, 3]]}).write_parquet(path)
    with pytest.raises(TraceError, match=r"column 'tags' of .* has lists: write a line for each"):
        open_trace(str(path), ["user", "tags"])


@pytest.mark.parametrize("text", [
    "\ufeffuser,item\n1,2\n", "user , item\r\n1, 2\r\n", '"user";"item"\n"1";"2"\n'],
    ids=["byte order mark", "spaces and Windows line ends", "quotes"])
def test_text_of_other_programs(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_bytes(text.encode())
    assert open_trace(str(path), ["user", "item"]).batch(0, 1).ids.tolist() == [[1, 2]]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TraceError, match=r"no trace file .*nothing\.tsv"):
        open_log(str(tmp_path / "nothing.tsv"))
    with pytest.raises(TraceError, match="a file of this machine, download it first"):
        open_log("https://example.com/log.tsv")
    with pytest.raises(TraceError, match="names no file: write criteo:FILE"):
        open_trace("criteo:")


def criteo_line(label, first_dense, first_hex, last_hex):
    return "\t".join([label, first_dense, *[""] * 12, first_hex, *["0a"] * 24, last_hex]) + "\n"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_criteo_format(tmp_path, packed):
    text = (criteo_line("1", "3", "ffffffff", "") + criteo_line("0", "-2", "0", "7")
            + criteo_line("0", "", "ffffffff", ""))
    path = tmp_path / "day_0"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    trace = open_trace(f"criteo:{path}")
    samples = trace.batch(0, 8)
    assert trace.cardinalities == (2, *[1] * 24, 2)
    assert samples.ids[:, [0, 1, 25]].tolist() == [[0, 0, 0], [1, 0, 1], [0, 0, 0]]
    assert samples.label.tolist() == [1, 0, 0]
    np.testing.assert_allclose(samples.dense[:, 0], [np.log(4), -np.log(3), 0], rtol=1e-6)
    assert (samples.dense[:, 1:] == 0).all()
    raw = open_trace(f"criteo:{path}", any_ids=9)
    assert raw.cardinalities == (3, *[2] * 24, 3)
    assert raw.batch(0, 8).ids[:, [0, 1, 25]].tolist() == [
        [2**32 - 1, 10, -1], [0, 10, 7], [2**32 - 1, 10, -1]]


@pytest.mark.parametrize("line, message", [
    ("1\t2\t3\n", "3 columns, Criteo's format has 40"),
    (criteo_line("2", "3", "0", "0"), "column 'label', line 1: a label is 0 or 1, not '2'"),
    (criteo_line("1", "x", "0", "0"), "column 'I1', line 1: expected a finite number, not 'x'"),
    (criteo_line("1", "3", "0", "xyz"), "column 'C26', line 1: expected a base-16 number"),
])
def test_wrong_criteo_files(tmp_path, line, message):
    path = tmp_path / "day_0"
    path.write_text(line)
    with pytest.raises(TraceError, match=message):
        open_trace(f"criteo:{path}")


def test_by_first_appearance():
    assert by_first_appearance(np.array([9, -1, 9, 4, -1, 0])).tolist() == [0, 1, 0, 2, 1, 3]


def test_signed_log1p():
    scaled = signed_log1p([np.nan, 0.0, np.e - 1, 1 - np.e, 38970.0, -11062.06])
    np.testing.assert_allclose(scaled[:4], [0, 0, 1, -1], rtol=1e-6)
    assert scaled.dtype == np.float32 and np.abs(scaled).max() < 11


def test_integers_of_both_bases():
    cells = polars.Series(["10", None, "-1", " 7 "])
    assert files.integers(cells, "c", 1).tolist() == [10, -1, -1, 7]
    assert files.integers(cells, "c", 1, base=16).tolist() == [16, -1, -1, 7]


@pytest.mark.parametrize("options", [
    {"hash_rows": 0}, {"hash_rows": -5}, {"hash_rows": (1 << 32) + 1}, {"any_ids": 0},
    {"any_ids": -3}], ids=str)
def test_a_table_of_so_many_rows_cannot_be(options):
    with pytest.raises(TraceError, match=r"is 1 to 2\*\*32, the rows of a table, not "):
        open_trace("sample", ids=["item"], label="clicked", **options)


@pytest.mark.parametrize("spec, options", [
    ("zipf:1", {"seed": -1}), ("single", {"table_rows": 0}), ("single", {"table_rows": 1 << 40}),
    ("uniform", {"tables": 0})])
def test_a_generated_trace_that_cannot_be(spec, options):
    with pytest.raises(TraceError):
        open_trace(spec, **options)


EXACT = {"float16": 1 << 11, "float32": 1 << 24, "float64": 1 << 53}


@pytest.mark.parametrize("use", [{}, {"any_ids": 99}, {"hash_rows": 97}, {"bag": "user"}])
@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("null", [False, True])
def test_floats_that_may_have_lost_digits_are_no_ids(tmp_path, dtype, use, null):
    """From the first integer after which not all are floats; in every use of a column as ids."""
    path, columns = tmp_path / "log.parquet", {"ids": ("item",)} | use
    if "bag" in use:
        columns["ids"] = ("click",)
    for value, refused in ((EXACT[dtype] - 1, False), (EXACT[dtype], True), (-EXACT[dtype], True)):
        series = polars.Series(np.array([5, value, 3] + [0] * null, dtype))
        series = series if not null else series.set(polars.Series([False] * 3 + [True]), None)
        polars.DataFrame({"user": series, "item": series, "click": [0, 1, 1] + [0] * null,
                          "x": series}).write_parquet(path)
        if refused or (null and not use.keys() & {"any_ids", "bag"}) or (
                value >= 1 << 32 and not use):
            with pytest.raises(TraceError, match="lost digits" if refused else "empty|at most"):
                open_trace(str(path), **columns)
        else:
            trace = open_trace(str(path), label="click", **columns) if "bag" not in use else (
                open_trace(str(path), **columns))
            expected = value % 97 if "hash_rows" in use else value
            assert "bag" in use or trace.batch(0, 9).ids[1, 0] == expected
    polars.DataFrame({"item": [5, 7, 3], "click": [0, 1, 1],
                      "x": series[:3]}).write_parquet(path)  # a dense feature may be any number
    assert np.isfinite(open_trace(str(path), ids=("item",), dense=("x",)).batch(0, 3).dense).all()


@pytest.mark.parametrize("cell", ["9007199254740992.0", "1.6777216e7", "1.67772e+07", "9.1E15",
                                  "-9007199254740993.0", " 9007199254740992.0 "])
@pytest.mark.parametrize("use", [{}, {"any_ids": 99}, {"hash_rows": 97}, {"bag": "user"}])
def test_floats_of_a_text_that_may_have_lost_digits(tmp_path, cell, use):
    path = tmp_path / "log.csv"
    path.write_text(f"user,item\n5,1\n{cell},2\n7,3\n")
    with pytest.raises(TraceError, match=r"column 'user', line 3: a float has lost digits"):
        open_trace(str(path), **{"ids": ("item",) if "bag" in use else ("user",)} | use)
