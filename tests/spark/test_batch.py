"""Batch reads: rows, positions, projection, splits, filters, lost ranges and wrong options."""

from datetime import UTC, datetime
from itertools import combinations

import pytest
from kafkalite_sdk import TopicPartition
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark_kafkalite.options import source_options
from pyspark_kafkalite.schema import COLUMN_TYPES, ddl
from pyspark_kafkalite.source import BatchReader, DefaultSource

from tests.spark.rig import Rig, values

TIMES_MS = (0, 1_735_689_600_123, 4_102_444_800_000)


@pytest.mark.kafkalite(configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
def test_rows_have_all_columns(rig: Rig) -> None:
    headers = [("source", b"shop"), ("empty", None), ("source", b"")]
    rig.producer.send(rig.topic, b"value", b"key", timestamp_ms=TIMES_MS[1], headers=headers)
    rig.producer.send(rig.topic, None, b"tombstone", timestamp_ms=TIMES_MS[2])
    rig.producer.send(rig.topic, b"", timestamp_ms=TIMES_MS[0])
    rig.producer.flush()
    first, second, third = rig.read(includeHeaders="true").orderBy("offset").collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"key", b"value", rig.topic, 0, 0)
    assert [(each.key, each.value) for each in first.headers] == headers
    assert first.timestampType == 0
    assert (second.value, second.key, third.value, third.key) == (None, b"tombstone", b"", None)
    assert second.headers in (None, []) and [second.offset, third.offset] == [1, 2]
    seconds = rig.read().orderBy("offset").select(functions.expr("unix_millis(timestamp)")).collect()
    assert [row[0] for row in seconds] == [TIMES_MS[1], TIMES_MS[2], TIMES_MS[0]]


def test_each_subset_of_columns_has_exactly_the_schema_of_spark(rig: Rig) -> None:
    """Traps 4 and 6: a schema of the user projects at the source, and Spark compares the schema of the first batch."""
    rig.producer.send(rig.topic, b"v", b"k", headers=[("h", b"x")]).result()
    options = source_options({**rig.options, "includeHeaders": "true"}, streaming=False)
    names = tuple(COLUMN_TYPES)
    subsets = [each for count in range(1, len(names) + 1) for each in combinations(names, count)]
    assert len(subsets) == 255
    (task,) = BatchReader(options, StructType.fromDDL(ddl(names))).partitions()
    for subset in [*subsets, names[::-1]]:
        schema = StructType.fromDDL(ddl(subset))
        (batch,) = BatchReader(options, schema).read(task)
        assert batch.schema == to_arrow_schema(schema, timezone="UTC") and batch.num_rows == 1


@pytest.mark.kafkalite(partitions=2)
def test_schema_of_the_user_projects(rig: Rig) -> None:
    rig.send(range(10))
    frame = rig.read("offset long, value binary")
    assert frame.columns == ["offset", "value"] and values(frame) == list(range(10))
    assert rig.read(columns="value,partition").columns == ["value", "partition"]
    for schema, reason in (("value string", "expected binary"), ("size long", "'size' does not exist")):
        with pytest.raises(PySparkException, match=reason):
            rig.read(schema).collect()


@pytest.mark.kafkalite(partitions=3)
def test_positions_select_the_range(rig: Rig) -> None:
    for partition in range(3):
        for number in range(10):
            rig.producer.send(rig.topic, b"%d" % number, partition=partition, timestamp_ms=1000 * number + 1)
    rig.producer.flush()
    topic = rig.topic
    offsets = f'{{"{topic}":{{"0":3,"1":-2,"2":9}}}}'
    ends = f'{{"{topic}":{{"0":-1,"1":2,"2":-1}}}}'
    assert values(rig.read(startingOffsets=offsets, endingOffsets=ends)) == sorted([*range(3, 10), 0, 1, 9])
    assert values(rig.read(startingTimestamp="8000")) == [8, 8, 8, 9, 9, 9]
    assert values(rig.read(startingTimestamp="8000", endingTimestamp="9000")) == [8, 8, 8]
    for option, text, count in (("assign", f'{{"{topic}":[1]}}', 10), ("subscribePattern", topic[:-1] + ".", 30)):
        reader = rig.spark.read.format("kafkalite").option("kafka.bootstrap.servers", rig.broker.address)
        assert reader.option(option, text).load().count() == count


def test_empty_topic_has_no_rows(rig: Rig) -> None:
    """Trap 8: without tasks Spark calls `read` once, with a partition that has no value."""
    assert rig.read().collect() == []
    rig.send([1])
    assert rig.read(endingOffsets=f'{{"{rig.topic}":{{"0":0}}}}').collect() == []


@pytest.mark.kafkalite(partitions=2)
def test_number_of_tasks_follows_the_options(rig: Rig) -> None:
    rig.send(range(1000))
    rig.send(range(1000), partition=1)
    for options, count in (
        ({}, 1),
        ({"minPartitions": "6"}, 6),
        ({"maxRecordsPerPartition": "300"}, 8),
        ({"targetSplitBytes": "4000"}, None),
    ):
        frame = rig.read(**options)
        tasks = frame.rdd.getNumPartitions()
        assert tasks == count or (count is None and tasks > 4)
        assert values(frame) == sorted([*range(1000)] * 2)


def test_filters_are_applied_at_the_source_on_request(rig: Rig) -> None:
    """Trap 3: a reader that receives filters is an error unless the session permits it."""
    for number in range(20):
        rig.producer.send(rig.topic, b"%d" % number, timestamp_ms=1000 * number)
    rig.producer.flush()
    frame = rig.read(pushFilters="true").where("partition = 0 and offset >= 5 and offset < 9")
    with pytest.raises(AnalysisException, match="PUSHDOWN_DISABLED"):
        frame.collect()
    rig.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert values(rig.read(pushFilters="true").where("partition = 0 and offset >= 5 and offset < 9")) == [
            5,
            6,
            7,
            8,
        ]
        since = functions.lit(datetime.fromtimestamp(15, UTC))
        assert values(rig.read(pushFilters="true").where(functions.col("timestamp") >= since)) == [15, 16, 17, 18, 19]
        assert rig.read(pushFilters="true").where("topic = 'other'").collect() == []
    finally:
        rig.spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_lost_offsets_are_named(rig: Rig) -> None:
    rig.send(range(10))
    first = TopicPartition(rig.topic, 0)
    starting = f'{{"{rig.topic}":{{"0":2}}}}'
    assert values(rig.read(startingOffsets=starting)) == list(range(2, 10))
    rig.admin.partitions.delete_records({first: 6}).check()
    with pytest.raises(PySparkException, match=f"{rig.topic}-0: offsets 2 to 5 were deleted by retention"):
        rig.read(startingOffsets=starting).collect()
    assert values(rig.read(startingOffsets=starting, failOnDataLoss="false")) == [6, 7, 8, 9]
    beyond = f'{{"{rig.topic}":{{"0":50}}}}'
    with pytest.raises(PySparkException, match="the log ends at offset 10, but 50 was expected"):
        rig.read(endingOffsets=beyond).collect()


def test_wrong_options_are_named_before_a_job(rig: Rig) -> None:
    cases = [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "option startingOffsets: latest is not possible in a batch"),
        ({"kafka.enable.auto.commit": "true"}, "option kafka.enable.auto.commit"),
        ({"startingOffsets": f'{{"{rig.topic}":{{"1":0}}}}'}, f"startingOffsets: {rig.topic}-0 are missing"),
    ]
    for options, reason in cases:
        with pytest.raises(PySparkException, match=reason):
            rig.read(**options).collect()
    with pytest.raises(PySparkException, match="absent"):
        rig.read(subscribe="absent").collect()


def test_sql_reads_a_topic_as_a_table(rig: Rig) -> None:
    rig.send(range(5))
    rig.spark.sql(
        f"CREATE TEMPORARY VIEW topic_view USING kafkalite "
        f"OPTIONS ('kafka.bootstrap.servers' '{rig.broker.address}', subscribe '{rig.topic}')"
    )
    assert rig.spark.sql("SELECT count(*) AS n FROM topic_view").collect()[0].n == 5


def test_source_has_a_name_of_its_own() -> None:
    """Trap 1: the name `kafka` is reserved, also without the connector."""
    assert DefaultSource.name() == "kafkalite"


def test_batches_are_small_parts_of_a_large_range(rig: Rig) -> None:
    """Trap 7: binary columns have 32-bit offsets, and memory is bounded by batches of a few MiB."""
    for _ in range(40):
        rig.producer.send(rig.topic, bytes(900_000))
    rig.producer.flush()
    reader = BatchReader(source_options(rig.options, streaming=False), StructType.fromDDL("value binary"))
    (task,) = reader.partitions()
    sizes = [batch.nbytes for batch in reader.read(task)]
    assert sum(sizes) >= 36_000_000 and all(2 << 20 <= size <= 16 << 20 for size in sizes[:-1]) and len(sizes) > 2
