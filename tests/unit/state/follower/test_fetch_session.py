"""`state.follower.fetch_session`, also against `state.fetch_sessions`' view: a model of the leader's session."""

import random

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.fetch_sessions import EPOCH_INITIAL, EPOCH_MAX, SESSION_NONE
from kafkalite.state.follower.fetch_session import FetchSession, Position, SessionRequest

A, B, C = "a", "b", "c"


def at(offset: int, leader_epoch: int = 1) -> Position:
    return Position(offset, leader_epoch, 0, leader_epoch)


def opened(*keys: str, session_id: int = 7) -> FetchSession[str]:
    session: FetchSession[str] = FetchSession()
    for key in keys:
        session.set(key, at(0))
    session.request()
    assert session.apply_response(0, session_id, dict.fromkeys(keys, 0)) == ""
    return session


def test_first_request_names_all_and_the_following_ones_only_changes() -> None:
    session: FetchSession[str] = FetchSession()
    session.set(A, at(0))
    session.set(B, at(5))
    assert session.request() == SessionRequest(SESSION_NONE, EPOCH_INITIAL, {A: at(0), B: at(5)}, [])
    assert session.apply_response(0, 7, {A: 0, B: 0}) == ""
    assert session.request() == SessionRequest(7, 1, {}, [])
    assert session.apply_response(0, 7, {}) == ""
    session.set(A, at(3))
    session.set(C, at(0))
    session.remove(B)
    assert session.request() == SessionRequest(7, 2, {A: at(3), C: at(0)}, [B])


def test_position_that_is_set_again_is_not_named() -> None:
    session = opened(A)
    session.set(A, at(0))
    assert session.request().positions == {}


def test_partition_that_leaves_before_it_was_named_is_not_forgotten() -> None:
    session = opened(A)
    session.set(B, at(0))
    session.remove(B)
    assert session.request() == SessionRequest(7, 1, {}, [])


def test_partition_that_leaves_and_returns_is_named() -> None:
    session = opened(A, B)
    session.remove(A)
    session.set(A, at(9))
    assert session.request() == SessionRequest(7, 1, {A: at(9)}, [])


def test_changes_during_a_request_are_in_the_next_one() -> None:
    session = opened(A, B)
    session.request()
    session.remove(A)
    session.set(B, at(4))
    assert session.apply_response(0, 7, {A: 0}) == ""  # it was asked for
    assert session.request() == SessionRequest(7, 2, {B: at(4)}, [A])


@pytest.mark.parametrize(
    ("error", "session_id"),
    [(KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND, SESSION_NONE), (KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)],
)
def test_error_of_a_session_leads_to_a_full_request(error: KafkaErrorCode, session_id: int) -> None:
    session = opened(A, B)
    session.request()
    assert session.apply_response(error, 0, {}) == error.name
    assert session.request() == SessionRequest(session_id, EPOCH_INITIAL, {A: at(0), B: at(0)}, [])


def test_error_code_that_this_version_does_not_know_is_an_error_as_well() -> None:
    session = opened(A)
    session.request()
    assert session.apply_response(9_999, 0, {}) == "error 9999"


def test_lost_response_leads_to_a_full_request_that_closes_the_session() -> None:
    session = opened(A)
    session.set(A, at(2))
    session.request()
    session.lose()
    assert session.request() == SessionRequest(7, EPOCH_INITIAL, {A: at(2)}, [])


def test_leader_without_sessions_gets_full_requests() -> None:
    session = opened(A, session_id=SESSION_NONE)
    assert session.request() == SessionRequest(SESSION_NONE, EPOCH_INITIAL, {A: at(0)}, [])


def test_unasked_partition_is_an_error() -> None:
    session = opened(A)
    session.request()
    assert session.apply_response(0, 7, {A: 0, C: 5}) == "it has c with the high watermark 5, which was not requested"
    assert session.request().epoch == EPOCH_INITIAL


def test_full_response_without_a_partition_is_an_error() -> None:
    session: FetchSession[str] = FetchSession()
    session.set(A, at(0))
    session.set(B, at(0))
    session.request()
    assert session.apply_response(0, 7, {A: 0}) == "it has 1 of 2 partitions"
    assert session.request() == SessionRequest(SESSION_NONE, EPOCH_INITIAL, {A: at(0), B: at(0)}, [])


def test_epochs_begin_again_at_one() -> None:
    session = opened(A)
    session._epoch = EPOCH_MAX
    assert session.request().epoch == EPOCH_MAX
    session.apply_response(0, 7, {})
    assert session.request().epoch == 1


@pytest.mark.parametrize("seed", range(50))
def test_session_on_the_leader_follows(seed: int) -> None:
    """After each request that arrives, a leader that applies it has exactly the follower's positions."""
    rng = random.Random(seed)
    print(f"KAFKALITE_SEED={seed}")
    session: FetchSession[int] = FetchSession()
    leader: dict[int, Position] = {}
    for _ in range(200):
        for _ in range(rng.randrange(4)):
            key = rng.randrange(6)
            if rng.random() < 0.7:
                session.set(key, at(rng.randrange(5)))
            else:
                session.remove(key)
        request = session.request()
        if rng.random() < 0.1:
            session.lose()
            continue
        if request.epoch == EPOCH_INITIAL:
            leader = {}
        leader.update(request.positions)
        for key in request.forgotten:
            del leader[key]
        assert leader == session.positions
        keys = list(leader) if request.epoch == EPOCH_INITIAL else []
        if rng.random() < 0.1:
            session.apply_response(KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, {})
        else:
            assert session.apply_response(0, 7, dict.fromkeys(keys, 0)) == ""
