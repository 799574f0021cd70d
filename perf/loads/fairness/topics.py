"""Topics are created, deleted and described while many groups or partitions exist (B1, B2, B6 of the findings)."""

from perf.loads.base import Trial
from perf.loads.fairness import wire
from perf.loads.fairness.base import KAFKALITE, Hostile, group_names, topic_names
from perf.loads.fairness.client import Client

READ = "read"


class DeleteBesideGroups(Hostile):
    """Topics are deleted that no group reads, while many groups have offsets of another topic."""

    def __init__(self, groups: int, topics: int) -> None:
        super().__init__(
            f"delete-{topics}-topics", f"DeleteTopics of {topics:,} topics; {groups:,} groups read another topic"
        )
        self._groups, self._topics = groups, topics

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            client.create([READ], 1)
            client.commit(group_names("delete", trial, trial.scaled(self._groups, self._groups // 20)), READ)

    def before(self, trial: Trial, client: Client) -> None:
        client.create(self._names(trial), 1)

    def attack(self, trial: Trial, client: Client) -> None:
        client.delete(self._names(trial))

    def _names(self, trial: Trial) -> list[str]:
        return topic_names("unread", trial, trial.scaled(self._topics, self._topics // 20 + 1))


class DeleteReadTopic(Hostile):
    """A topic is deleted that all groups have offsets of."""

    def __init__(self) -> None:
        super().__init__("delete-read-topic", "DeleteTopics of one topic that 100,000 groups read")

    def before(self, trial: Trial, client: Client) -> None:
        client.create(topic_names(READ, trial, 1), 1)
        groups = group_names("readers", trial, trial.scaled(100_000, 2_000))
        client.commit(groups, topic_names(READ, trial, 1)[0])

    def attack(self, trial: Trial, client: Client) -> None:
        client.delete(topic_names(READ, trial, 1))


class CreateBesideGroups(Hostile):
    """Topics are created while KIP-848 groups are subscribed, to a name or each to a pattern of its own."""

    def __init__(self, name: str, *, patterns: bool) -> None:
        by = "by patterns" if patterns else "by name"
        super().__init__(name, f"CreateTopics of 100 topics; 5,000 consumer groups with a member subscribed {by}")
        self._patterns = patterns

    def prepare(self, trial: Trial) -> None:
        groups = group_names("subscribed", trial, trial.scaled(5_000, 500))
        with Client(trial.broker) as client:
            client.create([READ], 1)
            client.join_consumers([(group, self._join(group)) for group in groups])

    def _join(self, group: str) -> bytes:
        if self._patterns:
            return wire.consumer_join(group, "m", None, f"{READ}|{group}-.*")
        return wire.consumer_join(group, "m", [READ])

    def attack(self, trial: Trial, client: Client) -> None:
        client.expect("CreateTopics", wire.created(client.call(wire.create_topics(self._names(trial), 1))))

    def after(self, trial: Trial, client: Client) -> None:
        client.delete(self._names(trial))

    def _names(self, trial: Trial) -> list[str]:
        return topic_names("new", trial, trial.scaled(100, 10))


class CreateMany(Hostile):
    """One CreateTopics request for many partitions. Apache Kafka rejects more than 10,000 records in one request."""

    def __init__(self, topics: int, partitions: int, brokers: frozenset[str] = KAFKALITE) -> None:
        title = f"CreateTopics of {topics:,} topic(s) with {partitions:,} partition(s) in one request"
        super().__init__(f"create-{topics}x{partitions}", title, brokers=brokers)
        self._topics, self._partitions = topics, partitions

    def attack(self, trial: Trial, client: Client) -> None:
        request = wire.create_topics(self._names(trial), trial.scaled(self._partitions, self._partitions // 20 + 1))
        client.expect("CreateTopics", wire.created(client.call(request)))

    def after(self, trial: Trial, client: Client) -> None:
        client.delete(self._names(trial))

    def _names(self, trial: Trial) -> list[str]:
        return topic_names("many", trial, trial.scaled(self._topics, self._topics // 20 + 1))


class DeleteMany(Hostile):
    """One DeleteTopics request for a topic with many partitions; `written`: each of them has a record."""

    def __init__(self, name: str, partitions: int, *, written: bool, brokers: frozenset[str]) -> None:
        state = "with one record each" if written else "without records"
        title = f"DeleteTopics of a topic with {partitions:,} partitions {state}"
        super().__init__(name, title, brokers=brokers)
        self._partitions, self._written = partitions, written

    def before(self, trial: Trial, client: Client) -> None:
        count = trial.scaled(self._partitions, self._partitions // 20)
        name = topic_names("gone", trial, 1)
        client.expect("CreateTopics", wire.created(client.call(wire.create_topics(name, count))))
        client.wait_for_leaders({name[0]: range(count)})
        if self._written:
            fill(client, name[0], count)

    def attack(self, trial: Trial, client: Client) -> None:
        client.delete(topic_names("gone", trial, 1))


def fill(client: Client, topic: str, partitions: int) -> None:
    """Write one record to each partition."""
    batch = wire.gzip_batch(bytes(100))
    for first in range(0, partitions, 500):
        part = dict.fromkeys(range(first, min(first + 500, partitions)), batch)
        client.expect("Produce", wire.produced(client.call(wire.produce(topic, part))))


LOADS = (
    DeleteBesideGroups(20_000, 50),
    DeleteBesideGroups(15_000, 2_000),
    DeleteReadTopic(),
    CreateBesideGroups("create-beside-names", patterns=False),
    CreateBesideGroups("create-beside-patterns", patterns=True),
    CreateMany(1, 10_000),
    CreateMany(2_000, 1),
    DeleteMany("delete-10000", 9_000, written=False, brokers=frozenset({"kafkalite", "kafka"})),
    DeleteMany("delete-3000-written", 3_000, written=True, brokers=frozenset({"kafkalite", "kafka"})),
)
