"""What the rigs share: a directory in memory, where fdatasync costs nothing, the seed, and what is logged."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark_kafkalite.tables import snapshots

from tests.kit.seeds import chosen_seed
from tests.rigs.lines import Lines

pytest.register_assert_rewrite("tests.rigs.machine", "tests.rigs.model")

MEMORY = Path("/dev/shm")
SEED = chosen_seed()


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


@pytest.fixture
def frequent_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables write a snapshot after a few commits."""
    monkeypatch.setattr(snapshots, "EVERY", 3)


@pytest.fixture(autouse=True)
def lines() -> Iterator[Lines]:
    """What was logged last."""
    logger, handler = logging.getLogger("kafkalite"), Lines()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
