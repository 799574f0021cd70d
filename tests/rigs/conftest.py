"""What the rigs share: a directory in memory, where fdatasync costs nothing, and the seed."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.rigs.machine", "tests.rigs.model")

MEMORY = Path("/dev/shm")
SEED = int(os.environ.get("KAFKALITE_SEED") or random.SystemRandom().randrange(2**32))


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A directory of this test, in memory where the system has one there."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="kafkalite-rig-", dir=MEMORY))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def seed() -> int:
    """Where all chance of a rig comes from; printed, and replayed from KAFKALITE_SEED."""
    print(f"KAFKALITE_SEED={SEED}")
    return SEED
