"""The parity table: each case runs through `format("kafka")` 4.2 and through `format("kafkalite")` on one broker.

Both read the same rows, with at least one that is written by hand. Both reject the same mistakes; the error of the
source names the option. Where the source is stricter, the case says so. Rejections of the source are observed without
Spark's worker: how Spark reports them is in test_batch.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk.blocking import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructType
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.schema import ddl, default_columns
from pyspark_kafkalite.source import DefaultSource

from kafkalite.testing.thread import BrokerThread
from tests.spark.conftest import connector_missing
from tests.spark.parity_cases import ALL, BATCHES, EMPTY, OTHER, STREAMS, THIRD, TOPIC, Case

pytestmark = pytest.mark.skipif(connector_missing() is not None, reason=f"Spark's connector: {connector_missing()}")
FORMATS = ("kafka", "kafkalite")
KEPT = {"retention.ms": "-1"}  # record times begin in 1970
QUICK = {"fetchOffset.retryIntervalMs": "1"}


def case_id(case: Case) -> str:
    return " ".join(f"{name}={value}" for name, value in case.options.items())[:90] or "defaults"


@pytest.fixture(scope="module")
def address(kafkalite_broker: BrokerThread) -> Iterator[str]:
    """The broker with the topics of the cases."""
    for topic, partitions in ((TOPIC, 2), (OTHER, 1), (EMPTY, 1)):
        kafkalite_broker.create_topic(topic, partitions, KEPT)
    with Producer(kafkalite_broker.address) as producer:
        for topic, partition, text in ((TOPIC, 0, ALL[:14]), (TOPIC, 1, ALL[15:]), (OTHER, 0, THIRD)):
            for number, value in enumerate(text.split()):
                key, headers = (b"key", [("h", b"x"), ("h", None)]) if number == 1 else (None, [])
                times = {"timestamp_ms": 1000 * (number + 1)}
                producer.send(topic, value.encode(), key, partition=partition, headers=headers, **times)
        producer.flush()
    yield kafkalite_broker.address
    close_clients()


@pytest.fixture
def options(address: str) -> Callable[[Case], dict[str, str]]:
    def of(case: Case) -> dict[str, str]:
        found = {"kafka.bootstrap.servers": address} if case.addressed else {}
        found |= {"subscribe": TOPIC} if case.subscribed else {}
        return {**QUICK, **found, **case.options}

    return of


Opts = Callable[[Case], dict[str, str]]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All columns of all rows, sorted; the connector has null for records without headers, the source a list."""
    found = [each.asDict(recursive=True) for each in frame.collect()]
    for each in found:
        if "headers" in each:
            each["headers"] = [tuple(one.values()) for one in each["headers"] or []]
    return sorted((tuple(each.values()) for each in found), key=lambda row: (row[2], row[3], row[4]))


def text_of(error: BaseException) -> str:
    """The text of an error of Spark, with its causes in Java."""
    java = getattr(error, "java_exception", None)
    return str(error) if java is None else f"{error} {java.getMessage()}"


def assert_rejected_here(case: Case, options: dict[str, str], streaming: bool) -> None:
    """The source rejects a case before a job, and names the option."""
    source, schema = DefaultSource(options), StructType.fromDDL(ddl(default_columns(headers=False)))
    with pytest.raises(Exception) as caught:
        reader: Any = source.streamReader(schema) if streaming else source.reader(schema)
        reader.initialOffset() if streaming else reader.partitions()
    name, option = case.ours
    assert type(caught.value).__name__ == name and option in str(caught.value)
    assert name != "OptionError" or getattr(caught.value, "option", "").lower() == option.lower()


@pytest.mark.parametrize("case", BATCHES, ids=case_id)
def test_batch(spark: SparkSession, options: Opts, case: Case) -> None:
    given = options(case)
    if case.rows is None:
        assert_rejected_here(case, given, streaming=False)
        if case.connector is not None:
            with pytest.raises((PySparkException, Py4JJavaError)) as caught:
                spark.read.format("kafka").options(**given).load().collect()
            assert re.search(case.connector, text_of(caught.value))
        return
    connector, ours = (rows(spark.read.format(name).options(**given).load()) for name in FORMATS)
    assert ours == connector
    assert [bytes(row[1]).decode() for row in ours] == case.rows.split()


def streamed(spark: SparkSession, name: str, given: dict[str, str], checkpoint: Path) -> list[tuple[Any, ...]]:
    """The rows of all micro-batches until the end of the log."""
    found: list[tuple[Any, ...]] = []
    writer = spark.readStream.format(name).options(**given).load().writeStream
    query = writer.foreachBatch(lambda frame, _: found.extend(rows(frame))).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination(60)
    return sorted(found, key=lambda row: (row[2], row[3], row[4]))


@pytest.mark.parametrize("case", STREAMS, ids=case_id)
def test_stream(spark: SparkSession, options: Opts, tmp_path: Path, case: Case) -> None:
    given = options(case)
    if case.rows is None:
        assert_rejected_here(case, given, streaming=True)
        if case.connector is not None:
            with pytest.raises(PySparkException) as caught:
                streamed(spark, "kafka", given, tmp_path)
            assert re.search(case.connector, text_of(caught.value))
        return
    connector, ours = (streamed(spark, name, given, tmp_path / name) for name in FORMATS)
    assert ours == connector
    assert [bytes(row[1]).decode() for row in ours] == case.rows.split()


# the sink

VALUE = "SELECT 'v' AS value"
REJECTED_ROWS = [
    ("SELECT 'k' AS key", {}, "'value' not found", "column value is missing"),
    ("SELECT 1 AS value", {}, "(?i)value.* type", "column value has type int"),
    ("SELECT 1 AS key, 'v' AS value", {}, "(?i)key.* type", "column key has type int"),
    ("SELECT 'x' AS partition, 'v' AS value", {}, "(?i)partition.* type", "column partition has type string"),
    ("SELECT 'x' AS headers, 'v' AS value", {}, "(?i)headers.* type", "column headers has type string"),
    (VALUE, {"topic": ""}, "(?i)topic", "option topic: it is empty"),
    (VALUE, {"kafka.key.serializer": "x"}, "key.serializer", "option kafka.key.serializer"),
    (VALUE, {"kafka.value.serializer": "x"}, "value.serializer", "option kafka.value.serializer"),
    (VALUE, {"kafka.acks": "7"}, "acks", "option kafka.acks"),
    (VALUE, {"kafka.batch.size": "x"}, "batch.size", "option kafka.batch.size"),
]


@pytest.mark.parametrize(("query", "given", "connector", "ours"), REJECTED_ROWS)
def test_sink_rejects(
    spark: SparkSession, address: str, query: str, given: dict[str, str], connector: str, ours: str
) -> None:
    frame = spark.sql(query)
    given = {"kafka.bootstrap.servers": address, "topic": EMPTY, **given}
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        frame.write.format("kafka").options(**given).save()
    assert re.search(connector, text_of(caught.value))
    with pytest.raises(ValueError, match=re.escape(ours)):
        DefaultSource(given).writer(frame.schema, False)


def test_sinks_write_the_same_records(spark: SparkSession, kafkalite_broker: BrokerThread, address: str) -> None:
    """The option `topic` precedes the column; keys select partitions; `partition` precedes keys."""
    frame = spark.sql(
        "SELECT CAST(id AS STRING) AS key, concat('v', id) AS value, 'none' AS topic, 9 AS other, "
        "IF(id = 3, 2, CAST(NULL AS INT)) AS partition, "
        "IF(id = 5, array(named_struct('key', 'h', 'value', X'01')), NULL) AS headers FROM range(20)"
    )
    found = {}
    for name in FORMATS:
        kafkalite_broker.create_topic(f"parity-by-{name}", 3, KEPT)
        given = {"kafka.bootstrap.servers": address, "topic": f"parity-by-{name}", "includeHeaders": "true"}
        frame.write.format(name).mode("append").options(**given).save()
        reader = spark.read.format("kafkalite").options(**given | {"subscribe": given.pop("topic")})
        read = reader.load().select("partition", "key", "value", "headers").collect()
        found[name] = sorted((r[0], bytes(r[1]), bytes(r[2]), [tuple(h) for h in r[3] or []]) for r in read)
    assert found["kafka"] == found["kafkalite"] and len(found["kafka"]) == 20
    assert (2, b"3", b"v3", []) in found["kafkalite"]
    assert [row[2:] for row in found["kafkalite"] if row[3]] == [(b"v5", [("h", b"\x01")])]


# the connector and this broker


def test_connector_reads_from_this_broker(spark: SparkSession, address: str) -> None:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", TOPIC)
    first, second, *others = reader.option("includeHeaders", "true").load().orderBy("partition", "offset").collect()
    assert (first.topic, first.partition, first.offset, first.key, bytes(first.value)) == (TOPIC, 0, 0, None, b"a0")
    assert (second.key, [tuple(each) for each in second.headers]) == (b"key", [("h", b"x"), ("h", None)])
    assert second.timestamp.timestamp() == 2 and second.timestampType == 0 and len(others) == 6


def test_connector_writes_to_this_broker(
    spark: SparkSession, kafkalite_broker: BrokerThread, address: str, tmp_path: Path
) -> None:
    """A stream with an idempotent producer of Java."""
    kafkalite_broker.create_topic("parity-sink", 2)
    given = {"kafka.bootstrap.servers": address}
    frame = spark.readStream.format("kafka").options(**given, subscribe=TOPIC, startingOffsets="earliest").load()
    writer = frame.select("key", "value").writeStream.format("kafka").options(**given, topic="parity-sink")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    read = spark.read.format("kafkalite").options(**given, subscribe="parity-sink").load()
    assert sorted(bytes(row.value).decode() for row in read.collect()) == ALL.split()


def test_query_of_the_connector_is_migrated_without_gap_or_duplicate(
    spark: SparkSession, kafkalite_broker: BrokerThread, address: str, tmp_path: Path
) -> None:
    """The last JSON of the connector's checkpoint is `startingOffsets` of the new query."""
    kafkalite_broker.create_topic("parity-moved", 2)
    given = {"kafka.bootstrap.servers": address, "subscribe": "parity-moved"}
    send = functions.concat(functions.lit("n"), functions.col("id")).alias("value")
    to = {"kafka.bootstrap.servers": address, "topic": "parity-moved"}
    former, latter = tmp_path / "former", tmp_path / "latter"
    spark.range(30).select(send).write.format("kafka").options(**to).save()
    before = streamed(spark, "kafka", {**given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}, former)
    last = max((former / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = last.read_text().splitlines()[-1]
    assert sum(json.loads(offsets)["parity-moved"].values()) == 30
    spark.range(30, 50).select(send).write.format("kafka").options(**to).save()
    after = streamed(spark, "kafkalite", {**given, "startingOffsets": offsets}, latter)
    both = sorted(bytes(row[1]).decode() for row in [*before, *after])
    assert (len(before), len(after)) == (30, 20) and both == sorted(f"n{number}" for number in range(50))
