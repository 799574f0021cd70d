"""The log directories of simulated brokers are in memory: these tests do not depend on a disk."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(ram: Path) -> Path:
    """A directory of this test."""
    return ram
