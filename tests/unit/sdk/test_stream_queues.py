"""The queues of streams: which record is complete or returned again after a seek, and which partitions have a queue."""

from types import SimpleNamespace

from kafkalite_sdk.consumer.offsets.offset_reset import LATEST
from kafkalite_sdk.consumer.offsets.positions import Positions
from kafkalite_sdk.consumer.streams.queues import StreamQueues

from kafkalite.model import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_record_from_before_a_seek_completes_and_returns_no_record_with_its_offset():
    positions = Positions(LATEST)
    positions.assign([A])
    queues = StreamQueues(1, positions, high=10)
    (stream,) = queues.streams
    before, after = (SimpleNamespace(topic="t", partition=0, offset=5) for _ in range(2))
    queues.distribute([before])
    assert stream.take() is before
    queues.clear([A])  # a seek
    queues.distribute([after])
    assert stream.take() is after
    queues.return_record(before)
    assert queues.complete(before) is None
    assert queues.bounds() == {A: after} and stream.size == 1
    queues.return_record(after)
    assert stream.take() is after and queues.complete(after) is not None
    assert queues.bounds() == {} and stream.size == 0


def test_a_partition_gets_a_queue_although_a_stream_is_released_after_its_assignment():
    """As in a simulation: the last handler of a held stream ended between an assignment and the next poll."""
    positions = Positions(LATEST)
    positions.assign([A])
    queues = StreamQueues(1, positions, high=1)
    (stream,) = queues.streams
    queues.distribute([SimpleNamespace(topic="t", partition=0, offset=5)])
    record = stream.take()
    assert stream.held
    positions.assign([A, B])
    queues.complete(record)
    assert queues.release_if_low(stream) and not stream.held
    assert queues.distribute([SimpleNamespace(topic="t", partition=1, offset=0)]) == [stream]
    assert stream.take() is not None
