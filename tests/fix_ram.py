"""`ram`: a directory in memory, where fsync costs nothing and a broker's files cost a quarter of the system time."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def ram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of this test, in memory where the system has one there."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path_factory.mktemp("ram")
        return
    path = Path(tempfile.mkdtemp(prefix="kafkalite-test-", dir=MEMORY))
    yield path
    shutil.rmtree(path)
