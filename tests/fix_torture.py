"""How long the rigs of tests/torture go on: `--kills N`, `--cuts N` and `--faults N`, for the whole run; and how many
groups each simulation of tests/story/groups lives through, for how long: `--lives N` and `--minutes N` of virtual time.
"""

import pytest

SHORT = {"kills": 15, "cuts": 3, "faults": 1, "lives": 170, "minutes": 10}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=SHORT["kills"], help="how often the broker is killed in all")
    parser.addoption("--cuts", type=int, default=SHORT["cuts"], help="how often the power is cut in all")
    parser.addoption("--faults", type=int, default=SHORT["faults"], help="how often each fault of the disk is injected")
    parser.addoption("--lives", type=int, default=SHORT["lives"], help="groups that each simulation lives through")
    parser.addoption("--minutes", type=int, default=SHORT["minutes"], help="virtual minutes of the life of a group")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "torture: rigs and simulations, as many rounds as options like --kills say")


@pytest.fixture
def lives(request: pytest.FixtureRequest) -> int:
    """How many groups a simulation lives through."""
    found: int = request.config.getoption("--lives")
    return found


@pytest.fixture
def minutes(request: pytest.FixtureRequest) -> int:
    """How long the life of a simulated group is, in virtual minutes."""
    found: int = request.config.getoption("--minutes")
    return found
