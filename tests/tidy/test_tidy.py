"""Sizes, leftovers, paths of one machine, sleeps and swallowed exceptions of the tree follow the rules of `tidy`."""

from pathlib import Path

import pytest

from tests.tidy.tidy import code_lines, report, violations

ROOT = Path(__file__).resolve().parents[2]
LONG_BODY = "    x = 1\n" * 60


def test_the_tree_is_tidy(record_property) -> None:
    found = violations(ROOT)  # reads each source once, and so knows its functions for the report
    record_property("summary", report(ROOT))
    assert found == []


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("kafkalite/a.py", "x = 1\n" * 401, "1: 401 lines of code, allowed are 400"),
        ("kafkalite/a.py", "class A:\n  async def f(self):\n" + LONG_BODY, "2: f has 61 lines, allowed are 60"),
        ("kafkalite/a.pyx", "cdef int f(int a,\n    int b) except -1:\n" + LONG_BODY, "1: f has 62 lines"),
        ("perf/a.py", "# TO" + "DO: faster", "1: TO" + "DO is left over"),
        ("docs/a.md", "\nsee /wo" + "rk/main", "2: /wo" + "rk/main is a path of one machine"),
        ("tests/a.py", "import time\ntime.sleep(0.1)", "2: sleeps: wait for an event"),
        ("kafkalite/a.py", "try:\n    f()\nexcept OSError:\n    pass", "3: swallows an exception"),
        ("kafkalite/a.pyx", "try:\n    f()\nexcept (A, B):  # no\n    pass\n", "3: swallows an exception"),
        ("kafkalite/a.py", "with suppress(Exception):\n    f()", "1: suppresses every exception"),
    ],
)
def test_violation_is_reported(tmp_path: Path, path: str, text: str, message: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    (violation,) = violations(tmp_path)
    assert violation.startswith(f"{path}:") and message in violation


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("kafkalite/cluster", ["kafkalite/cluster: 26 modules, allowed are 25"]),
        ("sdk/kafkalite_sdk", ["sdk/kafkalite_sdk: 26 modules, allowed are 25"]),
        ("kafkalite/server/handlers", []),
        ("tests/kit", []),
    ],
)
def test_a_folder_with_too_many_modules_is_reported(tmp_path: Path, folder: str, expected: list[str]) -> None:
    (tmp_path / folder / "inner").mkdir(parents=True)
    for name in ("__init__.py", "m0.pyi", "inner/a.py", *(f"m{at}.pyx" for at in range(25))):
        (tmp_path / folder / name).touch()
    assert violations(tmp_path) == []
    (tmp_path / folder / "m25.py").touch()
    assert violations(tmp_path) == expected


def test_prose_and_imports_are_no_lines_of_code() -> None:
    text = '''"""The docstring
of a module."""

from a import (
    b,
)
cimport c

# a comment
LIMIT = 1  # with a comment


def f():
    """One line."""
    return """
# text

"""
'''
    assert code_lines(text) == 6
