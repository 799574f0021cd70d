"""Flights over three brokers, each killed once while flights are in the air: all rows are read once, in order.

The first 12,000 flights in `make test`, all of them in a long run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fix_torture import is_long
from tests.kit.broker_processes import BrokerProcesses
from tests.kit.flights import FLIGHTS, flights, judge
from tests.story.test_flights import PARTITIONS, TOPIC, Tower, ends_of, read_by_aiokafka

pytestmark = [pytest.mark.torture, pytest.mark.timeout(600)]
SHORT = 12_000
PILED_UP = 1_000  # flights that are sent while a broker is suspended: a third of them wait for it
IN_FLIGHT_MIN = 100


def test_flights_over_three_brokers_each_killed_once(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    count = FLIGHTS if is_long(pytestconfig) else SHORT
    schedule = flights(count)
    with BrokerProcesses(tmp_path, {"kafkalite.coordination.directory": str(tmp_path / "shared")}) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, retention_ms="-1")
        moments = {count * number // 4: broker_id for number, broker_id in enumerate(cluster.brokers, 1)}
        with Tower(cluster.bootstrap, count) as tower:
            for number, flight in enumerate(schedule):
                tower.send(flight)
                if number in moments:
                    cluster.freeze(moments[number])
                elif broker_id := moments.get(number - PILED_UP):
                    tower.note_arrived()
                    assert tower.in_flight >= IN_FLIGHT_MIN, "nothing to lose: the kill proves nothing"
                    cluster.kill(broker_id)
                    cluster.start(broker_id)
                    cluster.agreed()
            tower.land_all()
        assert tower.acknowledged.count == count
        landed = read_by_aiokafka(cluster.address(1), ends_of(tower.acknowledged))
        assert judge(schedule, tower.acknowledged, landed)[:10] == []
