"""Each guarantee of docs/durability.md names a test that exists."""

from pathlib import Path

from tests.tidy.promises import broken, read

ROOT = Path(__file__).resolve().parents[2]


def test_every_guarantee_has_its_test() -> None:
    assert broken(ROOT) == []
    promises = read(ROOT)
    assert len(promises.defects) == 45
    assert len(promises.cells) == 44 and len(promises.tests) == 30
