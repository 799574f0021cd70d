"""Offsets that the log does not have any more are named."""

from kafkalite_sdk import TopicPartition
from pyspark_kafkalite.losses import available, find_recreated, recreated_text
from pyspark_kafkalite.planner import OffsetRange

NAME = TopicPartition("orders", 3)


def found(start: int, end: int, earliest: int, latest: int) -> tuple[list[OffsetRange], list[str]]:
    return available({NAME: start}, {NAME: end}, {NAME: earliest}, {NAME: latest})


def test_range_that_is_in_the_log_is_read() -> None:
    assert found(5, 9, 0, 9) == ([OffsetRange("orders", 3, 5, 9)], [])
    assert found(5, 5, 7, 9) == ([], [])


def test_offsets_that_retention_has_deleted_are_named() -> None:
    ranges, (loss,) = found(5, 90, 20, 100)
    assert ranges == [OffsetRange("orders", 3, 20, 90)] and "orders-3: offsets 5 to 19 were deleted" in loss
    ranges, (loss,) = found(5, 10, 20, 100)
    assert ranges == [] and "offsets 5 to 9 were deleted" in loss


def test_log_that_ends_before_the_range_is_named() -> None:
    ranges, (loss,) = found(5, 90, 0, 50)
    assert ranges == [OffsetRange("orders", 3, 5, 50)] and "the log ends at offset 50, but 90 was expected" in loss
    ranges, (loss,) = found(60, 60, 0, 50)
    assert ranges == [] and "the log ends at offset 50, but 60 was expected" in loss


def test_deleted_partition_is_named() -> None:
    ranges, (loss,) = available({NAME: 5}, {NAME: 9}, {}, {})
    assert ranges == [] and "orders-3: offsets 5 to 8 are lost, as the partition was deleted" in loss


def test_topic_with_another_id_was_created_again() -> None:
    assert find_recreated({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "x"}) == ["b"]
    text = recreated_text("b", {TopicPartition("a", 0): 9, TopicPartition("b", 0): 7})
    assert (
        text
        == "topic b was deleted and created again; of the former topic, records were read: partition 0 up to offset 7"
    )
