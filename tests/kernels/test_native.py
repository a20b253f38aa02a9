"""Which library is used: a wheel's, the cache's, or none."""

import platform

import hotrow
import pytest
from hotrow.contract.errors import Error
from hotrow.kernels import compiler, library, native

V2 = native._X86_64["x86-64-v2"]
V3 = V2 | native._X86_64["x86-64-v3"]
V4 = V3 | native._X86_64["x86-64-v4"]
x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")


def forget():
    for found in (native._loaded, library.library):
        found.cache_clear()


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The library has one function, level(); an empty cache, and no wheel."""
    if compiler.find_compiler() is None:
        pytest.skip("no C++ compiler is installed")
    source = tmp_path / "level.cpp"
    source.write_text('extern "C" int level() {\n#if defined(__AVX512F__)\nreturn 4;\n'
                      "#elif defined(__AVX2__)\nreturn 3;\n#else\nreturn 2;\n#endif\n}\n")
    monkeypatch.setattr(native, "sources", lambda: [source])
    monkeypatch.setattr(native, "headers", lambda: [])
    monkeypatch.setattr(native, "_SHIPPED", tmp_path / "lib")
    monkeypatch.setenv("HOTROW_CACHE", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "lib"
    forget()


@pytest.fixture
def wheel(small):
    """The libraries of a wheel, lowest level first."""
    small.mkdir()
    return native.ship(small)


def has(monkeypatch, flags):
    monkeypatch.setattr(compiler, "processor_flags", lambda: frozenset(flags))


def lose_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda _: None)


@x86_64
@pytest.mark.parametrize("flags, expected", [
    (set(), []), (V2, [2]), (V2 | {"avx2", "fma"}, [2]), (V3, [3, 2]), (V4, [4, 3, 2]),
    (V4 - {"avx512vl"}, [3, 2]), (V4 - {"popcnt"}, []), (V4 - {"movbe"}, [2])])
def test_levels_of_processors(flags, expected):
    assert native.levels(flags) == [f"x86-64-v{level}" for level in expected]


def test_other_processors_have_one_level(monkeypatch):
    monkeypatch.setattr(native.platform, "machine", lambda: "aarch64")
    assert native.levels(set()) == ["aarch64"]


@x86_64
@pytest.mark.parametrize("flags, level", [(V2, 2), (V3, 3)])
def test_the_highest_level_that_the_processor_has(wheel, monkeypatch, capfd, flags, level):
    """A library for instructions that the processor lacks is not opened."""
    assert len(wheel) == 3
    has(monkeypatch, flags)
    lose_compiler(monkeypatch)
    if not flags <= {*compiler._processor().split()}:
        pytest.skip("this processor lacks the level")
    assert native.about() == (f"x86-64-v{level} (wheel)", "")
    assert native.native_library().level() == level
    assert "compiling" not in capfd.readouterr().err


@pytest.mark.slow
@x86_64
@pytest.mark.parametrize("damage", [
    lambda octets: b"", lambda octets: octets[:len(octets) // 2],
    lambda octets: octets[:18] + b"\xb7\x00" + octets[20:], lambda octets: b"no library",
], ids=["empty", "truncated", "aarch64", "text"])
def test_a_library_that_does_not_load(wheel, monkeypatch, damage):
    """The next level serves."""
    has(monkeypatch, V3)
    _, high, _ = wheel
    high.write_bytes(damage(high.read_bytes()))
    assert native.native_library().level() == 2 and native.about() == ("x86-64-v2 (wheel)", "")


@x86_64
def test_a_wheel_that_does_not_load(wheel, monkeypatch, capfd):
    """The library is compiled where a compiler is there."""
    has(monkeypatch, V3)
    for path in wheel:
        path.write_bytes(path.read_bytes()[:-100])
    assert native.native_library().level() >= 2 and native.about()[0].endswith("(cache)")
    assert "compiling hotrow" in capfd.readouterr().err
    forget()
    lose_compiler(monkeypatch)
    with pytest.raises(Error, match=r"hotrow-x86-64-v2.so does not load .*install g\+\+"):
        native.native_library()


@x86_64
def test_a_compiler_that_lacks_a_level(small, tmp_path, monkeypatch, capfd):
    (command,) = compiler.find_compiler()
    old = tmp_path / "old"
    old.write_text(f'#!/bin/sh\ncase "$*" in *x86-64-v4*) echo unknown level >&2; exit 1; esac\n'
                   f'exec {command} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    small.mkdir()
    assert [path.name for path in native.ship(small)] == ["hotrow-x86-64-v2.so",
                                                          "hotrow-x86-64-v3.so"]
    assert "without x86-64-v4" in capfd.readouterr().err
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(Error, match="could not build"):
        native.ship(small)


def test_a_checkout_compiles_at_first_use(small, capfd):
    assert native.about()[0].startswith("to be compiled at first use by ")
    assert native.native_library().level() >= 2
    assert "compiling hotrow with" in capfd.readouterr().err
    forget()
    assert native.about()[0].endswith("(cache)")
    assert "compiling" not in capfd.readouterr().err


def test_one_error_without_library_and_compiler(small, monkeypatch):
    lose_compiler(monkeypatch)
    assert not native.about()[0] and "install g++" in native.about()[1]
    for call in hotrow.open, library.library:
        with pytest.raises(Error, match=r"install g\+\+"):
            call()
