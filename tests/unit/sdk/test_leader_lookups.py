"""Lookups of offsets and leader epochs: grouped by leader, retried, ended once."""

import pytest
from kafkalite_sdk.client.cluster_view import NO_LEADER, ClusterView, PartitionView, TopicView
from kafkalite_sdk.consumer.offsets.leader_lookups import EpochEnd, EpochLookups, OffsetLookups
from kafkalite_sdk.values import ListedOffset

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, error_for
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsResponse
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

A, B, C = (TopicPartition("t", number) for number in range(3))
OffsetsTopic = ListOffsetsResponse.ListOffsetsTopicResponse
EpochsTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


def view_of(*leaders):
    view = ClusterView()
    topic = view.topics["t"] = TopicView("t")
    topic.partitions = [PartitionView(leader, 4) for leader in leaders]
    return view


def offsets_response(**outcomes):
    partitions = [
        OffsetsTopic.ListOffsetsPartitionResponse(
            partition_index="abc".index(name), error_code=code, offset=offset, timestamp=9, leader_epoch=2
        )
        for name, (code, offset) in outcomes.items()
    ]
    return ListOffsetsResponse(topics=[OffsetsTopic(name="t", partitions=partitions)])


def requests(lookups, now=0.0, usable=lambda _: True):
    return list(lookups.requests(now, usable))


@pytest.fixture
def found():
    return []


def test_each_leader_gets_one_request_with_all_its_partitions(found):
    lookups = OffsetLookups(view_of(1, 2, 1), 0.1, isolation_level=1)
    for each in (A, B, C):
        lookups.find(each, -1, found.append)
    first, second = requests(lookups)
    assert (first.node, second.node) == (1, 2) and list(first.lookups) == [A, C]
    assert first.request.isolation_level == 1
    (topic,) = first.request.topics
    assert [(each.partition_index, each.timestamp, each.current_leader_epoch) for each in topic.partitions] == [
        (0, -1, 4),
        (2, -1, 4),
    ]
    assert not requests(lookups)
    lookups.answered(first, offsets_response(a=(0, 5), c=(0, 6)), 0.0)
    assert found == [ListedOffset(5, 9, 2), ListedOffset(6, 9, 2)]


def test_two_lookups_of_a_partition_leave_one_after_another(found):
    lookups = OffsetLookups(view_of(1), 0.1, 0)
    lookups.find(A, -1, found.append)
    lookups.find(A, -2, found.append)
    (call,) = requests(lookups)
    assert call.request.topics[0].partitions[0].timestamp == -1
    lookups.answered(call, offsets_response(a=(0, 5)), 0.0)
    (call,) = requests(lookups)
    assert call.request.topics[0].partitions[0].timestamp == -2


@pytest.mark.parametrize(
    "code",
    [KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, KafkaErrorCode.OFFSET_NOT_AVAILABLE, KafkaErrorCode.REQUEST_TIMED_OUT],
)
def test_retriable_error_is_retried_after_the_backoff_with_new_metadata(found, code):
    lookups = OffsetLookups(view_of(1), 0.1, 0)
    lookups.find(A, -1, found.append)
    (call,) = requests(lookups)
    lookups.answered(call, offsets_response(a=(code, -1)), 1.0)
    assert lookups.stale_topics == {"t"} and not found and not requests(lookups, 1.05)
    assert lookups.wake_at(1.05) == pytest.approx(1.1)
    assert requests(lookups, 1.1)


def test_permanent_error_names_the_partition(found):
    lookups = OffsetLookups(view_of(1), 0.1, 0)
    lookups.find(A, -1, found.append)
    (call,) = requests(lookups)
    lookups.answered(call, offsets_response(a=(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)), 0.0)
    assert found[0].code == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED and "t-0" in str(found[0])
    assert not requests(lookups, 9.0)


def test_partition_that_the_response_omits_fails(found):
    lookups = OffsetLookups(view_of(1), 0.1, 0)
    lookups.find(A, -1, found.append)
    (call,) = requests(lookups)
    lookups.answered(call, offsets_response(), 0.0)
    assert found[0].code == KafkaErrorCode.UNKNOWN_SERVER_ERROR


def test_lost_request_is_retried_and_a_permanent_failure_ends_it(found):
    lookups = OffsetLookups(view_of(1), 0.1, 0)
    lookups.find(A, -1, found.append)
    (call,) = requests(lookups)
    lookups.lost(call, KafkaConnectionError("gone"), 1.0)
    (call,) = requests(lookups, 2.0)
    lookups.lost(call, error_for(KafkaErrorCode.UNSUPPORTED_VERSION), 2.0)
    assert [each.code for each in found] == [KafkaErrorCode.UNSUPPORTED_VERSION]


def test_cancelled_lookup_is_not_reported(found):
    lookups = OffsetLookups(view_of(1), 0.1, 0)
    lookup = lookups.find(A, -1, found.append)
    (call,) = requests(lookups)
    lookups.cancel(lookup)
    lookups.answered(call, offsets_response(a=(0, 5)), 0.0)
    assert not found and not requests(lookups, 9.0)


def test_partition_without_leader_delays_no_other(found):
    lookups = OffsetLookups(view_of(NO_LEADER, 1), 0.1, 0)
    lookups.find(A, -1, found.append)
    lookups.find(B, -1, found.append)
    lookups.find(TopicPartition("unknown", 0), -1, found.append)
    (call,) = requests(lookups)
    assert list(call.lookups) == [B] and lookups.stale_topics == {"t", "unknown"}


def test_unusable_broker_gets_no_request(found):
    lookups = OffsetLookups(view_of(1), 0.1, 0)
    lookups.find(A, -1, found.append)
    assert not requests(lookups, usable=lambda _: False)
    assert requests(lookups)


def test_old_message_format_has_no_offset_for_a_time(found):
    lookups = OffsetLookups(view_of(1), 0.1, 0)
    lookups.find(A, 1000, found.append)
    (call,) = requests(lookups)
    lookups.answered(call, offsets_response(a=(KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1)), 0.0)
    assert found[0].offset == -1


def test_end_of_a_leader_epoch(found):
    lookups = EpochLookups(view_of(1, 1), 0.1)
    lookups.find(A, 3, found.append)
    lookups.find(B, 2, found.append)
    (call,) = requests(lookups)
    (topic,) = call.request.topics
    assert [(each.partition, each.leader_epoch, each.current_leader_epoch) for each in topic.partitions] == [
        (0, 3, 4),
        (1, 2, 4),
    ]
    ends = [
        EpochsTopic.EpochEndOffset(partition=0, leader_epoch=3, end_offset=70),
        EpochsTopic.EpochEndOffset(partition=1, error_code=KafkaErrorCode.FENCED_LEADER_EPOCH),
    ]
    lookups.answered(call, OffsetForLeaderEpochResponse(topics=[EpochsTopic(topic="t", partitions=ends)]), 0.0)
    assert found == [EpochEnd(3, 70)]
    (call,) = requests(lookups, 1.0)
    assert list(call.lookups) == [B]
