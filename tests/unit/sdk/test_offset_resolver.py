"""How assigned partitions get valid positions."""

import pytest
from kafkalite_sdk.client.cluster_view import ClusterView, PartitionView, TopicView
from kafkalite_sdk.consumer.offsets.committed_offsets import CommittedOffsets
from kafkalite_sdk.consumer.offsets.leader_lookups import EpochLookups, OffsetLookups
from kafkalite_sdk.consumer.offsets.offset_reset import EARLIEST, LATEST, ResetPolicy
from kafkalite_sdk.consumer.offsets.offset_resolver import OffsetResolver
from kafkalite_sdk.consumer.offsets.positions import NO_POSITION, Positions

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, LogTruncationError, NoOffsetForPartitionError
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsResponse
from kafkalite.protocol.messages.offset_fetch import OffsetFetchResponse
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

A, B = (TopicPartition("t", number) for number in range(2))
OffsetsTopic = ListOffsetsResponse.ListOffsetsTopicResponse
EpochsTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
FetchTopic = OffsetFetchResponse.OffsetFetchResponseTopic


class Client:
    """A resolver and the brokers that answer it."""

    def __init__(self, policy=EARLIEST, *, group=True, epoch=4):
        self.view = ClusterView()
        topic = self.view.topics["t"] = TopicView("t")
        topic.partitions = [PartitionView(1, epoch)] * 2
        self.positions = Positions(policy)
        self.offsets = OffsetLookups(self.view, 0.0, 0)
        self.epochs = EpochLookups(self.view, 0.0)
        self.committed = CommittedOffsets("g", 0.0, 0.0) if group else None
        self.moved = []
        self.resolver = OffsetResolver(
            self.positions, self.view, self.offsets, self.epochs, self.committed, self.moved.extend
        )

    def assign(self, *partitions):
        self.positions.assign(partitions)
        self.resolver.advance(1000)
        return [self.positions.states[each] for each in partitions]

    def answer_committed(self, code=0, **offsets):
        (call,) = self.committed.requests(0.0)
        partitions = [
            FetchTopic.OffsetFetchResponsePartition(
                partition_index="ab".index(name), committed_offset=offset, committed_leader_epoch=epoch
            )
            for name, (offset, epoch) in offsets.items()
        ]
        topics = [FetchTopic(name="t", partitions=partitions)]
        self.committed.answered(call, OffsetFetchResponse(topics=topics, error_code=code), 0.0)
        self.resolver.advance(1000)

    def answer_offsets(self, code=0, **offsets):
        (call,) = self.offsets.requests(0.0, lambda _: True)
        partitions = [
            OffsetsTopic.ListOffsetsPartitionResponse(partition_index="ab".index(name), offset=offset, error_code=code)
            for name, offset in offsets.items()
        ]
        self.offsets.answered(call, ListOffsetsResponse(topics=[OffsetsTopic(name="t", partitions=partitions)]), 0.0)
        self.resolver.advance(1000)
        return [each.timestamp for each in call.request.topics[0].partitions]

    def answer_epoch(self, epoch, end, code=0):
        (call,) = self.epochs.requests(0.0, lambda _: True)
        ends = [EpochsTopic.EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end, error_code=code)]
        topics = [EpochsTopic(topic="t", partitions=ends)]
        self.epochs.answered(call, OffsetForLeaderEpochResponse(topics=topics), 0.0)
        self.resolver.advance(1000)


def test_committed_offset_is_the_position_and_others_are_reset():
    client = Client()
    a, b = client.assign(A, B)
    client.answer_committed(a=(7, -1), b=(-1, -1))
    assert a.fetchable(0) and a.position == 7
    assert client.answer_offsets(b=3) == [-2]
    assert b.fetchable(0) and b.position == 3


def test_consumer_without_group_is_reset_at_once():
    client = Client(LATEST, group=False)
    (a,) = client.assign(A)
    client.resolver.advance(1000)
    assert client.answer_offsets(a=9) == [-1] and a.position == 9


def test_reset_by_duration_uses_the_wall_time_and_falls_back_to_the_end():
    client = Client(ResetPolicy(-1, duration_ms=400), group=False)
    (a,) = client.assign(A)
    client.resolver.advance(1000)
    assert client.answer_offsets(a=-1) == [600]
    assert client.answer_offsets(a=9) == [-1] and a.position == 9


def test_missing_offset_without_policy_is_an_error_of_each_poll_until_a_seek():
    client = Client(None)
    (a,) = client.assign(A)
    for _ in range(2):
        client.answer_committed(a=(-1, -1))
        error = client.resolver.take_error()
        assert isinstance(error, NoOffsetForPartitionError) and "t-0" in str(error)
        assert client.resolver.take_error() is None
        client.resolver.advance(1000)
    client.positions.seek(a, 1)
    client.answer_committed(a=(5, -1))
    assert a.position == 1 and client.resolver.take_error() is None


def test_seek_ends_an_error_that_was_not_raised_yet():
    client = Client(None)
    (a,) = client.assign(A)
    client.answer_committed(a=(-1, -1))
    client.positions.seek(a, 1)
    assert client.resolver.take_error() is None


def test_reset_by_the_application_ends_an_error_that_was_not_raised_yet():
    client = Client(None)
    (a,) = client.assign(A)
    client.answer_committed(a=(-1, -1))
    client.positions.begin_reset(a, EARLIEST)
    client.resolver.advance(1000)
    assert client.answer_offsets(a=3) == [-2] and a.position == 3
    assert client.resolver.take_error() is None


def test_error_of_the_coordinator_is_raised_once_per_attempt():
    client = Client()
    client.assign(A)
    client.answer_committed(KafkaErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert client.resolver.take_error().code == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED
    client.resolver.advance(1000)
    client.answer_committed(a=(5, -1))
    assert client.positions.states[A].position == 5


def test_error_of_a_partition_that_was_unassigned_is_dropped():
    client = Client(None)
    client.assign(A)
    client.answer_committed(a=(-1, -1))
    client.positions.assign([])
    assert client.resolver.take_error() is None


def test_seek_during_a_reset_wins():
    client = Client(group=False)
    (a,) = client.assign(A)
    client.resolver.advance(1000)
    client.positions.seek(a, 50)
    client.answer_offsets(a=0)
    assert a.position == 50


def test_second_reset_during_a_reset_wins():
    client = Client(group=False)
    (a,) = client.assign(A)
    client.resolver.advance(1000)
    client.positions.begin_reset(a, LATEST)
    client.resolver.advance(1000)
    client.answer_offsets(a=0)
    assert a.position == NO_POSITION
    assert client.answer_offsets(a=8) == [-1] and a.position == 8


def test_partition_assigned_again_during_a_question_gets_an_answer_of_its_own():
    client = Client()
    client.assign(A)
    client.positions.assign([])
    (a,) = client.assign(A)
    (call,) = client.committed.requests(0.0)
    assert len(call.questions) == 2
    client.committed.lost(call, KafkaConnectionError("gone"), 0.0)
    client.answer_committed(a=(6, -1))
    assert a.position == 6


def test_position_with_an_epoch_is_validated_before_the_first_fetch():
    client = Client()
    (a,) = client.assign(A)
    client.answer_committed(a=(7, 2))
    assert not a.fetchable(0)
    client.answer_epoch(2, 7)
    assert a.fetchable(0) and a.position == 7 and not client.moved


def test_truncated_log_moves_the_position_to_the_end_of_the_epoch():
    client = Client()
    (a,) = client.assign(A)
    client.answer_committed(a=(7, 2))
    client.answer_epoch(1, 5)
    assert a.fetchable(0) and (a.position, a.leader_epoch) == (5, 1) and client.moved == [A]


def test_truncated_log_without_known_end_is_reset():
    client = Client()
    (a,) = client.assign(A)
    client.answer_committed(a=(7, 2))
    client.answer_epoch(-1, -1)
    assert client.answer_offsets(a=0) == [-2] and a.position == 0


def test_truncated_log_without_policy_is_an_error():
    client = Client(None)
    client.assign(A)
    client.answer_committed(a=(7, 2))
    client.answer_epoch(1, 5)
    error = client.resolver.take_error()
    assert isinstance(error, LogTruncationError) and "7" in str(error) and "5" in str(error)


def test_new_leader_epoch_validates_the_position_again():
    client = Client()
    (a,) = client.assign(A)
    client.answer_committed(a=(7, 2))
    client.answer_epoch(2, 9)
    client.resolver.metadata_changed()
    assert a.fetchable(0)
    client.view.topics["t"].partitions[0] = PartitionView(2, 5)
    client.resolver.metadata_changed()
    client.resolver.advance(1000)
    assert not a.fetchable(0)
    client.answer_epoch(2, 9)
    assert a.fetchable(0)


def test_broker_without_epoch_lookups_leaves_the_position_as_it_is():
    client = Client()
    (a,) = client.assign(A)
    client.answer_committed(a=(7, 2))
    client.answer_epoch(-1, -1, KafkaErrorCode.UNSUPPORTED_VERSION)
    assert a.fetchable(0) and a.position == 7


def test_broker_without_leader_epochs_is_not_asked():
    client = Client(epoch=-1)
    (a,) = client.assign(A)
    client.answer_committed(a=(7, 2))
    assert a.fetchable(0) and not list(client.epochs.requests(0.0, lambda _: True))


@pytest.mark.parametrize("lookup", ["offsets", "epochs"])
def test_error_of_a_leader_is_raised(lookup):
    client = Client()
    client.assign(A)
    client.answer_committed(a=(-1, -1) if lookup == "offsets" else (7, 2))
    code = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
    if lookup == "offsets":
        client.answer_offsets(code, a=-1)
    else:
        client.answer_epoch(-1, -1, code)
    assert client.resolver.take_error().code == code
