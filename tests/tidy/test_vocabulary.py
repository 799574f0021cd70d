"""No identifier, comment, docstring or page uses a word of `vocabulary`."""

from pathlib import Path

from tests.tidy.tidy import code_files
from tests.tidy.vocabulary import banned

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "kafkalite").rglob("*.md")]


def test_vocabulary() -> None:
    names = [(path, str(path.relative_to(ROOT))) for path in (*code_files(ROOT), *PAGES)]
    checked = [(path, name) for path, name in names if not name.startswith("tests/tidy/")]
    assert [f"{name}:{line}: {word}" for path, name in checked for line, word in banned(path)] == []


def test_banned_words_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""Tell it.\n\nNo `told`."""\nanew = "told"\nsettle_all = round(1)  # anew\n')
    (tmp_path / "a.pyx").write_text('cdef int place(): # told\n    """\n    Anew.\n    """\n    x = "place"\n')
    (tmp_path / "a.md").write_text("Nobody `told`.\n```\nanew\n```\n")
    assert banned(tmp_path / "a.py") == [(1, "Tell"), (5, "settle_all"), (5, "anew")]
    assert banned(tmp_path / "a.pyx") == [(1, "place"), (1, "told"), (3, "Anew")]
    assert banned(tmp_path / "a.md") == [(1, "Nobody")]
