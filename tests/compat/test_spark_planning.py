"""What the planner of the Spark source asks a broker: partitions, positions, and where the bytes are. Without Spark."""

from collections.abc import Callable

import pytest
from kafkalite_sdk import TopicPartition
from kafkalite_sdk.blocking import Producer
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.options import source_options
from pyspark_kafkalite.planner import OffsetRange, SplitLimits, plan

VALUE = bytes(10_000)


def cluster(address: str, **options: str) -> Cluster:
    return Cluster(source_options({"kafka.bootstrap.servers": address, **options}, streaming=False))


def test_sizes_of_partitions_divide_them(address: str, new_topic: Callable[..., str]) -> None:
    """kafkalite lists segments, Apache Kafka reports the size of each partition."""
    topic = new_topic(partitions=3, **{"segment.bytes": "1048576", "retention.ms": "-1"})  # the records are of 2023
    with Producer(address, compression_type="none") as producer:
        for number in range(400):
            producer.send(topic, VALUE, partition=0, timestamp_ms=1_700_000_000_000 + number)
            producer.send(topic, b"x", partition=1, timestamp_ms=1_700_000_000_000 + number)
    planner = cluster(address, subscribe=topic)
    try:
        found = planner.partitions()
        assert found.partitions == tuple(TopicPartition(topic, index) for index in range(3))
        earliest, latest = planner.earliest(found.partitions), planner.latest(found.partitions)
        assert list(earliest.values()) == [0, 0, 0] and list(latest.values()) == [400, 400, 0]
        ranges = [OffsetRange(*each, 0, latest[each]) for each in found.partitions]
        layouts = planner.layouts(ranges)
        large, small = (layouts[TopicPartition(topic, index)].size(0, 400) for index in (0, 1))
        assert 4_000_000 < large < 4_300_000 and 400 < small < 40_000
        splits = plan(ranges, layouts, SplitLimits(1 << 20))
        holding = [{each.partition for each in split.ranges} for split in splits]
        assert [sum(index in each for each in holding) for index in range(3)] in ([4, 1, 0], [5, 1, 0])
        assert sum(each.end - each.start for split in splits for each in split.ranges) == 800
        since = source_options(
            {"kafka.bootstrap.servers": address, "subscribe": topic, "startingTimestamp": "1700000000300"},
            streaming=False,
        ).starting
        two = [TopicPartition(topic, index) for index in range(2)]
        assert planner.resolve(since, two, None) == dict.fromkeys(two, 300)
        with pytest.raises(OptionError, match=f"{topic}-2 have no record at that time or later"):
            planner.resolve(since, found.partitions, None)
    finally:
        close_clients()


def test_pattern_selects_topics(address: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    try:
        assert [each.topic for each in cluster(address, subscribePattern=topic[:-1] + ".").partitions().partitions] == [
            topic,
            topic,
        ]
        with pytest.raises(OptionError, match=f"option assign: {topic}-7 do not exist"):
            cluster(address, assign=f'{{"{topic}":[1,7]}}').partitions()
    finally:
        close_clients()
