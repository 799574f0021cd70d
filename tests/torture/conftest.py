"""How many rounds each rig gets, and the seed of each."""

from __future__ import annotations

import os
from random import Random, SystemRandom

import pytest

KILLS_PER_LIFE = 5
SEED = int(os.environ.get("KAFKALITE_SEED") or SystemRandom().randrange(2**32))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`life`: the number of a directory's life, each with some kills; `cut`, `fault`: the number of each."""
    if "life" in metafunc.fixturenames:
        lives = -(-metafunc.config.getoption("kills") // KILLS_PER_LIFE)
        metafunc.parametrize("life", range(lives))
    if "cut" in metafunc.fixturenames:
        metafunc.parametrize("cut", range(metafunc.config.getoption("cuts")))
    if "fault" in metafunc.fixturenames:
        metafunc.parametrize("fault", range(metafunc.config.getoption("faults")))


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    """Seeded by KAFKALITE_SEED and the name of the test: a test that is run alone draws the same again."""
    print(f"KAFKALITE_SEED={SEED} replays {request.node.nodeid}")
    return Random(f"{SEED}:{request.node.nodeid}")
