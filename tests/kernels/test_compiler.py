import os
import subprocess
import sys

import pytest
from hotrow.contract.errors import Error
from hotrow.kernels import compiler

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
    (built,) = empty_cache.glob("*.so")
    monkeypatch.setattr(compiler, "compile_library", None)
    assert compiler.load("answer", [source]).answer() == 42
    source.write_text(SOURCE.replace("42", "43"))
    with pytest.raises(TypeError):
        compiler.load("answer", [source])
    monkeypatch.undo()
    monkeypatch.setenv("HOTROW_CACHE", str(empty_cache))
    assert compiler.load("answer", [source]).answer() == 43
    assert len(list(empty_cache.glob("*.so"))) == 2 and built.exists()


def test_a_change_compiles_what_it_touches(empty_cache, tmp_path, source):
    other, header, inner = (tmp_path / name for name in ("other.cpp", "outer.hpp", "inner.hpp"))
    other.write_text('#include "outer.hpp"\nextern "C" int other() { return VALUE; }\n')
    header.write_text('  #  include "./inner.hpp"\n')
    inner.write_text("#define VALUE 1\n")

    def loaded():
        return compiler.load("answer", [source, other], [header, inner])

    def objects():
        return {path: path.stat().st_mtime_ns for path in (empty_cache / "objects").glob("*.o")}
    assert loaded().other() == 1
    first = objects()
    inner.write_text("#define VALUE 2\n")
    assert loaded().other() == 2 and loaded().answer() == 42
    more = objects()
    assert len(first) == 2 and len(more) == 3 and more.items() > first.items()


@pytest.mark.parametrize("at", ["-c", "-shared"])
def test_sources_that_change_meanwhile(empty_cache, tmp_path, source, monkeypatch, at):
    """Nothing is kept under the name of other sources."""
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\n{" ".join(compiler.find_compiler())} "$@" || exit 1\n'
                    f'case "$*" in *{at}*) echo "// changed" >> "{source}"; esac\n')
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    with pytest.raises(Error, match="changed"):
        compiler.load("answer", [source])
    assert not list(empty_cache.glob("*.so"))
    assert len(list((empty_cache / "objects").glob("*.o"))) == (at == "-shared")


def test_options_of_cxx_win(empty_cache, source, monkeypatch):
    source.write_text(SOURCE.replace("42", "MARCH").replace("{", "{\n#ifdef __OPTIMIZE__\n"
                      "#define MARCH 1\n#else\n#define MARCH 0\n#endif\n"))
    monkeypatch.setenv("CXX", f"{' '.join(compiler.find_compiler())} -O0")
    assert compiler.load("answer", [source]).answer() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kept", [
    0, 0.5, -1, "zeros", pytest.param(63, marks=pytest.mark.slow),
    *(pytest.param(kept, marks=pytest.mark.long) for kept in (4, 64, 0.1, 0.9))])
def test_a_damaged_file_is_built_again(empty_cache, source, kept, capfd):
    """However much of it is left; a program that uses half a library crashes."""
    command = [sys.executable, "-c", "import sys; from pathlib import Path; from hotrow.kernels "
               "import compiler; print(compiler.load('answer', [Path(sys.argv[1])]).answer())",
               source]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = empty_cache.glob("*.so")
    content = built.read_bytes()
    if kept == "zeros":
        built.write_bytes(content[:4096] + bytes(4096) + content[8192:])
    else:
        built.write_bytes(content[:int(kept * len(content)) if isinstance(kept, float) else kept])
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "42\n" and "compiling answer" in done.stderr, done
    assert len(built.read_bytes()) == len(content)


@pytest.mark.parametrize("damage", [
    lambda content: content[:256] + bytes(512) + content[768:], lambda content: content[:900],
    lambda _: b""])
def test_a_damaged_object_is_built_again(empty_cache, source, damage):
    """Linkers take some of them."""
    compiler.load("answer", [source])
    (library,), (kept,) = empty_cache.glob("*.so"), (empty_cache / "objects").glob("*.o")
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    library.rename(empty_cache / "other")  # this process has it loaded
    assert compiler.load("answer", [source]).answer() == 42
    assert kept.read_bytes() == whole


@pytest.mark.parametrize("kind", ["file", "noexec", "others", "others, kept", "read-only"])
def test_the_next_folder_serves_where_one_cannot(tmp_path, source, kind, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    if kind == "read-only":
        first = compiler.Path("/proc/first")
    monkeypatch.setattr(compiler, "_cache_folders", lambda: [first, second])
    if kind == "file":
        first.write_text("in the way")
    elif "others" in kind:
        if "kept" in kind:
            monkeypatch.setattr(compiler, "_cache_folders", lambda: [first])
            compiler.load("answer", [source])
            monkeypatch.setattr(compiler, "_cache_folders", lambda: [first, second])
        first.mkdir(exist_ok=True)
        first.chmod(0o777)
    elif kind == "noexec":
        plain = compiler.ctypes.CDLL

        def refuse(path):
            if str(path).startswith(str(first)):
                raise OSError(f"{path}: failed to map segment from shared object")
            return plain(path)
        monkeypatch.setattr(compiler.ctypes, "CDLL", refuse)
    assert compiler.load("answer", [source]).answer() == 42
    assert list(second.glob("answer-*.so"))
    monkeypatch.setattr(compiler, "_cache_folders", lambda: [first])
    if kind != "noexec":
        with pytest.raises(Error, match=r"first.*name a folder that allows programs in"):
            compiler.load("answer", [source])


def refuses(folder):
    try:
        compiler._check_private(folder)
    except PermissionError:
        return True
    return False


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775, 0o757, 0o720, 0o702, 0o2770, 0o1777])
def test_others_may_not_write_to_the_folder_or_above_it(tmp_path, mode):
    above = tmp_path / "above"
    (above / "folder").mkdir(parents=True)
    above.chmod(mode)
    shared = mode & 0o022 != 0
    assert refuses(above) == shared
    # Names in a folder with the sticky bit are replaced by their owner alone.
    assert refuses(above / "folder") == (shared and not mode & 0o1000)


@pytest.mark.parametrize("names", ["folder", "above", "above, in a shared folder", "round"])
def test_a_link_in_the_path(tmp_path, names):
    """The last part is never one; others are followed, and all that they pass is checked."""
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "folder").mkdir(parents=True)
    if names == "folder":
        link.symlink_to(real / "folder")
        assert refuses(link)
    elif names == "round":
        link.symlink_to(link)
        with pytest.raises(OSError):
            compiler._check_private(link / "folder")
    else:
        link.symlink_to("real")
        if "shared" in names:
            real.chmod(0o775)
        assert refuses(link / "folder") == ("shared" in names)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to other users")
@pytest.mark.parametrize("part", ["folder", "above", "link", "library", "objects"])
def test_nothing_may_belong_to_another_user(tmp_path, source, part, monkeypatch):
    folder = tmp_path / "above" / "folder"
    monkeypatch.setattr(compiler, "_cache_folders", lambda: [folder])
    compiler.load("answer", [source])
    (library,) = folder.glob("*.so")
    if part == "link":
        (tmp_path / "link").symlink_to(tmp_path / "above")
        os.chown(tmp_path / "link", 1, 1, follow_symlinks=False)
        assert refuses(tmp_path / "link" / "folder")
        return
    os.chown({"folder": folder, "above": folder.parent, "library": library,
              "objects": folder / "objects"}[part], 1, 1)
    if part == "library":
        with pytest.raises(OSError, match="is damaged"):
            compiler._open_kept(library)
    elif part == "objects":
        library.unlink()
        with pytest.raises(Error, match="objects belongs to user 1"):
            compiler.load("answer", [source])
    else:
        assert refuses(folder)


def test_a_planted_library_does_not_run(tmp_path, source, monkeypatch, capfd):
    """In a folder of the group, under the name and with the digest that belong there."""
    shared, planted = tmp_path / "cache", tmp_path / "planted.cpp"
    planted.write_text(SOURCE.replace("42", "13"))
    name = f"answer-{compiler._digest(compiler.required(), [source])}.so"
    compiler.compile_library(compiler.required(), compiler.FLAGS, [planted], [], shared / name,
                             shared / "objects")
    shared.chmod(0o775)
    monkeypatch.setenv("HOTROW_CACHE", str(shared))
    monkeypatch.setattr(compiler.tempfile, "tempdir", str(tmp_path))
    assert compiler.load("answer", [source]).answer() == 42
    assert f"{shared} belongs to user" in capfd.readouterr().err
    assert list((tmp_path / f"hotrow-{os.getuid()}").glob(name))


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_what_is_made_can_be_written_by_its_owner_alone(tmp_path, source, umask, monkeypatch):
    top = tmp_path / "missing"
    monkeypatch.setenv("HOTROW_CACHE", str(top / "folder"))
    before = os.umask(umask)
    try:
        compiler.load("answer", [source])
    finally:
        os.umask(before)
    made = [top, *top.rglob("*")]
    assert {path.suffix for path in made} >= {"", ".so", ".o", ".lock"}
    assert [path for path in made if path.lstat().st_mode & 0o022 and path.suffix != ".lock"] == []


def test_a_user_without_a_home(monkeypatch):
    monkeypatch.delenv("HOTROW_CACHE", raising=False)

    def unknown():
        raise RuntimeError("Could not determine home directory.")
    monkeypatch.setattr(compiler.Path, "home", unknown)
    assert compiler.cache_folder().name == f"hotrow-{os.getuid()}"


@pytest.mark.slow
def test_processes_build_once(empty_cache, source):
    code = ("import sys; from pathlib import Path; from hotrow.kernels import compiler;"
            "print(compiler.load('answer', [Path(sys.argv[1])]).answer())")
    running = [subprocess.Popen([sys.executable, "-c", code, source], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [process.communicate(timeout=60) for process in running]
    assert [out for out, _ in ended] == ["42\n"] * 3
    assert sum("compiling answer" in err for _, err in ended) == 1


def test_the_compilers_message_is_reported(empty_cache, source):
    source.write_text("no program")
    with pytest.raises(Error, match=r"could not build answer-.*\n.*error"):
        compiler.load("answer", [source])
    assert not list(empty_cache.glob("*.so"))


def test_a_compiler_that_does_not_exist(empty_cache, source, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(Error, match="'no-such-compiler' could not be run"):
        compiler.load("answer", [source])
    monkeypatch.setenv("CXX", "g++ 'open")
    with pytest.raises(Error, match="expected a command in CXX"):
        compiler.load("answer", [source])


def test_a_compiler_that_speaks_no_utf8(empty_cache, source, tmp_path, monkeypatch):
    spoken = tmp_path / "spoken"
    spoken.write_bytes(b"#!/bin/sh\necho 'version 1.0 \xe4'\necho 'f\xe4hler' >&2; exit 1\n")
    spoken.chmod(0o755)
    monkeypatch.setenv("CXX", str(spoken))
    with pytest.raises(Error, match="f\N{REPLACEMENT CHARACTER}hler"):
        compiler.load("answer", [source])


def test_without_any_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda _: None)
    with pytest.raises(Error, match="no C\\+\\+ compiler was found"):
        compiler.load("answer", [])
