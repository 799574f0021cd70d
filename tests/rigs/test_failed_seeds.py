"""Each seed that ever failed is repeated, with its test (`tests.kit.seeds.FAILED`)."""

import os
import subprocess
import sys

import pytest

from tests.kit.seeds import FAILED
from tests.rigs.seeded_bugs import DEADLINE_S, ROOT


@pytest.mark.parametrize(("test", "seed"), FAILED)
def test_seed_that_failed_passes(test: str, seed: int) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", *test.split()]
    environment = {**os.environ, "KAFKALITE_SEED": str(seed)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
