"""What the rigs share: the seed, and what is logged."""

import logging
from collections.abc import Iterator

import pytest
from pyspark_kafkalite.tables import snapshots

from tests.kit.seeds import chosen_seed
from tests.rigs.lines import Lines

pytest.register_assert_rewrite("tests.rigs.machine", "tests.rigs.model")

SEED = chosen_seed()


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
