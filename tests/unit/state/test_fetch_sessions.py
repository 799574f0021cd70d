"""Incremental fetch sessions as a client and a clock see them (KIP-227)."""

from itertools import count

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.fetch_sessions import EVICTION_MS, FetchSessions, PartitionKey, SessionPartition


def parts(*indexes: int) -> list[tuple[PartitionKey, SessionPartition]]:
    return [(("t", index), SessionPartition("t", bytes(16), index)) for index in indexes]


@pytest.fixture
def sessions() -> FetchSessions:
    ids = count(1)
    return FetchSessions(2, lambda: next(ids))


def test_session_continues_with_increasing_epochs(sessions: FetchSessions) -> None:
    session_id = sessions.open(parts(0, 1), False, 0)
    for epoch in (1, 2, 3):
        session = sessions.resume(session_id, epoch, False, 0)
        assert not isinstance(session, int)
        assert session.epoch == epoch + 1


def test_wrong_epoch_wrong_id_and_other_naming_are_refused(sessions: FetchSessions) -> None:
    session_id = sessions.open(parts(0), False, 0)
    assert sessions.resume(session_id, 2, False, 0) == KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.resume(99, 1, False, 0) == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resume(session_id, 1, True, 0) == KafkaErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_epoch_wraps_to_one(sessions: FetchSessions) -> None:
    session_id = sessions.open(parts(0), False, 0)
    next(iter(sessions)).epoch = 2**31 - 1
    session = sessions.resume(session_id, 2**31 - 1, False, 0)
    assert not isinstance(session, int)
    assert session.epoch == 1


def test_an_empty_fetch_opens_no_session(sessions: FetchSessions) -> None:
    assert sessions.open([], False, 0) == 0


def test_full_cache_of_young_sessions_rejects_new_ones(sessions: FetchSessions) -> None:
    assert sessions.open(parts(0), False, 0) and sessions.open(parts(0), False, 0)
    assert sessions.open(parts(0, 1, 2), False, EVICTION_MS) == 0


def test_least_recently_used_session_is_evicted_first(sessions: FetchSessions) -> None:
    idle, used = sessions.open(parts(0), False, 0), sessions.open(parts(0), False, 0)
    sessions.resume(used, 1, False, EVICTION_MS + 1)
    assert sessions.open(parts(0), False, EVICTION_MS + 1)
    assert sessions.resume(idle, 1, False, EVICTION_MS + 1) == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_old_active_session_is_evicted_only_for_a_larger_one(sessions: FetchSessions) -> None:
    for session_id in (sessions.open(parts(0, 1), False, 0), sessions.open(parts(0, 1), False, 0)):
        sessions.resume(session_id, 1, False, EVICTION_MS)
    now = EVICTION_MS + 1
    assert sessions.open(parts(0, 1), False, now) == 0
    assert sessions.open(parts(0, 1, 2), False, now) != 0
    assert len(sessions) == 2


def test_total_partitions_of_all_sessions_are_bounded() -> None:
    ids = count(1)
    sessions = FetchSessions(10, lambda: next(ids), partitions_max=5)
    assert sessions.open(parts(0, 1, 2, 3, 4, 5), False, 0) == 0
    first, second = sessions.open(parts(0, 1), False, 0), sessions.open(parts(0, 1, 2), False, 0)
    assert first and second and sessions.open(parts(0), False, 0) == 0
    sessions.close(first)
    assert sessions.open(parts(0, 1), False, 0)
    assert sessions.open(parts(0, 1, 2, 3, 4), False, EVICTION_MS + 1), "idle ones make room"
    assert len(sessions) == 1


def test_a_session_that_grows_beyond_the_bound_is_closed() -> None:
    ids = count(1)
    sessions = FetchSessions(10, lambda: next(ids), partitions_max=5)
    growing, other = sessions.open(parts(0, 1), False, 0), sessions.open(parts(0, 1), False, 0)
    session = sessions.resume(growing, 1, False, 0)
    assert not isinstance(session, int)
    session.partitions.update(parts(2))
    assert sessions.recount(session)
    assert sessions.open(parts(0), False, 0) == 0, "the new partition counts"
    session.partitions.update(parts(3))
    assert not sessions.recount(session)
    assert sessions.resume(growing, 2, False, 0) == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not isinstance(sessions.resume(other, 1, False, 0), int)
    assert sessions.open(parts(0, 1, 2), False, 0), "what it held is free again"


def test_only_changes_are_returned_and_errors_are_repeated() -> None:
    part = parts(0)[0][1]
    assert part.has_news(0, 0, 5, 0, False)
    part.update_response(0, 5, 0)
    assert not part.has_news(0, 0, 5, 0, False)
    assert part.has_news(0, 10, 5, 0, False)
    assert part.has_news(0, 0, 6, 0, False)
    assert part.has_news(0, 0, 5, 1, False)
    assert part.has_news(0, 0, 5, 0, True)
    part.update_response(3, 5, 0)
    assert part.has_news(0, 0, 5, 0, False)


def test_a_served_partition_moves_to_the_end(sessions: FetchSessions) -> None:
    session_id = sessions.open(parts(0, 1, 2), False, 0)
    session = sessions.resume(session_id, 1, False, 0)
    assert not isinstance(session, int)
    session.served(("t", 0))
    assert list(session.partitions) == [("t", 1), ("t", 2), ("t", 0)]


def test_a_partition_forgotten_meanwhile_is_served_without_coming_back(sessions: FetchSessions) -> None:
    session = sessions.resume(sessions.open(parts(0, 1), False, 0), 1, False, 0)
    assert not isinstance(session, int)
    del session.partitions["t", 0]
    session.served(("t", 0))
    assert list(session.partitions) == [("t", 1)]
