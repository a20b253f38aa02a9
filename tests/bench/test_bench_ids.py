import pytest
from hotrow.kernels import compiler

from benchmarks import ids


@pytest.mark.slow
def test_the_bench_of_ids_looks_up_the_same_rows(monkeypatch, capsys):
    if compiler.find_compiler() is None:
        pytest.skip("no C++ compiler is installed")
    monkeypatch.setattr(ids, "_BATCH", 1000)
    ids.main(["--rows", "5000", "--load", "1"])
    shown = capsys.readouterr().out
    assert "admit" in shown and "skewed plan" in shown and "of bare" in shown
    with pytest.raises(SystemExit):
        ids.main(["--load", "2"])
