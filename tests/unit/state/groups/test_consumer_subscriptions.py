"""Stories of consumer groups: what members are subscribed to, by name or by pattern, and how topics come and go."""

import hashlib
from collections import Counter

import pytest

from kafkalite.state.groups.consumer.description import describe
from kafkalite.state.groups.consumer.group import ConsumerGroupState
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings, Topic
from kafkalite.state.groups.records import (
    ConsumerGroupRegularExpression,
    ConsumerGroupTombstone,
)
from tests.kit.consumer_groups import Client, FakeTopics, Shard, stabilize


@pytest.fixture
def shard() -> Shard:
    return Shard(FakeTopics(flights=4, weather=3))


def state_of(shard: Shard, member_id: str) -> MemberState:
    return MemberState(shard.group().current(member_id).state)


def test_a_new_subscription_starts_a_new_epoch(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights")
    stabilize(alice)
    alice.subscribe("weather", "flights")
    stabilize(alice)
    assert shard.group().epoch == 3 and len(alice.topic_partitions) == 7
    alice.subscribe("flights", "weather")
    stabilize(alice)
    assert shard.group().epoch == 3, "the order of topics means nothing"


def test_unsubscribed_topic_is_revoked_before_the_next_assignment() -> None:
    shard = Shard(FakeTopics(flights=4, weather=3), ConsumerGroupSettings(assignment_interval_ms=10_000))
    alice = Client(shard, "alice", "flights", "weather")
    stabilize(alice)
    alice.subscribe("weather")
    assert set(alice.fast_heartbeat().assignment or ()) == {shard.topics.topics["weather"].topic_id}
    assert state_of(shard, "alice") is MemberState.UNREVOKED_PARTITIONS
    assert shard.group().state is ConsumerGroupState.ASSIGNING
    alice.fast_heartbeat()
    assert state_of(shard, "alice") is MemberState.STABLE
    shard.advance(10_000)
    stabilize(alice)
    assert len(alice.topic_partitions) == 3 and shard.group().state is ConsumerGroupState.STABLE


def test_assignments_are_not_made_more_often_than_the_interval() -> None:
    shard = Shard(FakeTopics(flights=4), ConsumerGroupSettings(assignment_interval_ms=1_000))
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    alice.fast_heartbeat()
    assert bob.fast_heartbeat().member_epoch == 2 and shard.group().state is ConsumerGroupState.ASSIGNING
    shard.advance(1_000)
    stabilize(alice, bob)
    assert (len(alice.topic_partitions), len(bob.topic_partitions)) == (2, 2)


def test_new_partitions_and_new_topics_are_found(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights", "later")
    stabilize(alice)
    shard.topics.grow("flights", 6)
    shard.machine.topics_changed(["flights"])
    stabilize(alice)
    assert len(alice.topic_partitions) == 6
    shard.topics.make("later", 2)
    shard.machine.topics_changed(["later"])
    stabilize(alice)
    assert len(alice.topic_partitions) == 8
    epoch = shard.group().epoch
    shard.machine.topics_changed(["somebody-elses"])
    stabilize(alice)
    assert shard.group().epoch == epoch


def test_deleted_topic_is_revoked(shard: Shard) -> None:
    alice = Client(shard, "alice", "flights", "weather")
    stabilize(alice)
    del shard.topics.topics["weather"]
    shard.machine.topics_changed(["weather"])
    stabilize(alice)
    assert len(alice.topic_partitions) == 4


def test_assignor_that_most_members_prefer_is_used(shard: Shard) -> None:
    asked = {"a": "range", "b": "range", "c": "uniform"}
    clients = [Client(shard, name, "flights", server_assignor=assignor) for name, assignor in asked.items()]
    stabilize(*clients)
    assert describe(shard.group(), shard.settings).assignor == "range"
    assert sorted(sorted(c.owned[shard.topics.topics["flights"].topic_id]) for c in clients) == [[0, 1], [2], [3]]
    clients[0].leave()
    clients[1].leave()
    assert describe(shard.group(), shard.settings).assignor == "uniform"


def test_pattern_is_resolved_and_then_assigned(shard: Shard) -> None:
    alice = Client(shard, "alice", subscribed_topic_regex="fli.*")
    stabilize(alice)
    assert [question.patterns for question in shard.questions] == [("fli.*",)]
    assert not alice.topic_partitions
    shard.answer_questions()
    stabilize(alice)
    assert len(alice.topic_partitions) == 4
    bob = Client(shard, "bob", subscribed_topic_regex="fli.*")
    stabilize(alice, bob)
    assert not shard.questions, "known already"
    assert len(bob.topic_partitions) == 2


def test_a_topic_that_matches_later_is_found_at_most_every_ten_seconds(shard: Shard) -> None:
    alice = Client(shard, "alice", subscribed_topic_regex="fli.*")
    stabilize(alice)
    shard.answer_questions()
    stabilize(alice)
    shard.topics.make("flies", 1)
    shard.machine.topics_changed(["flies"])
    alice.fast_heartbeat()
    assert not shard.questions
    shard.advance(10_001)
    alice.fast_heartbeat()
    alice.fast_heartbeat()
    assert len(shard.questions) == 1
    shard.answer_questions()
    stabilize(alice)
    assert len(alice.topic_partitions) == 5


def test_a_question_that_failed_is_asked_again(shard: Shard) -> None:
    alice = Client(shard, "alice", subscribed_topic_regex="fli.*")
    stabilize(alice)
    shard.questions.clear()
    shard.machine.patterns_failed("g")
    alice.fast_heartbeat()
    assert len(shard.questions) == 1


def test_last_member_that_drops_a_pattern_deletes_its_record(shard: Shard) -> None:
    alice = Client(shard, "alice", subscribed_topic_regex="fli.*")
    stabilize(alice)
    shard.answer_questions()
    stabilize(alice)
    shard.log.clear()
    alice.more["subscribed_topic_regex"] = ""
    alice.subscribe("weather")
    stabilize(alice)
    assert ConsumerGroupTombstone("g", ConsumerGroupRegularExpression, "fli.*") in shard.log
    assert not shard.group().patterns and len(alice.topic_partitions) == 3


def test_topic_dropped_for_an_unmatched_pattern_is_reassigned(shard: Shard) -> None:
    alice, bob = Client(shard, "alice", "flights"), Client(shard, "bob", "flights")
    stabilize(alice, bob)
    alice.more["subscribed_topic_regex"] = "nothing.*"
    alice.subscribe()
    stabilize(alice, bob)
    shard.answer_questions()
    stabilize(alice, bob)
    assert not alice.topic_partitions and len(bob.topic_partitions) == 4
    alice.more["subscribed_topic_regex"] = "flights.*"
    alice.subscribe()
    shard.advance(10_001)
    stabilize(alice, bob)
    shard.answer_questions()
    stabilize(alice, bob)
    alice.more["subscribed_topic_regex"] = ""
    alice.subscribe()
    stabilize(alice, bob)
    assert not alice.topic_partitions and len(bob.topic_partitions) == 4


def test_pattern_is_deleted_with_its_last_member(shard: Shard) -> None:
    alice = Client(shard, "alice", subscribed_topic_regex="fli.*")
    stabilize(alice)
    shard.answer_questions()
    alice.leave()
    assert not shard.group().patterns


class CountedTopics(FakeTopics):
    """Topics that count how often each is looked up."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.lookups: Counter[str] = Counter()

    def by_name(self, name: str) -> Topic | None:
        self.lookups[name] += 1
        return super().by_name(name)


def test_a_heartbeat_looks_each_topic_up_at_most_once() -> None:
    """A member that joins a group of 5,000 topics occupied the loop four times as long with four look-ups of each."""
    topics = CountedTopics(flights=4, weather=3)
    shard = Shard(topics)
    alice, bob = Client(shard, "alice", "flights", "weather"), Client(shard, "bob", "weather", "missing")
    for client in (alice, bob):
        topics.lookups.clear()
        client.fast_heartbeat()
        assert set(topics.lookups.values()) == {1}
    stabilize(alice, bob)
    topics.lookups.clear()
    bob.leave()
    assert topics.lookups == {"flights": 1, "weather": 1}


def test_hash_of_topics_is_the_one_that_earlier_versions_stored() -> None:
    """Another hash would start a group epoch in every group after an update of the broker."""
    shard = Shard(FakeTopics(flights=4, weather=3))
    Client(shard, "alice", "weather", "flights").fast_heartbeat()
    topics = sorted(topic for name in ("flights", "weather") if (topic := shard.topics.by_name(name)) is not None)
    digest = hashlib.blake2b(repr(topics).encode(), digest_size=8).digest()
    assert shard.group().metadata_hash == int.from_bytes(digest, "big", signed=True)
