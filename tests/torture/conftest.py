"""How many rounds each rig gets, and the seed of each."""

from __future__ import annotations

from random import Random

import pytest

from tests.fix_torture import is_long
from tests.kit import jvm, rig
from tests.kit.seeds import chosen_seed

KILLS_PER_SERIES = 5
CUTS_PER_POWER_SERIES = 5
KILLS_PER_GROUP_SERIES = 15  # of --kills, for lives of groups and clusters: they have fewer, and take their time
SEED = chosen_seed()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`series`, `group_series`, `cluster_series`, `power_series`: the number of a life with some kills or power cuts;
    `cut`, `fault`: the number of each."""
    if "series" in metafunc.fixturenames:
        series_count = -(-metafunc.config.getoption("kills") // KILLS_PER_SERIES)
        metafunc.parametrize("series", range(series_count))
    for name in ("group_series", "cluster_series"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, range(-(-metafunc.config.getoption("kills") // KILLS_PER_GROUP_SERIES)))
    if "power_series" in metafunc.fixturenames:
        series_count = -(-metafunc.config.getoption("cuts") // CUTS_PER_POWER_SERIES)
        metafunc.parametrize("power_series", range(series_count), scope="module")
    if "cut" in metafunc.fixturenames:
        metafunc.parametrize("cut", range(metafunc.config.getoption("cuts")))
    if "how" in metafunc.fixturenames:
        metafunc.parametrize("how", ["stop", "kill"] if is_long(metafunc.config) else ["stop"])
    if "fault" in metafunc.fixturenames:
        metafunc.parametrize("fault", range(metafunc.config.getoption("faults")))


@pytest.fixture(autouse=True)
def judges(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the long form the previous Apache Kafka judges the files, too."""
    if is_long(pytestconfig):
        monkeypatch.setattr(rig, "JUDGES", (jvm.CURRENT, jvm.PREVIOUS))


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    """Seeded by KAFKALITE_SEED and the name of the test: a test that is run alone draws the same again."""
    print(f"KAFKALITE_SEED={SEED} replays {request.node.nodeid}")
    return Random(f"{SEED}:{request.node.nodeid}")
