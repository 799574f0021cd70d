"""Options for the length of the rigs in tests/torture and of the simulations in tests/story/groups.

`--kills N`, `--cuts N` (power cuts) and `--faults N` count for the whole run, `--fairness-seconds N` is the time of
hostile clients beside others; `--simulations N` groups run for `--minutes N` of virtual time each. A run with a larger
value than in `make test` prints the time and the seed of each test.
"""

import re

import pytest

from tests.kit.planted_bugs import SHORT_SIMULATIONS

SEED = re.compile(r"KAFKALITE_SEED=\d+")
SHORT = {
    "kills": 10,
    "cuts": 3,
    "faults": 1,
    "cluster_faults": 8,
    "simulations": SHORT_SIMULATIONS,
    "minutes": 10,
    "fairness_seconds": 30,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=SHORT["kills"], help="how often the broker is killed in all")
    parser.addoption("--cuts", type=int, default=SHORT["cuts"], help="how often the power is cut in all")
    parser.addoption("--faults", type=int, default=SHORT["faults"], help="how often each fault of the disk is injected")
    faults = "how many faults hit clusters with three replicas"
    parser.addoption("--cluster-faults", type=int, default=SHORT["cluster_faults"], help=faults)
    parser.addoption(
        "--simulations", type=int, default=SHORT["simulations"], help="number of groups of each simulation"
    )
    parser.addoption("--minutes", type=int, default=SHORT["minutes"], help="virtual minutes of each simulated group")
    older = "the interpreter of an installed older build, from which clusters are upgraded"
    parser.addoption("--release", metavar="PYTHON", help=older)
    seconds = "how long hostile clients stay beside others"
    parser.addoption("--fairness-seconds", type=int, default=SHORT["fairness_seconds"], help=seconds)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "torture: rigs and simulations, with the length of options like --kills")
    config.addinivalue_line(
        "markers", "long_form: left out unless an option like --cuts is above its value in `make test`"
    )
    if is_long(config) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


def is_long(config: pytest.Config) -> bool:
    """Whether any rig is to go on for longer than in `make test`."""
    return any(config.getoption(name) > count for name, count in SHORT.items())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with the mark `long_form` are run in the long form only."""
    if is_long(config):
        return
    left_out = [item for item in items if item.get_closest_marker("long_form")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long_form")]


class Progress:
    """Shows the seconds and the seed of each test, and what it reports, when it has ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.when != "call" or reporter is None:
            return
        seeds = SEED.findall(report.capstdout)[:1]
        said = [str(value) for key, value in report.user_properties if key == "summary"]
        reporter.ensure_newline()
        reporter.write_line("    " + "; ".join([f"{report.duration:.1f} s", *seeds, *said]))


@pytest.fixture
def simulations(request: pytest.FixtureRequest) -> int:
    """Number of groups of a simulation."""
    found: int = request.config.getoption("--simulations")
    return found


@pytest.fixture
def minutes(request: pytest.FixtureRequest) -> int:
    """How long the life of a simulated group is, in virtual minutes."""
    found: int = request.config.getoption("--minutes")
    return found


@pytest.fixture
def fairness_seconds(request: pytest.FixtureRequest) -> int:
    """How long hostile clients stay beside others."""
    found: int = request.config.getoption("--fairness-seconds")
    return found
