"""Every promise of docs/durability.md is backed by a test that exists, and one that is not would be seen."""

from pathlib import Path

import pytest

from tests.tidy.promises import broken, read

ROOT = Path(__file__).resolve().parents[2]
PAGE = """
| acks | flush | kill | cut |
|---|---|---|---|
| 1 | any | kept [k] | {cell} |

| in the table | test |
|---|---|
| k | `tests/test_k.py::test_k` |
"""


def test_every_promise_has_its_test() -> None:
    assert broken(ROOT) == []
    promises = read(ROOT)
    assert len(promises.cells) == 20 and len(promises.tests) == 15


@pytest.mark.parametrize(
    ("cell", "test", "said"),
    [
        ("kept [k]", "test_k", []),
        ("kept", "test_k", ["1 any, cut: no test is named"]),
        ("kept [k] [other]", "test_k", ["1 any, cut: [other] is not in the list of tests"]),
        ("kept [k]", "test_other", ["tests/test_k.py::test_k does not exist"]),
    ],
)
def test_a_broken_promise_is_seen(tmp_path: Path, cell: str, test: str, said: list[str]) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs/durability.md").write_text(PAGE.format(cell=cell))
    (tmp_path / "tests/test_k.py").write_text(f"async def {test}():\n    pass\n")
    assert broken(tmp_path) == said
