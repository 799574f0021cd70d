"""A seed that a failing test shows and that KAFKALITE_SEED brings back."""

import random

import pytest

from tests.kit.seeds import chosen_seed


@pytest.fixture
def seed() -> int:
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    return seed


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)
