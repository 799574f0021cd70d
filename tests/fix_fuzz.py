"""How much bad input the fuzz tests try: `--fuzz-inputs N`, for the whole run."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-inputs", type=int, default=200_000, help="how many bad inputs to try in all")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fuzz: bad input, as many as --fuzz-inputs says")


@pytest.fixture(scope="session")
def fuzz_inputs(request: pytest.FixtureRequest) -> int:
    """How many bad inputs to try in all; each fuzz test takes its share."""
    count: int = request.config.getoption("fuzz_inputs")
    return count
