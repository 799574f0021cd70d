"""Validates partitions and offsets that an application passes to a consumer."""

from collections.abc import Iterable

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk.values import OffsetAndMetadata


def check_count(name: str, value: object) -> None:
    """Raise TypeError or ValueError unless a value is an integer above 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, expected an integer above 0")
    if value < 1:
        raise ValueError(f"{name} is {value}, expected a number above 0")


def topics_of(topics: str | Iterable[str]) -> list[str]:
    """Validate names of topics; a single one is accepted, too."""
    names = [topics] if isinstance(topics, str) or not isinstance(topics, Iterable) else list(topics)
    for each in names:
        if not isinstance(each, str):
            raise TypeError(f"{each!r} is not the name of a topic; pass a str, or a list of str")
    return names


def partitions_of(values: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Validate partitions; a single one is rejected, because its fields are no partitions."""
    if isinstance(values, TopicPartition):
        raise TypeError(f"{values!r} is a single partition; pass a list: [TopicPartition(topic, number)]")
    return list(map(partition_of, values))


def partition_of(value: TopicPartition) -> TopicPartition:
    """Validate a partition; a tuple of topic and number is accepted."""
    if (
        not isinstance(value, tuple)
        or len(value) != 2
        or not isinstance(value[0], str)
        or not isinstance(value[1], int)
    ):
        hint = "; pass several as seek_to_end(*partitions)" if isinstance(value, list | set | frozenset) else ""
        raise TypeError(f"{value!r} is not a partition; pass TopicPartition(topic, number){hint}")
    if value[1] < 0:
        raise ValueError(f"partition {value[1]} of topic {value[0]} is negative")
    return TopicPartition(*value)


def offset_of(partition: TopicPartition, value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    offset = OffsetAndMetadata(value) if isinstance(value, int) else value
    if not isinstance(offset, OffsetAndMetadata):
        raise TypeError(f"the offset of {partition} is {value!r}, expected a number or OffsetAndMetadata(offset)")
    if offset.offset < 0:
        raise ValueError(f"offset {offset.offset} of {partition} is negative")
    return offset


def ignore_error(_: KafkaError | None) -> None:
    pass
