"""Length of the rigs in tests/rigs: `--crash-seeds N`, `--flips N`, `--seeded-bugs N`, for the whole run.

`--crash-stride N`: the rigs that stop at each step of the disk stop at each N-th one. The seed decides which is first.
"""

import pytest

STEPS_MAX = 2_000
SHORT = {"crash_seeds": 40, "flips": 300, "seeded_bugs": 2, "crash_stride": 5}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-seeds", type=int, default=SHORT["crash_seeds"], help="number of histories with crashes")
    parser.addoption("--flips", type=int, default=SHORT["flips"], help="how many bits to flip on the disk")
    parser.addoption("--seeded-bugs", type=int, default=SHORT["seeded_bugs"], help="how many bugs to plant")
    parser.addoption("--crash-stride", type=int, default=SHORT["crash_stride"], help="stop at each N-th step only")


@pytest.fixture(scope="session")
def crash_seeds(request: pytest.FixtureRequest) -> int:
    """Number of histories with crashes."""
    count: int = request.config.getoption("crash_seeds")
    return count


@pytest.fixture(scope="session")
def flips(request: pytest.FixtureRequest) -> int:
    """How many bits to flip on the disk."""
    count: int = request.config.getoption("flips")
    return count


@pytest.fixture(scope="session")
def seeded_bugs(request: pytest.FixtureRequest) -> int:
    """How many bugs to plant."""
    count: int = request.config.getoption("seeded_bugs")
    return count


@pytest.fixture
def crash_steps(request: pytest.FixtureRequest, seed: int) -> range:
    """The steps of the disk at which a rig stops, more than any work has."""
    stride: int = request.config.getoption("crash_stride")
    return range(seed % stride, STEPS_MAX, stride)
