"""The sink: rows of batches and of streams become records."""

import pytest
from kafkalite_sdk._speedups.partitioners import murmur2_partition
from pyspark.errors import PySparkException
from pyspark.sql import functions

from tests.spark.rig import Collected, Rig


def write(rig: Rig, query: str, mode: str = "append", **options: str) -> None:
    """Append the rows of a SQL query."""
    settings = {"kafka.bootstrap.servers": rig.broker.address, **options}
    rig.spark.sql(query).write.format("kafkalite").mode(mode).options(**settings).save()


@pytest.mark.kafkalite(partitions=3)
def test_rows_become_records(rig: Rig) -> None:
    columns = (
        "'k' AS key, 'value' AS value, 2 AS partition, 5 AS other, "
        "array(named_struct('key','h','value',X'01')) AS headers"
    )
    write(rig, f"SELECT {columns}", topic=rig.topic)
    others = "X'FF' AS value, CAST(NULL AS BINARY) AS key, 1 AS partition"
    write(rig, f"SELECT {others}, '{rig.topic}' AS topic")
    first, second = rig.read(includeHeaders="true").orderBy("partition").collect()
    assert (first.partition, first.key, first.value) == (1, None, b"\xff") and not first.headers
    assert (second.partition, second.key, second.value) == (2, b"k", b"value")
    assert [(each.key, each.value) for each in second.headers] == [("h", b"\x01")]


@pytest.mark.kafkalite(partitions=3)
def test_keys_go_to_the_partitions_of_javas_producer_and_large_batches_arrive_once(rig: Rig) -> None:
    query = "SELECT CAST(id AS STRING) AS key, concat(CAST(id AS STRING), repeat('x', 2000)) AS value FROM range(20000)"
    write(rig, query, topic=rig.topic)
    rows = rig.read().select("key", "partition", functions.length("value").alias("size")).collect()
    assert sorted(int(row.key) for row in rows) == list(range(20000))
    assert all(row.partition == murmur2_partition(bytes(row.key), 3) for row in rows[:200])
    assert all(row["size"] == 2000 + len(row.key) for row in rows)


def test_stream_is_copied_to_a_topic(rig: Rig, collected: Collected, kafkalite_topic_factory) -> None:  # type: ignore[no-untyped-def]
    """Trap 9: Spark names the parameter `overwrite` of `streamWriter`."""
    target = kafkalite_topic_factory()
    rig.send(range(50))
    writer = rig.stream(startingOffsets="earliest", maxOffsetsPerTrigger="20").select("key", "value").writeStream
    options = {"kafka.bootstrap.servers": rig.broker.address, "topic": target}
    checkpoint = str(collected.checkpoint)
    for _ in range(2):
        query = writer.format("kafkalite").options(**options).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination(60)
    assert sorted(int(row.value) for row in rig.read(subscribe=target).collect()) == list(range(50))


def test_what_the_sink_cannot_write_is_named(rig: Rig) -> None:
    for query, mode, reason in (
        ("SELECT 1 AS value", "append", "column value has type int, expected binary or string"),
        ("SELECT 'x' AS key", "append", "column value is missing"),
        ("SELECT 'x' AS value", "overwrite", "a topic is a log; expected append"),
    ):
        with pytest.raises(PySparkException, match=reason):
            write(rig, query, mode, topic=rig.topic)
    with pytest.raises(PySparkException, match="a row has no topic"):
        write(rig, "SELECT 'x' AS value, CAST(NULL AS STRING) AS topic")
    assert rig.read().count() == 0
