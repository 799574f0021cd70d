"""A seed that a failing test shows and that KAFKALITE_SEED brings back."""

import os
import random
import secrets

import pytest


@pytest.fixture
def seed() -> int:
    seed = int(os.environ.get("KAFKALITE_SEED") or secrets.randbits(32))
    print(f"KAFKALITE_SEED={seed}")
    return seed


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)
