"""A sink with `exactlyOnce`: readers of committed records see each record once, whatever is killed.

Tasks, the commit of the sink, brokers, executors and drivers are killed in each phase of `sink_kills`; in the long form
also beside speculative attempts.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from kafkalite_sdk.admin import LATEST
from kafkalite_sdk.blocking import Admin, Consumer
from pyspark.sql import SparkSession

from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.kit.seeds import chosen_seed
from tests.spark import kill_driver, kill_sink_driver
from tests.spark.killing import BROKER, DRIVER, EXECUTOR, PROCESS, Kill, Kills
from tests.spark.restarting import restarting_broker, run_drivers
from tests.spark.sink_kills import COMMIT, TARGETS, TASK, TWIN, SinkKills
from tests.spark.standalone import HOST, OTHER_HOST, Standalone

SOURCE, TARGET = "killed", "killed-copy"
CLUSTER = "local-cluster[2,1,1024]"
ONE_EXECUTOR = "local-cluster[1,2,1024]"
"""Of the short form, with two tasks: each executor is a JVM."""
PER_MATRIX = 100  # of --kills
SPECULATION = {
    "spark.driver.host": HOST,
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.5",
}


def planned(directory: Path, plan: Sequence[Kill]) -> Kills:
    """The kills of a test."""
    kills = Kills(directory / "kills")
    kills.directory.mkdir()
    (kills.directory / "plan.json").write_text(json.dumps(plan))
    return kills


def drive(master: str, directory: Path, plan: Sequence[Kill], **properties: str) -> None:
    """Run drivers until all kills have happened, and verify the copy."""
    kills = planned(directory, plan)
    with restarting_broker(directory / "broker", kills.directory, SOURCE, TARGET) as broker:
        command = [sys.executable, "-m", "tests.spark.kill_sink_driver", master, broker.address, SOURCE, TARGET]
        given = [f"{name}={value}" for name, value in properties.items()]
        run_drivers([*command, str(directory), *given], directory / "driver.log", kills)
        verify(broker.address, SOURCE, TARGET, kills)


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


def verify(address: str, source: str, target: str, kills: Kills) -> None:
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
    kills = planned(tmp_path, [Kill(phase) for phase in (TASK[1], TASK[4], *COMMIT[1:])])
    kill_driver.append(address, source)
    whole = {"maxOffsetsPerTrigger": "1000"}  # all kills concern one batch
    while not kill_sink_driver.run(spark, address, source, target, tmp_path, **whole):
        pass
    verify(address, source, target, kills)


def test_each_record_is_copied_once_after_kills_of_executors_brokers_and_drivers(tmp_path: Path) -> None:
    drive(ONE_EXECUTOR, tmp_path, [Kill(TASK[3], EXECUTOR), Kill(COMMIT[1], BROKER), Kill(COMMIT[2], DRIVER)])


@pytest.mark.long_form
@pytest.mark.parametrize("target", TARGETS)
def test_each_record_is_copied_once_after_kills_in_each_phase(
    tmp_path: Path, pytestconfig: pytest.Config, target: str
) -> None:
    print(f"KAFKALITE_SEED={chosen_seed()} replays the order of the phases")
    random = Random(f"{chosen_seed()}:{target}")
    phases = (*TASK, *COMMIT)
    matrices = max(1, pytestconfig.getoption("kills") // PER_MATRIX)
    plan = [Kill(phase, target) for _ in range(matrices) for phase in random.sample(phases, len(phases))]
    drive(CLUSTER, tmp_path, plan)


@pytest.mark.long_form
def test_each_record_is_copied_once_beside_speculative_attempts(tmp_path: Path) -> None:
    """In each phase an attempt waits for its speculative twin; then its batch is killed in a phase of the commit."""
    plan = [
        kill
        for target in (PROCESS, BROKER, DRIVER)
        for waiting, ending in zip(TASK, COMMIT, strict=True)
        for kill in (Kill(waiting, TWIN), Kill(ending, target))
    ]
    with Standalone.started(tmp_path, HOST, OTHER_HOST) as cluster:  # a twin runs on another host
        drive(cluster.master, tmp_path, plan, **SPECULATION)
    assert SinkKills(tmp_path / "kills", driver=-1).twins() == sum(each.target == TWIN for each in plan)
