"""The SDK while a real broker is killed, suspended or closes connections; `tests/kit/sdk_faults.py` has the scenarios.

No record is lost, duplicated or reordered, every awaitable has one outcome, no task, timer or socket is left, and
nothing but lost brokers is logged, with PYTHONASYNCIODEBUG=1 and warnings as errors.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fix_torture import is_long
from tests.kit import jvm
from tests.kit.checker import ViolationError
from tests.kit.sdk_faults import OPEN_MIN, SCENARIO_S

pytestmark = [pytest.mark.torture, pytest.mark.timeout(700)]
ROOT = Path(__file__).parents[2]
needs_java = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
BROKERS = ["kafkalite", pytest.param("kafka", marks=needs_java)]
PROTOCOLS = ["classic", "consumer"]
LOST_BROKER = re.compile(r"lost a broker, which is connected again when it is reachable: .*127\.0\.0\.1:\d+: .+")


def run(scenario: str, directory: Path, random: Random, count: int, protocol: str, against: str) -> dict[str, Any]:
    """The summary of a scenario, whose history has no anomaly."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "tests.kit.sdk_faults"]
    command += [scenario, str(directory), str(random.random()), str(count), protocol]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1", "AGAINST": against},
        capture_output=True,
        text=True,
        timeout=SCENARIO_S + 100,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert [line for line in done.stderr.splitlines() if not LOST_BROKER.fullmatch(line)] == []
    found: dict[str, Any] = json.loads(done.stdout)
    print(found)
    if found["anomalies"]:
        raise ViolationError(found["anomalies"])
    assert found["errors"] == []
    assert found["left_over"] == []
    assert found["sent"] == found["acknowledged"]
    assert found["commits"] > 0
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("against", BROKERS)
def test_killed_broker(
    tmp_path: Path, random: Random, pytestconfig: pytest.Config, against: str, protocol: str
) -> None:
    kills = 20 if is_long(pytestconfig) else 3 if against == "kafkalite" else 1
    found = run("kills", tmp_path / "broker", random, kills, protocol, against)
    assert len(found["open_at_faults"]) == kills
    assert min(found["open_at_faults"]) >= OPEN_MIN


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("against", BROKERS)
def test_broker_suspended_for_longer_than_the_session_timeout(
    tmp_path: Path, random: Random, pytestconfig: pytest.Config, against: str, protocol: str
) -> None:
    count = 10 if is_long(pytestconfig) else 1
    found = run("suspensions", tmp_path / "broker", random, count, protocol, against)
    assert min(found["open_at_faults"]) >= OPEN_MIN


@pytest.mark.parametrize("against", BROKERS)
def test_connections_closed_before_the_response(
    tmp_path: Path, random: Random, pytestconfig: pytest.Config, against: str
) -> None:
    """Batches are sent again and answered with their first offset: the broker has recognized the duplicates."""
    count = 100 if is_long(pytestconfig) else 5
    found = run("cuts", tmp_path / "broker", random, count, "classic", against)
    assert found["open_at_faults"][0] >= count
