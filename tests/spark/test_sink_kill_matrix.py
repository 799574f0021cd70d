"""A sink with `exactlyOnce`: readers of committed records see each record once after kills of tasks and commits."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kafkalite_sdk.admin import LATEST
from kafkalite_sdk.blocking import Admin, Consumer
from pyspark.sql import SparkSession

from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.spark import kill_driver, kill_sink_driver
from tests.spark.killing import Kill, Kills
from tests.spark.killing_sink import COMMIT, WORKER

SOURCE, TARGET = "killed", "killed-copy"


def planned(directory: Path, plan: Sequence[Kill]) -> Kills:
    """The kills of a test."""
    kills = Kills(directory / "kills")
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
    kills = planned(tmp_path, [Kill(phase) for phase in (WORKER[1], WORKER[3], *COMMIT[1:])])
    kill_driver.append(address, source)
    whole = {"maxOffsetsPerTrigger": "1000"}  # all kills concern one batch
    while not kill_sink_driver.run(spark, address, source, target, tmp_path, **whole):
        pass
    verify(address, source, target, kills)
