"""The blocking reader of ranges, and the segments of partitions, on a real broker."""

import pytest
from kafkalite_sdk import TopicPartition
from kafkalite_sdk.blocking import Admin, ColumnReader, Producer

from kafkalite.errors import ClientUseError, OffsetRangeError
from kafkalite.testing.thread import BrokerThread
from tests.kit.arrow_reader import read_rows

SEGMENTS = pytest.mark.kafkalite(configs={"segment.bytes": "1048576"})


def fill(producer: Producer, topic: str, count: int) -> None:
    for number in range(count):
        producer.send(topic, b"%06d" % number + bytes(94))
    producer.flush()


def test_batches_of_a_range_are_in_order(
    kafkalite_broker: BrokerThread, kafkalite_topic: str, kafkalite_producer: Producer
) -> None:
    fill(kafkalite_producer, kafkalite_topic, 2000)
    with ColumnReader(kafkalite_broker.address, max_partition_fetch_bytes=20_000) as reader:
        batches = list(reader.read(kafkalite_topic, 0, 3, 1999, columns=["offset"], batch_bytes=2000))
        assert [row[0] for batch in batches for row in read_rows(batch)] == list(range(3, 1999)) and len(batches) > 5
        left = reader.read(kafkalite_topic, 0, 0, 2000, batch_bytes=2000)
        next(left)
        left.close()  # type: ignore[attr-defined]
        assert sum(map(len, reader.read(kafkalite_topic, 0, 0, 2000))) == 2000


def test_error_follows_the_batches_before_it(
    kafkalite_broker: BrokerThread, kafkalite_topic: str, kafkalite_producer: Producer
) -> None:
    fill(kafkalite_producer, kafkalite_topic, 50)
    with ColumnReader(kafkalite_broker.address) as reader:
        batches = reader.read(kafkalite_topic, 0, 0, 60, timeout=3.0)
        assert len(next(batches)) == 50
        with pytest.raises(OffsetRangeError, match=r"offsets 0 to 59 .* cannot be read at 50"):
            next(batches)


def test_range_belongs_to_the_topic_with_its_id(
    kafkalite_broker: BrokerThread, kafkalite_topic: str, kafkalite_producer: Producer
) -> None:
    """Records of a topic of the same name that was created later are others."""
    fill(kafkalite_producer, kafkalite_topic, 5)
    with Admin(kafkalite_broker.address) as admin, ColumnReader(kafkalite_broker.address) as reader:
        topic_id = admin.topics.describe(kafkalite_topic)[kafkalite_topic].topic_id
        assert sum(map(len, reader.read(kafkalite_topic, 0, 0, 5, topic_id=topic_id))) == 5
        admin.topics.delete(kafkalite_topic).check()
        kafkalite_broker.create_topic(kafkalite_topic)
        fill(kafkalite_producer, kafkalite_topic, 5)
    with (
        ColumnReader(kafkalite_broker.address) as reader,
        pytest.raises(OffsetRangeError, match="deleted and created again"),
    ):
        list(reader.read(kafkalite_topic, 0, 0, 5, topic_id=topic_id))


def test_reader_that_is_not_started_or_closed_says_so(kafkalite_broker: BrokerThread) -> None:
    reader = ColumnReader(kafkalite_broker.address)
    with pytest.raises(ClientUseError, match="is not started"):
        next(reader.read("orders", 0, 0, 1))
    with reader:
        assert list(reader.read("orders", 0, 3, 3)) == []
    with pytest.raises(ClientUseError, match="was closed"):
        next(reader.read("orders", 0, 0, 1))


@SEGMENTS
def test_segments_have_their_offsets_and_sizes(
    kafkalite_broker: BrokerThread, kafkalite_topic: str, kafkalite_producer: Producer
) -> None:
    for _ in range(50):
        kafkalite_producer.send(kafkalite_topic, bytes(100_000)).result()
    first, absent = TopicPartition(kafkalite_topic, 0), TopicPartition(kafkalite_topic, 7)
    with Admin(kafkalite_broker.address) as admin:
        found = admin.partitions.segments({first: 0})[first]
        bases = [each.base_offset for each in found.segments]
        assert (found.log_start_offset, found.log_end_offset) == (0, 50)
        assert len(bases) > 3 and bases == sorted(set(bases)) and bases[0] == 0
        assert sum(each.size for each in found.segments) > 5_000_000
        later = admin.partitions.segments({first: bases[2] + 1})[first]
        assert [each.base_offset for each in later.segments] == bases[2:]
        assert list(admin.partitions.segments({first: 0, absent: 0}).errors) == [absent]
