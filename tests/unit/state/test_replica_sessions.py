"""Fetch sessions of replicas: which exist, and what marks them."""

from itertools import count

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.isr.replica_progress import ReplicaProgress
from kafkalite.state.quotas.rates import Windows
from kafkalite.state.quotas.replication_quota import ReplicationQuota
from kafkalite.state.replica_sessions import (
    SESSIONS_MAX,
    UNKNOWN_MAX,
    ReplicaPartition,
    ReplicaPartitions,
    ReplicaSession,
    ReplicaSessions,
)

FOLLOWER, OTHER = 8, 9
NOT_FOUND = KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND


class Marked:
    """A partition."""

    def __init__(self) -> None:
        self.replica_sessions: tuple[ReplicaPartition, ...] = ()


class Waiting:
    """A fetch that waits."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def wake(self, *, urgent: bool) -> None:
        self.calls.append("urgent" if urgent else "wake")

    def wake_soon(self) -> None:
        self.calls.append("soon")


def detach_all(partitions: ReplicaPartitions) -> None:
    for part in partitions.values():
        part.detach()


@pytest.fixture
def sessions() -> ReplicaSessions:
    ids = count(1)
    return ReplicaSessions(lambda: next(ids), detach_all, ReplicationQuota(1, Windows(11, 1000)))


def new(replica_id: int = FOLLOWER, epoch: int = 5, now_ms: int = 0, owner: str = "connection") -> ReplicaSession:
    return ReplicaSession(replica_id, epoch, True, owner, now_ms)


def opened(sessions: ReplicaSessions, session: ReplicaSession) -> ReplicaSession:
    sessions.open(session)
    return session


def attached(session: ReplicaSession, partition: Marked) -> ReplicaPartition:
    part = session.name("", bytes(16), session.attached)
    part.attach(partition)
    session.take_marked()
    return part


def test_replica_has_a_bounded_number_of_sessions_and_loses_its_oldest(sessions: ReplicaSessions) -> None:
    other = opened(sessions, new(OTHER))
    own = [opened(sessions, new()) for _ in range(SESSIONS_MAX + 1)]
    assert [sessions.is_open(each) for each in own] == [False] + [True] * SESSIONS_MAX
    assert sessions.is_open(other), "another replica is not affected"


def test_later_registration_closes_the_sessions_of_the_earlier_one(sessions: ReplicaSessions) -> None:
    partition, old, other = Marked(), opened(sessions, new()), opened(sessions, new(OTHER))
    attached(old, partition)
    opened(sessions, new(epoch=6))
    assert (sessions.is_open(old), sessions.is_open(other), partition.replica_sessions) == (False, True, ())


def test_request_of_another_replica_or_registration_finds_no_session(sessions: ReplicaSessions) -> None:
    session = opened(sessions, new())
    for request in (new(OTHER), new(epoch=6), new(epoch=4)):
        assert sessions.resume(session.id, 1, request) == NOT_FOUND
    assert sessions.resume(session.id, 1, new(now_ms=70)) is session
    assert (session.fetched_ms, session.previous_ms, session.epoch) == (70, 0, 2)


def test_session_moves_with_the_connection_of_its_last_request(sessions: ReplicaSessions) -> None:
    session = opened(sessions, new())
    sessions.resume(session.id, 1, new(owner="next"))
    sessions.disconnected("connection")
    assert sessions.is_open(session)
    sessions.disconnected("next")
    assert not sessions.is_open(session) and len(sessions) == 0


def test_partitions_that_are_not_hosted_are_bounded() -> None:
    session = new()
    attached(session, Marked())
    for index in range(UNKNOWN_MAX):
        session.name("", b"u" * 16, index)
    assert not session.has_too_many_unknown
    session.name("", b"u" * 16, UNKNOWN_MAX)
    assert session.has_too_many_unknown


def test_each_change_marks_and_wakes_as_documented() -> None:
    session, partition = new(), Marked()
    part = attached(session, partition)
    for change, calls in (
        (part.log_end_moved, ["wake"]),
        (part.changed, ["urgent"]),
        (part.high_watermark_moved, []),
        (part.visit_next, []),
    ):
        session.waiting = waiting = Waiting()
        change()
        assert (session.take_marked(), waiting.calls) == ([part], calls), change.__name__
    part.read_until_ms = 1
    session.waiting = waiting = Waiting()
    part.high_watermark_moved()
    assert waiting.calls == ["soon"], "consumers read from the follower"


def test_append_renews_the_time_of_a_follower_at_the_log_end_once() -> None:
    session = new()
    part = attached(session, Marked())
    part.progress = progress = ReplicaProgress()
    part.at_end = True
    session.fetched_ms = 700
    part.log_end_moved()
    session.fetched_ms = 900
    part.log_end_moved()
    assert (progress.caught_up_ms, progress.fetched_ms) == (700, 700)


def test_expected_reads_are_known_in_the_next_session_of_the_replica() -> None:
    partition = Marked()
    attached(new(), partition).read_until_ms = 5_000
    assert attached(new(OTHER), partition).read_until_ms < 0
    assert attached(new(), partition).read_until_ms == 5_000
