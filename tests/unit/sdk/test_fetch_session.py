"""Fetch sessions of a client: full and incremental requests, session errors, topic ids."""

import pytest
from kafkalite_sdk.consumer.fetch.fetch_session import FetchSession, WantedPartition

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse

Code = KafkaErrorCode
ORDERS, OTHER = bytes(15) + b"\1", bytes(15) + b"\2"


def wanted(*offsets: int, topic_id: bytes = ORDERS, leader_epoch: int = 0) -> dict[TopicPartition, WantedPartition]:
    return {
        TopicPartition("orders", number): WantedPartition(topic_id, offset, leader_epoch, 1000)
        for number, offset in enumerate(offsets)
        if offset >= 0
    }


def named(request: FetchRequest) -> dict[int, int]:
    """The offsets in a request by partition."""
    return {each.partition: each.fetch_offset for topic in request.topics for each in topic.partitions}


def forgotten(request: FetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


def opened(*offsets: int, session_id: int = 42) -> FetchSession:
    session = FetchSession()
    request, _ = session.request(wanted(*offsets))
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert session.apply_response(FetchResponse(session_id=session_id, responses=[]))
    return session


def test_an_incremental_request_names_changed_partitions_only():
    session = opened(5, 6)
    request, _ = session.request(wanted(5, 7, 8))
    assert (request.session_id, request.session_epoch) == (42, 1)
    assert named(request) == {1: 7, 2: 8} and forgotten(request) == []
    assert session.apply_response(FetchResponse(session_id=42, responses=[]))
    request, _ = session.request(wanted(5, 7, 8))
    assert request.session_epoch == 2 and named(request) == {} and forgotten(request) == []


def test_an_incremental_request_forgets_partitions():
    session = opened(5, 6, 7)
    request, _ = session.request(wanted(5, -1, 7))
    assert named(request) == {} and forgotten(request) == [1]
    assert request.forgotten_topics_data[0].topic == "orders"
    assert request.forgotten_topics_data[0].topic_id == ORDERS


def test_a_new_leader_epoch_is_a_change():
    session = opened(5)
    request, _ = session.request(wanted(5, leader_epoch=1))
    assert request.topics[0].partitions[0].current_leader_epoch == 1


def test_without_a_session_every_request_is_full():
    session = opened(5, session_id=0)
    request, _ = session.request(wanted(5))
    assert (request.session_id, request.session_epoch) == (0, 0) and named(request) == {0: 5}
    assert not session.is_open


@pytest.mark.parametrize(
    ("code", "session_id"),
    [(Code.FETCH_SESSION_ID_NOT_FOUND, 0), (Code.INVALID_FETCH_SESSION_EPOCH, 42), (Code.UNKNOWN_SERVER_ERROR, 42)],
)
def test_a_full_request_follows_a_session_error(code, session_id):
    """A session that the broker may still have is named, so that the broker ends it."""
    session = opened(5, 6)
    session.request(wanted(5, 7))
    assert not session.apply_response(FetchResponse(error_code=code, responses=[]))
    request, _ = session.request(wanted(5, 7))
    assert (request.session_id, request.session_epoch) == (session_id, 0) and named(request) == {0: 5, 1: 7}


def test_a_full_request_follows_a_lost_response():
    session = opened(5, 6)
    session.request(wanted(5, 7))
    session.lost()
    request, _ = session.request(wanted(5, 7))
    assert (request.session_id, request.session_epoch) == (42, 0) and named(request) == {0: 5, 1: 7}


def test_a_broker_ends_the_session_with_a_response():
    session = opened(5)
    session.request(wanted(6))
    assert session.apply_response(FetchResponse(session_id=0, responses=[]))
    request, _ = session.request(wanted(6))
    assert (request.session_id, request.session_epoch) == (0, 0) and named(request) == {0: 6}


def test_topics_are_named_where_an_id_is_unknown():
    session = FetchSession()
    request, version_max = session.request(wanted(5))
    assert version_max is None and request.topics[0].topic_id == ORDERS
    session.apply_response(FetchResponse(session_id=42, responses=[]))
    request, version_max = session.request(wanted(5, topic_id=ZERO_UUID))
    assert version_max == 12 and request.session_epoch == 0 and request.topics[0].topic == "orders"


def test_a_recreated_topic_begins_a_session():
    """A broker that knows names only would forget the partition that the same request adds."""
    session = opened(5)
    request, _ = session.request(wanted(5, topic_id=OTHER))
    assert request.session_epoch == 0 and request.topics[0].topic_id == OTHER and forgotten(request) == []
    assert session.names == {OTHER: "orders"}


def test_the_epoch_begins_again_at_its_maximum():
    session = opened(5)
    session._epoch = 2**31 - 1
    session.request(wanted(5))
    session.apply_response(FetchResponse(session_id=42, responses=[]))
    assert session.request(wanted(5))[0].session_epoch == 1


def test_the_final_request_ends_the_session():
    request = opened(5).final_request()
    assert (request.session_id, request.session_epoch, request.topics) == (42, -1, [])
