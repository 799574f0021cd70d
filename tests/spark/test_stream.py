"""Streams: restarts from the checkpoint, limits, AvailableNow, new partitions, lost ranges, topics created again."""

import json
from typing import Any

import pytest
from kafkalite_sdk import TopicPartition
from kafkalite_sdk.blocking import Producer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from pyspark_kafkalite.options import source_options
from pyspark_kafkalite.stream_reader import StreamReader

from tests.spark.rig import Collected, Rig


def expected(numbers: range, partition: int = 0) -> list[tuple[int, int, int]]:
    return [(partition, number, number) for number in numbers]


def checkpoint_offsets(collected: Collected, batch: int) -> dict[str, Any]:
    """The end of a micro-batch as Spark has written it."""
    found: dict[str, Any] = json.loads((collected.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
    return found


def test_available_now_ends_at_the_log_of_a_topic_that_was_created_again(rig: Rig) -> None:
    """Else the offset of the former topic would be the end, and later records would be skipped."""
    rig.send(range(100))
    options = {**rig.options, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    reader = StreamReader(source_options(options, streaming=True), StructType().add("value", "binary"))
    first = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    rig.admin.topics.delete(rig.topic).check()
    rig.broker.create_topic(rig.topic)
    rig.send(range(3))
    for _ in range(2):
        assert reader.latestOffset(first, ReadAllAvailable())[rig.topic] == {"0": 3}
        rig.send(range(3, 5))
    reader.stop()


@pytest.mark.kafkalite(partitions=2)
def test_query_continues_from_its_checkpoint(rig: Rig, collected: Collected) -> None:
    rig.send(range(10))
    collected.run(rig.stream(startingOffsets="earliest"))
    assert collected.rows == expected(range(10))
    rig.send(range(10, 30))
    rig.send(range(5), partition=1)
    collected.run(rig.stream(startingOffsets="earliest"))
    collected.run(rig.stream(startingOffsets="earliest"))
    assert collected.rows == expected(range(30)) + expected(range(5), 1) and len(collected.batches) == 2
    assert checkpoint_offsets(collected, 1)[rig.topic] == {"0": 30, "1": 5}


def test_first_micro_batch_is_repeated_with_the_same_range_after_a_restart(rig: Rig) -> None:
    """`latest` is another offset after the restart; the end of the first micro-batch contains the start."""
    options = source_options({**rig.options, "startingOffsets": "latest"}, streaming=True)
    schema = StructType.fromDDL("value binary")
    rig.send(range(5))
    reader = StreamReader(options, schema)
    start = reader.initialOffset()
    rig.send(range(5, 9))
    end = reader.latestOffset(start, ReadAllAvailable())
    rig.send(range(9, 12))
    restarted = StreamReader(options, schema)
    for begin in (start, restarted.initialOffset()):
        (task,) = restarted.partitions(begin, end)
        assert [each[2:] for each in task.value.ranges] == [(5, 9)]
    following = restarted.latestOffset(end, ReadAllAvailable())
    (task,) = restarted.partitions(end, following)
    assert [each[2:] for each in task.value.ranges] == [(9, 12)] and "#start" not in following
    assert restarted.latestOffset(following, ReadAllAvailable()) == following


def test_query_that_fails_in_its_first_micro_batch_loses_nothing(rig: Rig, collected: Collected) -> None:
    rig.send(range(5))
    collected.fails = lambda batch: True
    with pytest.raises(StreamingQueryException, match="the test fails this micro-batch"):
        collected.run(rig.stream())
    rig.send(range(5, 9))
    collected.fails = lambda batch: False
    collected.run(rig.stream())
    assert collected.rows == expected(range(5, 9))


@pytest.mark.kafkalite(partitions=2)
def test_limits_share_the_backlog_and_available_now_reads_all(rig: Rig, collected: Collected) -> None:
    rig.send(range(90))
    rig.send(range(9), partition=1)
    collected.run(rig.stream(startingOffsets="earliest", maxOffsetsPerTrigger="22"))
    assert collected.rows == expected(range(90)) + expected(range(9), 1)
    sizes = [len(batch) for batch in collected.batches]
    assert max(sizes) <= 22 and len(sizes) == 5
    assert all({row[0] for row in batch} == {0, 1} for batch in collected.batches[:4])


def test_bytes_limit_a_micro_batch(rig: Rig, collected: Collected) -> None:
    for number in range(40):
        rig.producer.send(rig.topic, b"%d" % number, headers=[("pad", bytes(1000))])
    rig.producer.flush()
    collected.run(rig.stream(startingOffsets="earliest", maxBytesPerTrigger="10k"))
    assert collected.rows == expected(range(40)) and 4 <= len(collected.batches) <= 6


def test_available_now_ignores_records_that_arrive_later(rig: Rig, collected: Collected) -> None:
    rig.send(range(10))
    collected.fails = lambda batch: rig.send(range(10, 15)) is not None if batch == 0 else False
    collected.run(rig.stream(startingOffsets="earliest", maxOffsetsPerTrigger="5"))
    assert collected.rows == expected(range(10))


def test_micro_batch_waits_for_the_least_number_of_records(rig: Rig, collected: Collected) -> None:
    """Traps 12 and 15: progress shows the log end only; the time of the last one is kept by the planner process."""
    rig.send(range(3))
    query = collected.start(
        rig.stream(startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1h"),
        processingTime="0 seconds",
    )
    try:
        query.processAllAvailable()
        rig.send(range(3, 8))
        reported = rig.topic + '": {"0": 8}'
        while reported not in str(query.lastProgress and query.lastProgress["sources"][0]["latestOffset"]):
            assert query.isActive
            query.awaitTermination(0.05)
        assert [len(batch) for batch in collected.batches] == [3]
        rig.send(range(8, 13))
        while len(collected.batches) < 2:
            assert query.isActive
            query.awaitTermination(0.05)
    finally:
        query.stop()
    assert [len(batch) for batch in collected.batches] == [3, 10] and collected.rows == expected(range(13))


def test_new_partitions_are_read_from_their_first_record(rig: Rig, collected: Collected) -> None:
    rig.send(range(3))
    collected.run(rig.stream(startingOffsets="earliest"))
    rig.admin.topics.create_partitions({rig.topic: 3}).check()
    with Producer(rig.broker.address) as later:  # the other one does not know the partition yet
        for number in range(4):
            later.send(rig.topic, b"%d" % number, partition=2)
    collected.run(rig.stream())
    assert collected.rows == expected(range(3)) + expected(range(4), 2)


def test_retention_that_overtakes_the_query_is_named(rig: Rig, collected: Collected) -> None:
    rig.send(range(5))
    collected.run(rig.stream(startingOffsets="earliest"))
    rig.send(range(5, 20))
    rig.admin.partitions.delete_records({TopicPartition(rig.topic, 0): 12}).check()
    with pytest.raises(StreamingQueryException, match=f"{rig.topic}-0: offsets 5 to 11 were deleted by retention"):
        collected.run(rig.stream())
    collected.run(rig.stream(failOnDataLoss="false"))
    assert collected.rows == expected(range(5)) + expected(range(12, 20))


def test_topic_that_was_created_again_is_reported(rig: Rig, collected: Collected) -> None:
    """Its offsets fit, so that only the id of the topic shows it."""
    rig.send(range(5))
    collected.run(rig.stream(startingOffsets="earliest"))
    rig.admin.topics.delete(rig.topic).check()
    rig.broker.create_topic(rig.topic)
    rig.send(range(100, 120))
    with pytest.raises(StreamingQueryException, match=f"topic {rig.topic} was deleted and created again"):
        collected.run(rig.stream())
    collected.run(rig.stream(failOnDataLoss="false"))
    assert [row[1:] for row in collected.batches[-1]] == [(number - 100, number) for number in range(100, 120)]


def test_query_without_new_records_has_no_new_micro_batch(rig: Rig, collected: Collected) -> None:
    """Trap 10: offsets with another order of keys would be new data in each trigger."""
    rig.send(range(3))
    query = collected.start(rig.stream(startingOffsets="earliest"), processingTime="0 seconds")
    try:
        query.processAllAvailable()
        for _ in range(3):
            query.processAllAvailable()
        assert len(collected.batches) == 1
    finally:
        query.stop()


def test_options_of_batches_are_rejected_in_a_stream(rig: Rig, collected: Collected) -> None:
    with pytest.raises(StreamingQueryException, match="option endingOffsets: it is for batches"):
        collected.run(rig.stream(endingOffsets="latest"))


def test_real_time_trigger_is_rejected(rig: Rig, collected: Collected) -> None:
    """Trap 13: PySpark's API has no real-time mode."""
    with pytest.raises(PySparkException, match=r"(?i)real.?time"):
        collected.run(rig.stream(), realTime="5 minutes")
