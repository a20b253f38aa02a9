"""`make test SINCE=` runs the tests near the files that differ."""

import subprocess

from tests.support import changed_tests


def test_the_tests_near_what_differs(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path]
    for name, text in {"pyproject.toml": "[project]", "rtl/a.py": "", "rtl/b.py": "import a",
                       "tests/test_b.py": "import b", "tests/test_c.py": "import c"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    assert changed_tests.tests_since(tmp_path, "HEAD") == ["tests/docs"]
    (tmp_path / "rtl/a.py").write_text("x = 1")
    assert changed_tests.tests_since(tmp_path, "HEAD") == ["tests/test_b.py"]
    assert changed_tests.tests_since(tmp_path, "HEAD", most=1) == ["tests/docs"]
    (tmp_path / "rtl/c.py").write_text("")
    (tmp_path / "pyproject.toml").write_text("")
    assert changed_tests.tests_since(tmp_path, "HEAD") == ["tests"]
