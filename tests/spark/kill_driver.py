"""A driver whose ingest is killed again and again: `kill_driver.py MASTER ADDRESS TOPIC DIRECTORY`.

It appends records and copies them to DIRECTORY/table until all kills of DIRECTORY/kills have happened and one more run
has ended well. The value of a record is its partition and offset. A kill of the driver ends this process.
"""

import os
import signal
import sys
from pathlib import Path

from kafkalite_sdk.admin import LATEST
from kafkalite_sdk.blocking import Admin, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark_kafkalite.ingest import ingest, query

from kafkalite.model import TopicPartition
from tests.kit.brokers import wait_until
from tests.kit.jvm import api_versions_answers
from tests.spark import killing
from tests.spark.conftest import CONFIGS

PARTITIONS = 3
RECORDS = 40  # of a partition, for each run
OPTIONS = {"startingOffsets": "earliest", "minPartitions": "2", "maxOffsetsPerTrigger": "60"}
SHORT_TIMEOUTS = {
    "kafka.request.timeout.ms": "3000",
    "kafka.default.api.timeout.ms": "4000",
    "kafkaConsumer.pollTimeoutMs": "4000",
}


def session(master: str, directory: str, **given: str) -> SparkSession:
    """A session whose tasks are repeated.

    Arguments:
        master: of Spark.
        directory: of its warehouse.
        given: other properties.
    """
    builder = SparkSession.builder.master(master)
    configs = {**CONFIGS, "spark.sql.warehouse.dir": directory, "spark.executor.memory": "512m", **given}
    for name, value in configs.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    return spark


def append(address: str, topic: str) -> None:
    """Append records to each partition. The broker may be starting again."""
    host, _, port = address.rpartition(":")
    wait_until(lambda: api_versions_answers(host, int(port)), "start of the broker")
    names = dict.fromkeys((TopicPartition(topic, each) for each in range(PARTITIONS)), LATEST)
    with Admin(address) as admin:
        ends = {each: found.offset for each, found in admin.partitions.offsets(names).check().items()}
    with Producer[bytes, bytes](address) as producer:
        for name, end in ends.items():
            for offset in range(end, end + RECORDS):
                producer.send(topic, b"%d:%d" % (name.partition, offset), partition=name.partition)
        producer.flush()


def run(spark: SparkSession, address: str, topic: str, directory: Path, kills: killing.Kills) -> bool:
    """Copy what is in the log; return whether there was no kill. Raises an error that no kill has caused."""
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, **OPTIONS}
    options |= SHORT_TIMEOUTS if any(each.target == killing.SUSPENDED for each in kills.plan) else {}
    table = killing.KilledTable(directory / "table")
    before = kills.done()
    try:
        ingest(spark, table, options, checkpoint=str(directory / "checkpoint")).awaitTermination()
    except (StreamingQueryException, killing.KilledError):
        if not kills.may_fail(before):
            raise
    else:
        assert not suspended(kills, before), "the query has not waited for the broker"
    if suspended(kills, before):
        kills.signal_broker(signal.SIGCONT)
    return kills.done() == before


def suspended(kills: killing.Kills, before: int) -> bool:
    """Whether one of the kills since then has suspended the broker."""
    return any(each.target == killing.SUSPENDED for each in kills.plan[before : kills.done()])


def main(master: str, address: str, topic: str, directory: str) -> None:
    root = Path(directory)
    os.environ["KAFKALITE_KILLS"] = str(root / "kills")
    kills = killing.Kills(root / "kills")
    query.write_splits = killing.write_splits
    query.PlanSource = killing.KilledPlanSource  # type: ignore[misc]
    query.Committer = killing.KilledCommitter  # type: ignore[misc]
    spark = session(master, directory)
    append(address, topic)
    while not run(spark, address, topic, root, kills) or kills.done() < len(kills.plan):
        append(address, topic)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
