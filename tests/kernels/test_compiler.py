import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels import compiler, library
from hotrow.kernels.grouping import Grouper

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOTROW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path):
    if compiler.find_compiler() is None:
        pytest.skip("no C++ compiler is installed")
    path = tmp_path / "answer.cpp"
    path.write_text(SOURCE)
    return path


def test_a_library_is_built_once_per_content(empty_cache, source, monkeypatch):
    assert compiler.load("answer", [source]).answer() == 42
    (built,) = empty_cache.iterdir()
    monkeypatch.setattr(compiler, "_build", None)
    assert compiler.load("answer", [source]).answer() == 42
    source.write_text(SOURCE.replace("42", "43"))
    with pytest.raises(TypeError):
        compiler.load("answer", [source])
    monkeypatch.undo()
    monkeypatch.setenv("HOTROW_CACHE", str(empty_cache))
    assert compiler.load("answer", [source]).answer() == 43
    assert len(list(empty_cache.iterdir())) == 2 and built.exists()


def test_the_compilers_message_is_reported(empty_cache, source):
    source.write_text("no program")
    with pytest.raises(Error, match=r"could not build answer-.*\n.*error"):
        compiler.load("answer", [source])
    assert not list(empty_cache.iterdir())


def test_a_compiler_that_does_not_exist(empty_cache, source, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(Error, match="'no-such-compiler' could not be run"):
        compiler.load("answer", [source])


def test_without_any_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda _: None)
    with pytest.raises(Error, match="no C\\+\\+ compiler was found"):
        compiler.load("answer", [])


def test_pytorch_takes_over_where_the_compiler_fails(empty_cache, monkeypatch):
    monkeypatch.delenv("HOTROW_KERNELS", raising=False)
    monkeypatch.setenv("CXX", "false")
    library.library.cache_clear()
    try:
        with pytest.warns(UserWarning, match="PyTorch runs the passes"):
            groups = Grouper(5).group(torch.tensor([3, 1, 3]))
        assert groups.numbers.tolist() == [0, 1, 0]
    finally:
        library.library.cache_clear()
