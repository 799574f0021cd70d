"""The fetcher: damaged records, errors of partitions and requests, new leaders, replicas."""

import pytest
from kafkalite_sdk.consumer.offsets.offset_reset import EARLIEST

from kafkalite.errors import CorruptRecordError, DecodeError, KafkaConnectionError, KafkaError
from kafkalite.protocol.messages.fetch import FetchResponse
from tests.unit.sdk.fetch_rig import NAMES, Code, PartitionData, Rig, data, failed, offset, partitions
from tests.unit.sdk.test_fetched_records import batch

# ---- errors ---------------------------------------------------------------------------------------------------------


def test_records_before_damage_come_first_and_other_partitions_continue():
    rig = Rig(1, 1)
    bad = bytearray(batch(1, b"b"))
    bad[-1] ^= 1
    rig.answer(rig.request(), data(batch(0, b"a") + bytes(bad) + batch(2, b"c"), 0))
    assert rig.take() == [(0, 0)]
    with pytest.raises(CorruptRecordError) as caught:
        rig.take()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 1)
    call = rig.request()
    rig.answer(call, data(batch(0, b"a"), 1))
    assert rig.take() == [(1, 0)]
    with pytest.raises(CorruptRecordError):
        rig.take()
    assert rig.state().position == 1
    rig.positions.seek(rig.state(), caught.value.next_offset)
    call = rig.request()
    assert offset(call) == 2
    rig.answer(call, data(bytes(bad) + batch(2, b"c"), 0))
    assert rig.take() == [(0, 2)]


def test_an_error_behind_records_of_other_partitions_is_raised_by_the_next_take():
    rig = Rig(1, 1)
    rig.answer(rig.request(), data(batch(0, b"a"), 0), failed(Code.TOPIC_AUTHORIZATION_FAILED, 1))
    assert rig.take() == [(0, 0)]
    with pytest.raises(KafkaError, match="orders-1 at offset 0") as caught:
        rig.take()
    assert caught.value.code == Code.TOPIC_AUTHORIZATION_FAILED
    assert rig.take() == []
    rig.now += 1
    assert sorted(partitions(rig.request())) == [0, 1]


def test_offset_out_of_range_resets_by_the_policy():
    rig = Rig(1)
    rig.answer(rig.request(), failed(Code.OFFSET_OUT_OF_RANGE))
    assert rig.state().reset is EARLIEST and rig.requests() == []


def test_offset_out_of_range_without_a_policy_is_raised():
    rig = Rig(1, policy=None)
    rig.answer(rig.request(), failed(Code.OFFSET_OUT_OF_RANGE))
    with pytest.raises(KafkaError, match="orders-0 at offset 0") as caught:
        rig.take()
    assert caught.value.code == Code.OFFSET_OUT_OF_RANGE and rig.state().position == 0


def test_buffered_records_come_before_an_offset_out_of_range():
    rig = Rig(1)
    rig.answer(rig.request(), data(batch(0, b"a")))
    rig.answer(rig.request(), failed(Code.OFFSET_OUT_OF_RANGE))
    assert rig.state().reset is None and rig.take() == [(0, 0)]
    rig.now += 1
    rig.answer(rig.request(), failed(Code.OFFSET_OUT_OF_RANGE))
    assert rig.state().reset is EARLIEST


@pytest.mark.parametrize("whole", [True, False], ids=["requests", "a partition"])
def test_thousands_of_failures_in_a_row_keep_the_longest_pause(whole):
    rig = Rig(1)
    for _ in range(1100):
        if whole:
            rig.fetcher.lost(rig.request(), KafkaConnectionError("refused"), rig.now)
        else:
            rig.answer(rig.request(), failed(Code.NOT_LEADER_OR_FOLLOWER))
        rig.now += 1.0
    assert offset(rig.request()) == 0


def test_a_log_that_the_broker_cannot_read_is_raised_and_tried_again():
    rig = Rig(1)
    rig.answer(rig.request(), failed(Code.CORRUPT_MESSAGE))
    with pytest.raises(CorruptRecordError) as caught:
        rig.take()
    assert (caught.value.offset, caught.value.next_offset) == (0, 1)
    rig.now += 1
    assert offset(rig.request()) == 0


@pytest.mark.parametrize(
    ("code", "stale"),
    [
        (Code.NOT_LEADER_OR_FOLLOWER, True),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, True),
        (Code.UNKNOWN_TOPIC_ID, True),
        (Code.INCONSISTENT_TOPIC_ID, True),
        (Code.KAFKA_STORAGE_ERROR, True),
        (Code.FENCED_LEADER_EPOCH, True),
        (Code.UNKNOWN_LEADER_EPOCH, True),
        (Code.OFFSET_NOT_AVAILABLE, False),
        (Code.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_retriable_errors_are_tried_again_after_a_pause_that_grows(code, stale):
    rig = Rig(1)
    for pause in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        rig.answer(rig.request(), failed(code))
        assert rig.take() == [] and bool(rig.fetcher.stale_topics) is stale
        assert rig.requests() == [] and rig.fetcher.wake_at() == pytest.approx(rig.now + pause)
        rig.now += pause + 0.001
    rig.answer(rig.request())
    assert offset(rig.request()) == 0


def test_a_new_leader_ends_the_pause():
    rig = Rig(1)
    rig.answer(rig.request(), failed(Code.NOT_LEADER_OR_FOLLOWER))
    assert rig.requests() == []
    rig.metadata(2, epoch=2)
    assert rig.request().node == 2


def test_the_leader_in_a_response_is_used_at_once():
    rig = Rig(1)
    leader = PartitionData.LeaderIdAndEpoch(leader_id=9, leader_epoch=4)
    endpoint = FetchResponse.NodeEndpoint(node_id=9, host="new", port=9)
    call = rig.request()
    rig.answer(call, failed(Code.NOT_LEADER_OR_FOLLOWER, current_leader=leader), node_endpoints=[endpoint])
    call = rig.request()
    assert call.node == 9 and call.partitions[NAMES[0]].leader_epoch == 4
    assert rig.view.brokers[9].host == "new" and not rig.fetcher.stale_topics


def test_a_new_leader_epoch_drops_records_of_the_former_leader():
    """They may be behind a truncation (KIP-320)."""
    rig = Rig(1)
    rig.answer(rig.request(), data(batch(0, b"a")))
    call = rig.request()
    rig.metadata(2, epoch=2)
    assert not rig.fetcher.has_records and rig.fetcher.buffered_bytes == 0
    rig.answer(call, data(batch(1, b"b")))
    assert rig.take() == []
    assert offset(rig.request()) == 0


def test_a_diverging_epoch_validates_the_position():
    rig = Rig(1)
    rig.answer(rig.request(), data(batch(0, b"a")))
    rig.take()
    diverging = PartitionData.EpochEndOffset(epoch=3, end_offset=0)
    rig.answer(rig.request(), data(diverging_epoch=diverging))
    assert rig.state().validating and rig.requests() == []


def test_a_lost_request_is_sent_again_after_a_pause():
    rig = Rig(1)
    for pause in (0.1, 0.2, 0.4):
        rig.fetcher.lost(rig.request(), KafkaConnectionError("lost"), rig.now)
        assert rig.requests() == [] and rig.fetcher.wake_at() == pytest.approx(rig.now + pause)
        assert rig.fetcher.stale_topics == {"orders"} and rig.take() == []
        rig.now += pause + 0.001
    rig.answer(rig.request())
    assert rig.request().request.session_epoch == 0


def test_an_error_that_cannot_be_retried_is_raised():
    rig = Rig(1)
    rig.fetcher.lost(rig.request(), DecodeError("truncated", "the response"), rig.now)
    assert rig.fetcher.has_records
    with pytest.raises(DecodeError):
        rig.take()
    assert not rig.fetcher.has_records


def test_a_session_error_needs_no_pause():
    rig = Rig(1)
    rig.answer(rig.request(), session_id=42)
    call = rig.request()
    assert (call.request.session_epoch, call.request.topics) == (1, [])
    rig.answer(call, error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
    assert (rig.request().request.session_epoch, rig.take()) == (0, [])


def test_a_response_with_other_partitions_or_twice_the_same_is_harmless():
    rig = Rig(1)
    rig.answer(rig.request(), data(batch(0, b"a"), 7), data(batch(0, b"a"), 0), data(batch(0, b"a"), 0))
    assert rig.take() == [(0, 0)]


# ---- replicas (KIP-392) ---------------------------------------------------------------------------------------------


def on_replica() -> Rig:
    rig = Rig(1, rack="near")
    rig.answer(rig.request(), data(preferred_read_replica=2))
    return rig


def test_the_preferred_replica_is_fetched_from_until_its_age():
    rig = on_replica()
    call = rig.request()
    assert call.node == 2
    rig.answer(call, data(batch(0, b"a")))
    rig.take()
    rig.now += 301
    assert rig.request().node == 1


@pytest.mark.parametrize(
    "code", [Code.OFFSET_OUT_OF_RANGE, Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_an_error_of_a_replica_falls_back_to_the_leader(code):
    rig = on_replica()
    rig.answer(rig.request(), failed(code))
    assert rig.state().reset is None
    assert rig.request().node == 1


def test_a_lost_request_to_a_replica_falls_back_to_the_leader():
    rig = on_replica()
    rig.fetcher.lost(rig.request(), KafkaConnectionError("lost"), rig.now)
    assert rig.request().node == 1


def test_a_replica_that_left_the_cluster_falls_back_to_the_leader():
    rig = on_replica()
    del rig.view.brokers[2]
    assert rig.request().node == 1
