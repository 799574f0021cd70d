"""Each bug that is put into a copy of the source is caught by the test that is named for it."""

import tempfile
from pathlib import Path

import pytest

from tests.rigs.seeded_bugs import BUGS, ROOT, Bug, PatchError, caught, copy_source, plant, run


@pytest.mark.torture
def test_seeded_bugs_are_caught(seeded_bugs: int) -> None:
    """The number of --seeded-bugs, with the fastest first."""
    assert len({bug.name for bug in BUGS}) == 21
    assert [said for said in map(caught, BUGS[:seeded_bugs]) if said] == []


@pytest.mark.torture
def test_the_same_tests_pass_without_a_bug(seeded_bugs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="kafkalite-bug-") as directory:
        copy_source(Path(directory))
        for bug in BUGS[:seeded_bugs]:
            done = run(Path(directory), bug.test)
            assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_seeded_bug_still_applies(bug: Bug, tmp_path: Path) -> None:
    path = tmp_path / bug.file
    path.parent.mkdir(parents=True)
    path.write_text((ROOT / bug.file).read_text())
    plant(bug, tmp_path)
    path.write_text("")
    with pytest.raises(PatchError, match="0 times"):
        plant(bug, tmp_path)
