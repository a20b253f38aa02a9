"""Code and documentation are in plain English: words of a private idiom do not occur."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("rtl", "sim", "boards", "sw_driver", "benchmarks", "docs", "README.md",
           "CHANGELOG.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".md", ".cpp", ".hpp", ".json", ".csv"}
WORDS = ("told", "tells", "heard", "hears", "behind", "anew", "besides", "by turns", "of equals",
         "what becomes", "as of", "comes of", "stands for")
PATTERN = re.compile(rf"\b(?:{'|'.join(WORDS).replace(' ', '[ ]+')})\b", re.IGNORECASE)


def files(folder):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", folder], cwd=ROOT,
                            capture_output=True, text=True, check=False).stdout.split("\n")
    found = [ROOT / name for name in listed if name] or (
        [ROOT / folder] if (ROOT / folder).is_file() else (ROOT / folder).rglob("*"))
    return [path for path in found if path.suffix in SUFFIXES and path.is_file()]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_word_of_a_private_idiom(folder):
    paths = files(folder)
    assert paths, f"no text files in {folder}"
    hits = [f"{path.relative_to(ROOT)}:{number}: {found[0]!r} in: {line.strip()}"
            for path in paths
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
            if (found := PATTERN.search(line))]
    assert not hits, "\n".join(hits)


@pytest.mark.parametrize("sentence, word", [
    ("The host is told so.", "told"), ("Written ANEW.", "anew"), ("as of version 2", "as of"),
    ("what  becomes of it", "what  becomes")])
def test_the_pattern_finds(sentence, word):
    assert PATTERN.search(sentence)[0].lower() == word


@pytest.mark.parametrize("sentence", ["The unit returns a response.", "retold", "has often"])
def test_the_pattern_spares(sentence):
    assert not PATTERN.search(sentence)
