"""A sink with `exactlyOnce`: readers of committed records see each record once after kills of tasks and commits.

In the long form also after kills of brokers, executors and drivers, with speculative attempts.
"""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from kafkalite_sdk.admin import LATEST, NewTopic
from kafkalite_sdk.blocking import Admin, Consumer
from pyspark.sql import SparkSession

from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.fix_torture import SHORT
from tests.spark import kill_driver, kill_sink_driver
from tests.spark.killing import BROKER, DRIVER, EXECUTOR, Kill
from tests.spark.killing_sink import ALL, COMMIT, STALLED, WORKER, SinkKills
from tests.spark.test_kill_matrix import ROOT, restarting_broker

SOURCE, TARGET = "killed", "killed-copy"
RUN_S = 7200


def planned(directory: Path, plan: Sequence[Kill]) -> SinkKills:
    """The kills of a test."""
    kills = SinkKills(directory / "kills")
    kills.directory.mkdir()
    (kills.directory / "plan.json").write_text(json.dumps(plan))
    return kills


def values(address: str, topic: str) -> Counter[bytes]:
    """The committed values of a topic, with their number."""
    found: Counter[bytes] = Counter()
    partitions = [TopicPartition(topic, each) for each in range(kill_driver.PARTITIONS)]
    with (
        Admin(address) as admin,
        Consumer(address, isolation_level="read_committed", auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign(partitions)
        offsets = admin.partitions.offsets(dict.fromkeys(partitions, LATEST)).check()
        stable = consumer.end_offsets(partitions)
        assert stable == {each: listed.offset for each, listed in offsets.items()}, "a transaction is open"
        while any(consumer.position(each) < end for each, end in stable.items()):
            found.update(each.value or b"" for each in consumer.poll(0.1))
    return found


def verify(address: str, source: str, target: str, kills: SinkKills) -> None:
    """Each kill has happened in its phase; each record was copied once."""
    assert [kills.marker(number)["phase"] for number in range(kills.done())] == [each.phase for each in kills.plan]
    expected = values(address, source)
    assert expected and set(expected.values()) == {1}
    assert values(address, target) == expected


def test_each_record_is_copied_once_after_kills_of_tasks_and_commits(
    spark: SparkSession, kafkalite_broker: BrokerThread, tmp_path: Path
) -> None:
    address, source, target = kafkalite_broker.address, f"sink-{SOURCE}", f"sink-{TARGET}"
    for topic in (source, target):
        kafkalite_broker.create_topic(topic, kill_driver.PARTITIONS)
    kills = planned(tmp_path, [Kill(phase) for phase in (WORKER[1], WORKER[3], *COMMIT[1:])])
    kill_driver.append(address, source)
    whole = {"maxOffsetsPerTrigger": "1000"}  # all kills concern one batch
    while not kill_sink_driver.run(spark, address, source, target, tmp_path, **whole):
        pass
    verify(address, source, target, kills)


@pytest.mark.long_form
def test_each_record_is_copied_once_after_kills_of_brokers_executors_and_drivers_with_speculation(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count: int = request.config.getoption("kills")
    random = Random(count)
    plan = [
        *(Kill(phase, STALLED) for phase in (WORKER[1], WORKER[3], WORKER[2])),
        *(Kill(phase, BROKER) for phase in (WORKER[1], COMMIT[1], COMMIT[2])),
        *(Kill(phase, EXECUTOR) for phase in (WORKER[1], WORKER[3])),
        *(Kill(phase, DRIVER) for phase in COMMIT),
    ]
    while len(plan) < count // 2:
        targets = random.choices((None, STALLED, BROKER), (8, 1, 1), k=len(ALL))
        for phase, target in zip(random.sample(ALL, len(ALL)), targets, strict=True):
            plan.append(
                Kill(phase) if target is None or (target == STALLED and phase in COMMIT) else Kill(phase, target)
            )
    random.shuffle(plan)
    kills = planned(tmp_path, plan)
    with restarting_broker(tmp_path / "broker", kills.directory) as broker:
        with Admin(broker.address) as admin:
            admin.topics.create(NewTopic(TARGET, partitions=kill_driver.PARTITIONS)).check()
        command = [sys.executable, "-m", "tests.spark.kill_sink_driver", "local-cluster[2,1,1024]"]
        log = tmp_path / "driver.log"
        while True:
            with log.open("ab") as output:
                arguments = [*command, broker.address, SOURCE, TARGET, str(tmp_path)]
                done = subprocess.run(arguments, cwd=ROOT, stdout=output, stderr=output, timeout=RUN_S)
            assert done.returncode in (0, -signal.SIGKILL), log.read_text(errors="replace")[-6000:]
            if not done.returncode:
                break
        verify(broker.address, SOURCE, TARGET, kills)
        assert SHORT["kills"] < kills.done()
