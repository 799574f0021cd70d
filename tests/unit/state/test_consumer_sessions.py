"""Sessions of members of consumer groups: they end on time, wake the broker together, and say when nothing changes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.state.consumer_requests import ConsumerGroupSettings
from kafkalite.state.consumer_sessions import Plain
from kafkalite.state.sessions import LOOK_MS, look_at_ms
from tests.kit.consumer_groups import Client, FakeTopics, Shard, settle

SESSION_MS = ConsumerGroupSettings().session_timeout_ms


@pytest.fixture
def shard() -> Shard:
    return Shard(FakeTopics(flights=4, weather=3))


def beaten(shard: Shard, client: Client) -> Plain | None:
    """A heartbeat without news, by the short way."""
    request = client.request()
    return shard.machine.beat("g", request.member_id, None, request.member_epoch, ("", ""), shard.ms)


def settled(shard: Shard) -> tuple[Client, Plain]:
    alice = Client(shard, "alice", "flights")
    settle(alice)
    plain = beaten(shard, alice)
    assert plain is not None and plain.calm.stands
    return alice, plain


@given(now_ms=st.integers(0, 2**40), left_ms=st.integers(0, 2**31))
def test_a_timer_looks_before_a_session_is_over_and_then_on_time(now_ms: int, left_ms: int) -> None:
    over_ms = now_ms + left_ms
    first_ms = look_at_ms(over_ms, now_ms)
    if first_ms != over_ms:
        assert first_ms % LOOK_MS == 0 and max(now_ms, over_ms - LOOK_MS) < first_ms < over_ms
        assert look_at_ms(over_ms, first_ms) == over_ms


@pytest.mark.parametrize("heard_ms", [0, 1, 249, 250, 251, 33_333])
def test_a_session_ends_on_time(shard: Shard, heard_ms: int) -> None:
    shard.advance(17)
    alice, _ = settled(shard)
    shard.advance(heard_ms)
    assert beaten(shard, alice) is not None
    shard.advance(SESSION_MS - 1)
    assert "alice" in shard.group().members
    shard.advance(1)
    assert "alice" not in shard.group().members


def test_members_at_rest_are_looked_at_together(shard: Shard) -> None:
    members = [Client(shard, f"m{number}", "flights") for number in range(50)]
    for member in members:
        member.beat()
        shard.advance(7)
    settle(*members)
    for _ in range(60):
        for member in members:
            shard.advance(21)
            assert beaten(shard, member) is not None
    assert len(shard.timers) == 50
    moments = set(shard.timers.values())
    assert all(at_ms % LOOK_MS == 0 for at_ms in moments) and len(moments) <= 50 * 21 // LOOK_MS + 2


CHANGES: dict[str, Callable[[Shard], object]] = {
    "another member joins": lambda shard: Client(shard, "bob", "flights").beat(),
    "a topic grows": lambda shard: shard.machine.topics_changed(["flights"]),
    "settings change": lambda shard: shard.machine.settings_changed(),
    "the machine's life ends": lambda shard: shard.machine.ended(),
    "its own session runs out": lambda shard: shard.advance(SESSION_MS),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_calm_ends_with_whatever_may_matter(shard: Shard, change: str) -> None:
    _, plain = settled(shard)
    CHANGES[change](shard)
    assert not plain.calm.stands


def test_a_calm_outlasts_what_does_not_concern_the_group(shard: Shard) -> None:
    alice, plain = settled(shard)
    other = Client(shard, "carol", "weather", group="h")
    settle(other)
    shard.machine.topics_changed(["weather", "new"])
    shard.advance(SESSION_MS - 1)
    assert plain.calm.stands and beaten(shard, alice) == plain
    assert plain.session.heard_ms == shard.ms


def test_an_old_heartbeat_is_of_an_old_calm(shard: Shard) -> None:
    """The same member is calm again in another epoch: what it sent before must be judged anew."""
    alice, before = settled(shard)
    bob = Client(shard, "bob", "flights")
    settle(alice, bob)
    after = beaten(shard, alice)
    assert after is not None and after.calm.stands and after.session is before.session
    assert after.calm is not before.calm and not before.calm.stands


def test_who_left_and_is_back_has_another_session(shard: Shard) -> None:
    """What was remembered before moves nothing any more: the session that runs is not the one that it knows."""
    alice, before = settled(shard)
    alice.leave()
    alice.start_anew()
    settle(alice)
    after = beaten(shard, alice)
    assert after is not None and after.session is not before.session and not before.calm.stands
    before.session.heard_ms = shard.ms + SESSION_MS
    shard.advance(SESSION_MS)
    assert "alice" not in shard.group().members and not after.calm.stands


def test_a_shorter_session_begins_the_long_way(shard: Shard) -> None:
    alice, plain = settled(shard)
    shard.settings = ConsumerGroupSettings(assignment_interval_ms=0, session_timeout_ms=SESSION_MS // 3)
    shard.machine.settings_changed()
    assert beaten(shard, alice) is None and plain.session.heard_ms == 0
    alice.beat()
    assert beaten(shard, alice) is not None
    shard.advance(SESSION_MS // 3)
    assert "alice" not in shard.group().members
