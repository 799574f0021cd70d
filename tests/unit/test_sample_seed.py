"""The seed of a sample of cases: the same one in each run of a commit, unless one was given."""

import subprocess
from pathlib import Path

import pytest

from tests.kit.seeds import sample_seed


def test_seed_is_that_of_the_commit_or_the_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKALITE_SEED", "KAFKALITE_FIRST_SEED"):
        monkeypatch.delenv(name, raising=False)
    root = Path(__file__).parents[2]
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    assert sample_seed() == (int(done.stdout[:7], 16) if done.returncode == 0 else 1)
    monkeypatch.setenv("KAFKALITE_SEED", "7")
    assert sample_seed() == 7
