"""Apache Kafka 4.4 is the broker of source, sink and ingest: without and with SASL_SSL and SCRAM, with transactions."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.blocking import Admin
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.ingest import ingest
from pyspark_kafkalite.jobs.checks import check_before_run
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.settings.job_file import parse_job
from pyspark_kafkalite.tables import ManifestTable
from pyspark_kafkalite.tables.reading import read

from tests.kit import jvm
from tests.kit.secure_kafka import PASSWORD, USER, SecureKafka, create_users, secure_kafka
from tests.spark.conftest import connector_missing
from tests.spark.rig import Collected
from tests.spark.transactions import send_transactions

pytestmark = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
COUNT = 300


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with secure_kafka(tmp_path_factory.mktemp("secure"), settings) as running:
        asyncio.run(create_users(running.plaintext))
        yield running
        close_clients()


def addressed(kafka: SecureKafka, listener: str, password: str = PASSWORD) -> dict[str, str]:
    """The options of a listener."""
    if listener == "plaintext":
        return {"kafka.bootstrap.servers": kafka.plaintext}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.bootstrap.servers": kafka.sasl_ssl,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        "kafka.ssl.truststore.location": str(kafka.authority.cert),
        "kafka.ssl.truststore.type": "PEM",
    }


def create(kafka: SecureKafka, topic: str, partitions: int) -> None:
    with Admin(kafka.plaintext) as admin:
        admin.topics.create(NewTopic(topic, partitions)).check()


@pytest.mark.parametrize("listener", ["plaintext", "sasl_ssl"])
def test_source_sink_and_ingest(
    spark: SparkSession, kafka: SecureKafka, collected: Collected, tmp_path: Path, listener: str
) -> None:
    topic, given = f"orders-{listener}", addressed(kafka, listener)
    create(kafka, topic, 3)
    rows = spark.range(COUNT).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 3 AS INT) AS partition")
    rows.write.format("kafkalite").mode("append").options(**given, topic=topic).save()
    given |= {"subscribe": topic, "startingOffsets": "earliest"}
    batch = spark.read.format("kafkalite").options(**given, minPartitions="4").load()
    expected = sorted((number % 3, number // 3, number) for number in range(COUNT))
    found = batch.select("partition", "value").collect()
    assert sorted((row.partition, int(row.value)) for row in found) == sorted((p, n) for p, _, n in expected)
    collected.run(spark.readStream.format("kafkalite").options(**given, maxOffsetsPerTrigger="200").load())
    assert sorted((p, n) for p, _, n in collected.rows) == sorted((p, n) for p, _, n in expected)
    assert len(collected.batches) == 2
    ingest(spark, tmp_path / "table", given, checkpoint=str(tmp_path / "ingest")).awaitTermination()
    table = read(tmp_path / "table").to_table(columns=["_partition", "_offset", "value"]).to_pydict()
    assert sorted(int(value) for value in table["value"]) == list(range(COUNT))
    assert len(set(zip(table["_partition"], table["_offset"], strict=True))) == COUNT


def test_exactly_once_sink(spark: SparkSession, kafka: SecureKafka, tmp_path: Path) -> None:
    source, target, given = "exactly-once-source", "exactly-once-target", addressed(kafka, "plaintext")
    for topic in (source, target):
        create(kafka, topic, 2)
    rows = spark.range(COUNT).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafkalite").mode("append").options(**given, topic=source).save()
    stream = spark.readStream.format("kafkalite").options(**given, subscribe=source, startingOffsets="earliest")
    writer = stream.option("maxOffsetsPerTrigger", "200").load().select("value").writeStream.format("kafkalite")
    writer = writer.options(**given, topic=target, exactlyOnce="true", checkpointLocation=str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    written = spark.read.format("kafkalite").options(**given, subscribe=target, isolation="read_committed").load()
    assert sorted(int(row.value) for row in written.select("value").collect()) == list(range(COUNT))


def test_wrong_password_is_one_clear_line(spark: SparkSession, kafka: SecureKafka) -> None:
    given = addressed(kafka, "sasl_ssl", "wrong")
    with pytest.raises(PySparkException, match=r"(?i)authentication.*") as caught:
        spark.read.format("kafkalite").options(**given, subscribe="orders").load().collect()
    assert 'password="wrong"' not in str(caught.value)


def test_job_with_a_wrong_password_does_not_start_and_says_so_in_one_line(kafka: SecureKafka, tmp_path: Path) -> None:
    source = addressed(kafka, "sasl_ssl", "wrong") | {"subscribe": "orders"}
    job = {"job": {"type": "lake"}, "source": source, "table": {"path": "orders"}}
    expected = r"\ASASL_AUTHENTICATION_FAILED .* rejected the credentials .*; check the sasl_\* settings\Z"
    with pytest.raises(JobError, match=expected) as caught:
        check_before_run(parse_job(job, str(tmp_path / "lake.toml")), RunOptions())
    assert "wrong" not in str(caught.value)


@pytest.mark.skipif(connector_missing() is not None, reason=f"Spark's connector: {connector_missing()}")
def test_control_batches_and_aborted_records_are_left_out(
    spark: SparkSession, kafka: SecureKafka, collected: Collected, tmp_path: Path
) -> None:
    topic = "transactions"
    create(kafka, topic, 1)
    send_transactions(kafka.plaintext, topic)
    given = {"kafka.bootstrap.servers": kafka.plaintext, "subscribe": topic, "startingOffsets": "earliest"}
    committed = [(0, b"c0"), (1, b"c1"), (5, b"c2")]
    for isolation, expected in (
        ("read_committed", committed),
        ("read_uncommitted", sorted([*committed, (3, b"a0")])),
    ):
        for name in ("kafka", "kafkalite"):
            reader = spark.read.format(name).options(**given).option("kafka.isolation.level", isolation)
            rows = reader.load().select("offset", "value").collect()
            assert sorted((row.offset, bytes(row.value)) for row in rows) == expected
    job = {**given, "isolation": "read_committed", "maxRecordsPerPartition": "2"}
    ingest(spark, tmp_path / "table", job, checkpoint=str(tmp_path / "ingest")).awaitTermination()
    table = read(tmp_path / "table").to_table(columns=["_offset", "value"]).to_pydict()
    assert sorted(zip(table["_offset"], table["value"], strict=True)) == committed
    assert list(ManifestTable(tmp_path / "table").end_offsets().values()) == [7]
