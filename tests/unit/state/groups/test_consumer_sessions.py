"""Sessions of members of consumer groups: they end on time and wake the broker together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from kafkalite.state.groups.sessions import LOOK_MS, look_at_ms
from tests.kit.consumer_groups import Client, FakeTopics, Shard, stabilize

SESSION_MS = ConsumerGroupSettings().session_timeout_ms


@pytest.fixture
def shard() -> Shard:
    return Shard(FakeTopics(flights=4, weather=3))


def beaten(shard: Shard, client: Client) -> int | None:
    """A heartbeat without news, by the short way."""
    request = client.request()
    return shard.machine.heartbeats.fast_heartbeat(
        "g", request.member_id, None, request.member_epoch, ("", ""), shard.ms
    )


def stable(shard: Shard) -> Client:
    alice = Client(shard, "alice", "flights")
    stabilize(alice)
    assert beaten(shard, alice) is not None
    return alice


@given(now_ms=st.integers(0, 2**40), left_ms=st.integers(0, 2**31))
def test_session_timer_fires_early_and_then_on_time(now_ms: int, left_ms: int) -> None:
    over_ms = now_ms + left_ms
    first_ms = look_at_ms(over_ms, now_ms)
    if first_ms != over_ms:
        assert first_ms % LOOK_MS == 0 and max(now_ms, over_ms - LOOK_MS) < first_ms < over_ms
        assert look_at_ms(over_ms, first_ms) == over_ms


@pytest.mark.parametrize("heartbeat_ms", [0, 1, 249, 250, 251, 33_333])
def test_a_session_ends_on_time(shard: Shard, heartbeat_ms: int) -> None:
    shard.advance(17)
    alice = stable(shard)
    shard.advance(heartbeat_ms)
    assert beaten(shard, alice) is not None
    shard.advance(SESSION_MS - 1)
    assert "alice" in shard.group().members
    shard.advance(1)
    assert "alice" not in shard.group().members


def test_session_timers_of_stable_members_fire_together(shard: Shard) -> None:
    members = [Client(shard, f"m{number}", "flights") for number in range(50)]
    for member in members:
        member.fast_heartbeat()
        shard.advance(7)
    stabilize(*members)
    for _ in range(60):
        for member in members:
            shard.advance(21)
            assert beaten(shard, member) is not None
    assert len(shard.timers) == 50
    moments = set(shard.timers.values())
    assert all(at_ms % LOOK_MS == 0 for at_ms in moments) and len(moments) <= 50 * 21 // LOOK_MS + 2


def test_shorter_session_leaves_the_fast_path(shard: Shard) -> None:
    alice = stable(shard)
    shard.settings = ConsumerGroupSettings(assignment_interval_ms=0, session_timeout_ms=SESSION_MS // 3)
    assert beaten(shard, alice) is None
    alice.fast_heartbeat()
    assert beaten(shard, alice) is not None
    shard.advance(SESSION_MS // 3)
    assert "alice" not in shard.group().members
