"""Topic administration: what is refused and why, and that a change counts only once the store has it."""

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.configs.writes import ConfigChange, Texts, Written
from kafkalite.cluster.metadata.image import ClusterImage, ClusterTables, TopicImage
from kafkalite.cluster.metadata.live_brokers import BrokerImage, LiveBrokers
from kafkalite.cluster.topics.auto_creation import create_on_demand, is_allowed
from kafkalite.cluster.topics.control import OwnTopics
from kafkalite.cluster.topics.manager import NewPartitions, NewTopic, TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.testing.virtual_clock import SeededRandom

Then = Callable[[int], None]


class HeldStore:
    """A store whose responses the test releases."""

    def __init__(self) -> None:
        self.held: list[tuple[str, Then]] = []
        self.configs: dict[str, Texts] = {}

    def create_topic(self, topic: TopicImage, then: Then) -> None:
        self.held.append((f"create {topic.name}", then))

    def update_topic(self, topic: TopicImage, then: Then) -> None:
        self.held.append((f"update {topic.name}", then))

    def delete_topic(self, topic: TopicImage, then: Then) -> None:
        self.held.append((f"delete {topic.name}", then))

    def change_topic_configs(
        self, name: str, change: ConfigChange, then: Callable[[Written], object], *, validate_only: bool
    ) -> None:
        texts = self.configs[name] = change(self.configs.get(name, {}))
        self.held.append((f"configure {name}", lambda error: then(Written(error, texts))))

    def finish(self, error: int = 0) -> str:
        what, then = self.held.pop(0)
        then(error)
        return what


class Cluster:
    """A host whose image follows the changes."""

    def __init__(self, settings: Mapping[str, str] | None = None, brokers: int = 2) -> None:
        self.config = BrokerConfig(static=dict(settings or {}))
        self.tables = ClusterTables("cluster", 1, LiveBrokers(BrokerImage(node) for node in range(1, brokers + 1)))
        self.random = SeededRandom(1)
        self.store = HeldStore()
        self.topics = TopicManager(self, self.store, OwnTopics(self))
        self.applied: Callable[[Callable[[Outcome], object]], object] = lambda done: done(Outcome())

    @property
    def image(self) -> ClusterImage:
        return self.tables.image

    def topic_changed(self, topic: TopicImage, done: Callable[[Outcome], object]) -> None:
        self.tables.put(topic)
        self.applied(done)

    def topic_gone(self, name: str, done: Callable[[Outcome], object]) -> None:
        self.tables.remove(name)
        self.applied(done)

    def create(self, *asked: NewTopic, validate_only: bool = False) -> list[Refusal | None]:
        return self._outcomes(lambda then: self.topics.create(list(asked), validate_only=validate_only, then=then))

    def grow(self, *asked: NewPartitions) -> list[Refusal | None]:
        return self._outcomes(lambda then: self.topics.grow(list(asked), validate_only=False, then=then))

    def delete(self, *names: str) -> list[Refusal | None]:
        return self._outcomes(lambda then: self.topics.delete(list(names), then=then))

    def _outcomes(self, start: Callable[[Callable[[list[Refusal | None]], None]], None]) -> list[Refusal | None]:
        received: list[list[Refusal | None]] = []
        start(received.append)
        while self.store.held:
            self.store.finish()
        (outcomes,) = received
        return outcomes


def code(outcomes: list[Refusal | None]) -> int:
    (refusal,) = outcomes
    return 0 if refusal is None else refusal.error


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_topic_gets_the_defaults_it_did_not_name(cluster: Cluster) -> None:
    assert cluster.create(NewTopic("orders")) == [None]
    topic = cluster.image.topics["orders"]
    assert len(topic.partitions) == 1
    assert len(topic.partitions[0].replicas) == 1
    assert cluster.image.topics_by_id[topic.topic_id] is topic


def test_nothing_is_known_before_the_store_has_it(cluster: Cluster) -> None:
    received: list[list[Refusal | None]] = []
    cluster.topics.create([NewTopic("orders")], validate_only=False, then=received.append)
    assert "orders" not in cluster.image.topics and received == []
    assert cluster.store.finish() == "create orders"
    assert "orders" in cluster.image.topics and received == [[None]]


def test_a_failed_store_leaves_no_topic(cluster: Cluster) -> None:
    received: list[list[Refusal | None]] = []
    cluster.topics.create([NewTopic("orders")], validate_only=False, then=received.append)
    cluster.store.finish(KafkaErrorCode.KAFKA_STORAGE_ERROR)
    assert received == [[Refusal(KafkaErrorCode.KAFKA_STORAGE_ERROR)]]
    assert cluster.create(NewTopic("orders")) == [None]


def test_second_creation_of_a_topic_waits_and_fails(cluster: Cluster) -> None:
    received: list[list[Refusal | None]] = []
    cluster.topics.create([NewTopic("a.b")], validate_only=False, then=received.append)
    cluster.topics.create([NewTopic("a.b"), NewTopic("a_b")], validate_only=False, then=received.append)
    assert received == []
    cluster.store.finish()
    assert received[0] == [None]
    assert [refusal and refusal.error for refusal in received[1]] == [
        KafkaErrorCode.TOPIC_ALREADY_EXISTS,
        KafkaErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_a_second_creation_succeeds_where_the_first_failed(cluster: Cluster) -> None:
    received: list[list[Refusal | None]] = []
    cluster.topics.create([NewTopic("t")], validate_only=False, then=received.append)
    cluster.topics.create([NewTopic("t")], validate_only=False, then=received.append)
    cluster.store.finish(KafkaErrorCode.KAFKA_STORAGE_ERROR)
    cluster.store.finish()
    assert received == [[Refusal(KafkaErrorCode.KAFKA_STORAGE_ERROR)], [None]]


def test_growth_does_not_bring_back_a_deleted_topic(cluster: Cluster) -> None:
    cluster.create(NewTopic("t", partitions=1))
    received: list[list[Refusal | None]] = []
    cluster.topics.delete(["t"], then=received.append)
    cluster.topics.grow([NewPartitions("t", 2)], validate_only=False, then=received.append)
    assert cluster.store.finish() == "delete t" and not cluster.store.held
    assert received[0] == [None] and code(received[1]) == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not cluster.image.topics


def with_one(key: str, current: Texts | None) -> Texts:
    """The configs with another one."""
    return {**(current or {}), key: "1"}


def test_two_changes_of_one_topic_keep_both(cluster: Cluster) -> None:
    cluster.create(NewTopic("t", partitions=1))
    received: list[object] = []
    for key in ("retention.ms", "retention.bytes"):
        cluster.topics.configure("t", partial(with_one, key), validate_only=False, then=received.append)
    cluster.topics.grow([NewPartitions("t", 3)], validate_only=False, then=received.append)
    while cluster.store.held:
        cluster.store.finish()
    topic = cluster.image.topics["t"]
    assert topic.configs == {"retention.ms": "1", "retention.bytes": "1"} and len(topic.partitions) == 3
    assert received == [None, None, [None]]


def test_thousands_of_changes_may_wait_for_one(cluster: Cluster) -> None:
    received: list[list[Refusal | None]] = []
    for _ in range(3000):
        cluster.topics.create([NewTopic("t")], validate_only=False, then=received.append)
    cluster.store.finish()
    assert len(received) == 3000 and sum(code(outcomes) == 0 for outcomes in received) == 1


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    assert cluster.create(NewTopic("orders"), validate_only=True) == [None]
    assert not cluster.image.topics and not cluster.store.held


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("bad/name"), KafkaErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".."), KafkaErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("t", partitions=0), KafkaErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", partitions=10**9), KafkaErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", replication_factor=3), KafkaErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", replication_factor=0), KafkaErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", configs={"no.such.key": "1"}), KafkaErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"retention.ms": "soon"}), KafkaErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs={"retention.ms": None}), KafkaErrorCode.INVALID_CONFIG),
        (NewTopic("t", partitions=1, assignments={0: (1,)}, assignment_count=1), KafkaErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments={1: (1,)}, assignment_count=1), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: (1,)}, assignment_count=2), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: (1, 1)}, assignment_count=1), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: ()}, assignment_count=1), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments={0: (9,)}, assignment_count=1), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            NewTopic("t", assignments={0: (1,), 1: (1, 2)}, assignment_count=2),
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_invalid_topics_are_rejected_with_a_reason(cluster: Cluster, new: NewTopic, error: int) -> None:
    (refusal,) = cluster.create(new)
    assert refusal is not None and refusal.error == error and refusal.message
    assert not cluster.image.topics


def test_one_refused_topic_does_not_hold_up_the_others(cluster: Cluster) -> None:
    outcomes = cluster.create(NewTopic("a"), NewTopic("b/c"), NewTopic("d"))
    assert [outcome is None for outcome in outcomes] == [True, False, True]


def test_an_explicit_assignment_is_taken_as_it_is(cluster: Cluster) -> None:
    assert cluster.create(NewTopic("t", assignments={0: (2, 1), 1: (1, 2)}, assignment_count=2)) == [None]
    assert [part.replicas for part in cluster.image.topics["t"].partitions] == [(2, 1), (1, 2)]
    assert [part.leader for part in cluster.image.topics["t"].partitions] == [2, 1]


def test_partitions_grow_and_never_shrink(cluster: Cluster) -> None:
    cluster.create(NewTopic("t", partitions=2))
    assert code(cluster.grow(NewPartitions("t", 5))) == 0
    assert len(cluster.image.topics["t"].partitions) == 5
    assert code(cluster.grow(NewPartitions("t", 5))) == KafkaErrorCode.INVALID_PARTITIONS
    assert code(cluster.grow(NewPartitions("t", 3))) == KafkaErrorCode.INVALID_PARTITIONS
    assert code(cluster.grow(NewPartitions("u", 3))) == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(cluster.grow(NewPartitions("t", 6, [(1,), (2,)]))) == KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code(cluster.grow(NewPartitions("t", 6, [(1, 2)]))) == KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code(cluster.grow(NewPartitions("t", 6, [(2,)]))) == 0


def test_deletion_is_refused_where_it_is_not_allowed(cluster: Cluster) -> None:
    cluster.create(NewTopic("t"), NewTopic("__consumer_offsets"))
    assert code(cluster.delete("nowhere")) == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(cluster.delete("__consumer_offsets")) == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code(cluster.delete("t")) == 0
    assert "t" not in cluster.image.topics
    locked = Cluster({"delete.topic.enable": "false"})
    locked.create(NewTopic("t"))
    assert code(locked.delete("t")) == KafkaErrorCode.TOPIC_DELETION_DISABLED


def test_a_topic_created_again_has_another_id(cluster: Cluster) -> None:
    cluster.create(NewTopic("t"))
    first = cluster.image.topics["t"].topic_id
    cluster.delete("t")
    cluster.create(NewTopic("t"))
    assert cluster.image.topics["t"].topic_id != first


def test_creation_on_demand_follows_the_setting() -> None:
    received: list[dict[str, int]] = []
    refusing, creating = Cluster({"auto.create.topics.enable": "false"}), Cluster()
    assert not is_allowed(refusing.config, requested=True)
    assert [is_allowed(creating.config, requested=each) for each in (True, False)] == [True, False]
    create_on_demand(creating.topics, creating.config, ["t", "t", "u"], received.append)
    creating.store.finish(), creating.store.finish()
    assert received[-1] == {} and set(creating.image.topics) == {"t", "u"}


def test_configs_count_once_they_are_kept(cluster: Cluster) -> None:
    cluster.create(NewTopic("t"))
    received: list[Refusal | None] = []
    cluster.topics.configure("t", lambda _: {"retention.ms": "1"}, validate_only=False, then=received.append)
    assert cluster.image.topics["t"].configs == {} and received == []
    cluster.store.finish()
    assert cluster.image.topics["t"].configs == {"retention.ms": "1"} and received == [None]


def test_long_error_messages_fit_into_a_response(cluster: Cluster) -> None:
    """A name as long as a string of the wire may be: the sentence around it must not be longer than that."""
    (refusal,) = cluster.grow(NewPartitions("y" * 32_767, 3))
    assert refusal is not None and refusal.error == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal.message is not None and len(refusal.message) < 1100
    assert refusal.message.startswith("Topic 'yyy") and refusal.message.endswith("does not exist.")


def test_a_request_for_too_many_partitions_is_refused_whole(cluster: Cluster) -> None:
    """One small request could else hold the loop for seconds and take hundreds of megabytes."""
    outcomes = cluster.create(NewTopic("a", partitions=9_999), NewTopic("b", partitions=2))
    assert [code([one]) for one in outcomes] == [KafkaErrorCode.POLICY_VIOLATION] * 2
    assert not cluster.image.topics
    cluster.create(NewTopic("a", partitions=2))
    assert code(cluster.grow(NewPartitions("a", 10_003))) == KafkaErrorCode.POLICY_VIOLATION
    assert len(cluster.image.topics["a"].partitions) == 2
    assert cluster.grow(NewPartitions("a", 5)) == [None]


def test_a_change_ends_once_it_is_applied(cluster: Cluster) -> None:
    """The files of a deleted topic go in slices: a topic of the same name is not created in between."""
    assert cluster.create(NewTopic("t")) == [None]
    held: list[Callable[[Outcome], object]] = []
    cluster.applied = held.append
    ended: list[str] = []
    cluster.topics.delete(["t"], then=lambda outcomes: ended.append(f"deleted {outcomes}"))
    new = [NewTopic("t")]
    cluster.topics.create(new, validate_only=False, then=lambda outcomes: ended.append(f"created {outcomes}"))
    assert cluster.store.finish() == "delete t"
    assert (ended, cluster.store.held, "t" in cluster.image.topics) == ([], [], False)
    held.pop()(Outcome())
    assert ended == ["deleted [None]"] and cluster.store.finish() == "create t"
    held.pop()(Outcome())
    assert ended == ["deleted [None]", "created [None]"]


def test_a_change_that_cannot_be_applied_is_refused_and_the_next_one_begins(cluster: Cluster) -> None:
    held: list[Callable[[Outcome], object]] = []
    cluster.applied = held.append
    ended: list[int] = []
    cluster.topics.create([NewTopic("t")], validate_only=False, then=lambda outcomes: ended.append(code(outcomes)))
    cluster.store.finish()
    cluster.topics.delete(["t"], then=lambda outcomes: ended.append(code(outcomes)))
    with pytest.raises(ZeroDivisionError):
        held.pop()(Outcome(error=ZeroDivisionError()))
    assert ended == [KafkaErrorCode.UNKNOWN_SERVER_ERROR] and cluster.store.finish() == "delete t"
    held.pop()(Outcome())
    assert ended == [KafkaErrorCode.UNKNOWN_SERVER_ERROR, 0]
