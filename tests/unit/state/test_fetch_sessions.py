"""Incremental fetch sessions as a client and a clock see them (KIP-227)."""

from itertools import count

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.fetch_sessions import (
    EVICTION_MS,
    PARTITION_BYTES,
    FetchSession,
    FetchSessions,
    PartitionKey,
    SessionPartition,
)

PART_BYTES = PARTITION_BYTES + len("t")
UNLIMITED = 1 << 30


def parts(*indexes: int) -> list[tuple[PartitionKey, SessionPartition]]:
    return [(("t", index), SessionPartition("t", bytes(16), index)) for index in indexes]


@pytest.fixture
def sessions() -> FetchSessions:
    ids = count(1)
    return FetchSessions(2, UNLIMITED, lambda: next(ids))


def new(*indexes: int, now_ms: int = 0, owner: str = "connection", by_id: bool = False) -> FetchSession:
    """A session with partitions, not yet open."""
    return add(FetchSession(by_id, owner, now_ms), *indexes)


def add(session: FetchSession, *indexes: int) -> FetchSession:
    for key, part in parts(*indexes):
        session.update(key, part)
    return session


def resumed(sessions: FetchSessions, session_id: int, epoch: int = 1, owner: str = "connection") -> FetchSession:
    session = sessions.resume(session_id, epoch, False, owner, 0)
    assert isinstance(session, FetchSession)
    return session


def test_session_continues_with_increasing_epochs(sessions: FetchSessions) -> None:
    session_id = sessions.open(new(0, 1))
    for epoch in (1, 2, 3):
        session = sessions.resume(session_id, epoch, False, "connection", 0)
        assert not isinstance(session, int)
        assert session.epoch == epoch + 1


def test_wrong_epoch_wrong_id_and_other_naming_are_refused(sessions: FetchSessions) -> None:
    session_id = sessions.open(new(0))
    assert sessions.resume(session_id, 2, False, "connection", 0) == KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.resume(99, 1, False, "connection", 0) == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resume(session_id, 1, True, "connection", 0) == KafkaErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_epoch_wraps_to_one(sessions: FetchSessions) -> None:
    session_id = sessions.open(new(0))
    next(iter(sessions)).epoch = 2**31 - 1
    session = sessions.resume(session_id, 2**31 - 1, False, "connection", 0)
    assert not isinstance(session, int)
    assert session.epoch == 1


def test_an_empty_fetch_opens_no_session(sessions: FetchSessions) -> None:
    assert sessions.open(new()) == 0


def test_full_cache_of_young_sessions_rejects_new_ones(sessions: FetchSessions) -> None:
    assert sessions.open(new(0)) and sessions.open(new(0))
    assert sessions.open(new(0, 1, 2, now_ms=EVICTION_MS)) == 0


def test_least_recently_used_session_is_evicted_first(sessions: FetchSessions) -> None:
    idle, used = sessions.open(new(0)), sessions.open(new(0))
    sessions.resume(used, 1, False, "connection", EVICTION_MS + 1)
    assert sessions.open(new(0, now_ms=EVICTION_MS + 1))
    assert sessions.resume(idle, 1, False, "connection", EVICTION_MS + 1) == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_old_active_session_is_evicted_only_for_a_larger_one(sessions: FetchSessions) -> None:
    for session_id in (sessions.open(new(0, 1)), sessions.open(new(0, 1))):
        sessions.resume(session_id, 1, False, "connection", EVICTION_MS)
    now = EVICTION_MS + 1
    assert sessions.open(new(0, 1, 2, now_ms=now)) == 0, "of the same size class"
    assert sessions.open(new(0, 1, 2, 3, now_ms=now)) != 0
    assert len(sessions) == 2


def test_a_session_that_has_grown_is_evictable_after_the_time_of_a_new_one(sessions: FetchSessions) -> None:
    grown, kept = sessions.open(new(0)), sessions.open(new(*range(8)))
    for session_id in (grown, kept):
        session = sessions.resume(session_id, 1, False, "connection", EVICTION_MS)
        assert isinstance(session, FetchSession)
        add(session, 1)
        assert sessions.recount(session)
    assert sessions.open(new(*range(4), now_ms=EVICTION_MS + 1)) == 0
    for session_id in (grown, kept):
        sessions.resume(session_id, 2, False, "connection", 2 * EVICTION_MS)
    assert sessions.open(new(*range(4), now_ms=2 * EVICTION_MS + 1)) != 0
    assert {session.id for session in sessions} == {kept, 3}


def test_total_partitions_of_all_sessions_are_bounded() -> None:
    ids = count(1)
    sessions = FetchSessions(10, 5 * PART_BYTES, lambda: next(ids))
    assert sessions.open(new(0, 1, 2, 3, 4, 5)) == 0
    first, second = sessions.open(new(0, 1)), sessions.open(new(0, 1, 2))
    assert first and second and sessions.open(new(0)) == 0
    sessions.close(first)
    assert sessions.open(new(0, 1))
    assert sessions.open(new(0, 1, 2, 3, 4, now_ms=EVICTION_MS + 1)), "idle sessions are evicted"
    assert len(sessions) == 1


def test_a_session_that_grows_beyond_the_bound_is_closed() -> None:
    ids = count(1)
    sessions = FetchSessions(10, 5 * PART_BYTES, lambda: next(ids))
    growing, other = sessions.open(new(0, 1)), sessions.open(new(0, 1))
    session = resumed(sessions, growing)
    add(session, 2)
    assert sessions.recount(session)
    assert sessions.open(new(0)) == 0, "the new partition counts"
    add(session, 3)
    assert not sessions.recount(session)
    assert sessions.resume(growing, 2, False, "connection", 0) == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not isinstance(sessions.resume(other, 1, False, "connection", 0), int)
    assert sessions.open(new(0, 1, 2)), "what it held is free again"


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
    session_id = sessions.open(new(0, 1, 2))
    session = resumed(sessions, session_id)
    session.served(("t", 0))
    assert list(session.partitions) == [("t", 1), ("t", 2), ("t", 0)]


def test_a_partition_forgotten_meanwhile_is_served_without_coming_back(sessions: FetchSessions) -> None:
    session = resumed(sessions, sessions.open(new(0, 1)))
    session.forget(("t", 0))
    session.served(("t", 0))
    assert list(session.partitions) == [("t", 1)]


def test_sessions_of_a_closed_connection_end() -> None:
    freed: list[int] = []
    ids = count(1)
    sessions = FetchSessions(10, UNLIMITED, lambda: next(ids), lambda partitions: freed.append(len(partitions)))
    sessions.open(new(0, owner="left"))
    sessions.open(new(0, 1, owner="left"))
    other = sessions.open(new(0, 1, 2, owner="stays"))
    sessions.disconnected("left")
    assert freed == [1, 2]
    assert [session.id for session in sessions] == [other]
    assert sessions.memory_bytes == 3 * PART_BYTES
    sessions.disconnected("left")
    sessions.disconnected("never had one")
    sessions.close(other)
    assert (len(sessions), sessions.memory_bytes, freed) == (0, 0, [1, 2, 3])


def test_a_session_follows_its_client_to_the_next_connection(sessions: FetchSessions) -> None:
    session_id = sessions.open(new(0, owner="first"))
    resumed(sessions, session_id, 1, "second")
    sessions.disconnected("first")
    resumed(sessions, session_id, 2, "second")
    sessions.disconnected("second")
    assert sessions.resume(session_id, 3, False, "third", 0) == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("name", ["t" * 1000, "\N{CYRILLIC SMALL LETTER ZHE}" * 250])
def test_long_topic_names_count_in_bytes(name: str) -> None:
    sessions = FetchSessions(10, 10_000, lambda: 1)
    session = FetchSession(False, "connection", 0)
    for index in range(7):
        session.update((name, index), SessionPartition(name, bytes(16), index))
    session.update((name, 0), SessionPartition(name, bytes(16), 0))
    assert session.memory_bytes == 7 * (PARTITION_BYTES + 1000)
    assert sessions.open(session)
    add(session, 0)
    session.forget((name, 0))
    session.forget((name, 0))
    assert sessions.recount(session)
    assert sessions.memory_bytes == 6 * (PARTITION_BYTES + 1000) + PART_BYTES


def test_the_partitions_of_each_session_that_ends_are_freed() -> None:
    freed: list[int] = []
    ids = count(1)
    sessions = FetchSessions(1, 4 * PART_BYTES, lambda: next(ids), lambda partitions: freed.append(len(partitions)))
    assert not sessions.open(new(*range(5)))
    assert sessions.open(new(0)) and not sessions.open(new(0, 1))
    assert sessions.open(new(0, 1, 2, now_ms=EVICTION_MS + 1))
    session = next(iter(sessions))
    assert not sessions.recount(add(session, 3, 4))
    assert freed == [5, 2, 1, 5]
