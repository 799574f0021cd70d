"""The tree is tidy, and each rule catches a planted violation."""

from pathlib import Path

import pytest

from tests.tidy.tidy import functions, report, violations

ROOT = Path(__file__).resolve().parents[2]
LONG_BODY = "    x = 1\n" * 60


def test_the_tree_is_tidy(record_property) -> None:
    record_property("summary", report(ROOT))
    assert violations(ROOT) == []


@pytest.fixture
def planted(tmp_path: Path):
    def judge(path: str, text: str) -> list[str]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        return violations(tmp_path)

    return judge


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("kafkalite/a.py", "x = 1\n" * 501, "1: 501 lines, allowed are 500"),
        ("kafkalite/a.py", "def f():\n" + LONG_BODY, "1: f has 61 lines, allowed are 60"),
        ("kafkalite/a.py", "class A:\n  async def f(self):\n" + LONG_BODY, "2: f has 61 lines"),
        ("kafkalite/a.pyx", "x = 1\n" * 501, "1: 501 lines"),
        ("kafkalite/a.pyx", "cdef int f(int a,\n    int b) except -1:\n" + LONG_BODY, "1: f has 62 lines"),
        ("kafkalite/a.pxd", "cdef inline char *f(int a) noexcept:\n\n" + LONG_BODY, "1: f has 62 lines"),
        ("perf/a.py", "# TO" + "DO: faster", "1: TO" + "DO is left over"),
        ("kafkalite/a.pyx", "# FIX" + "ME", "FIX" + "ME is left over"),
        ("docs/a.md", "\nsee /wo" + "rk/main", "2: /wo" + "rk/main is a path of one machine"),
        ("Makefile", "DATA = /tm" + "p/x", "1: /tm" + "p/x is a path of one machine"),
        ("tests/a.py", "'/ro" + "ot/.pyenv'", "/ro" + "ot/.pyenv is a path"),
        ("tests/a.py", "import time\ntime.sleep(0.1)", "2: sleeps: wait for an event"),
        ("tests/a.py", "async def f():\n    await asyncio.sleep(n)", "2: sleeps"),
        ("tests/a.py", "from time import sleep\nsleep(1)", "2: sleeps"),
        ("kafkalite/a.py", "try:\n    f()\nexcept OSError:\n    pass", "3: swallows an exception"),
        ("kafkalite/a.py", "try:\n    f()\nexcept OSError:\n    'never mind'", "3: swallows an exception"),
        ("kafkalite/a.py", "with suppress(Exception):\n    f()", "1: suppresses every exception"),
        ("kafkalite/a.pyx", "try:\n    f()\nexcept (A, B):  # no\n    pass\n", "3: swallows an exception"),
    ],
)
def test_a_planted_violation_is_caught(planted, path: str, text: str, said: str) -> None:
    (found,) = planted(path, text)
    assert found.startswith(f"{path}:")
    assert said in found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("kafkalite/a.py", "x = 1\n" * 500),
        ("kafkalite/a.py", "def f():\n" + LONG_BODY[:-10]),
        ("kafkalite/a.pyx", "cdef int f(int a) except -1:\n" + LONG_BODY[:-10] + "x = 1\n"),
        ("kafkalite/a.pyx", "cdef class A:\n" + LONG_BODY * 2),
        ("kafkalite/a.pxd", "cdef class A:\n    cdef int f(self) except -1\n" + LONG_BODY * 2),
        ("tests/a.py", "await asyncio.sleep(0)"),
        ("kafkalite/a.py", "DEFAULT = '/tm" + "p/kafka-logs'"),
        ("kafkalite/a.py", "try:\n    f()\nexcept OSError as error:\n    log(error)"),
        ("kafkalite/a.py", "with suppress(FileNotFoundError):\n    f()"),
        ("docs/a.md", "a path in a url http://x/wo" + "rk and ./tm" + "p"),
    ],
)
def test_what_is_allowed_passes(planted, path: str, text: str) -> None:
    assert planted(path, text) == []


def test_functions_of_cython_are_found(tmp_path: Path) -> None:
    source = tmp_path / "a.pyx"
    source.write_text("cdef struct S:\n    int a\ncdef int g(int a) except -1:\n    return 1\n\ndef h():\n    pass\n")
    assert [(found.name, found.line, found.lines) for found in functions(source)] == [("g", 3, 2), ("h", 6, 2)]
