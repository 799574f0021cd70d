"""One request that touches as much as a frame can name (B6, B7), and many such requests at once (B3)."""

from collections.abc import Callable
from contextlib import suppress

from perf.errors import VerificationError
from perf.loads.base import Trial
from perf.loads.durable import BOTH
from perf.loads.fairness import wire
from perf.loads.fairness.base import Hostile, group_names, topic_names
from perf.loads.fairness.client import Client

BIG, BIG_TOPICS = "big", 12
NO_STATE = "NoSuchState"
KEYS = [
    *("retention.ms", "retention.bytes", "segment.ms", "segment.bytes"),
    *("cleanup.policy", "max.message.bytes", "min.insync.replicas", "compression.type"),
]


class Frame(Hostile):
    """One request, five times, each after the response to the one before.

    Arguments:
        request: builds it from the turn.
        prepare: creates what it names, once.
    """

    def __init__(
        self,
        name: str,
        title: str,
        request: Callable[[Trial], bytes],
        prepare: Callable[[Trial, Client], None] | None = None,
        brokers: frozenset[str] = BOTH,
    ) -> None:
        super().__init__(name, title, brokers=brokers)
        self._request, self._prepare = request, prepare

    def prepare(self, trial: Trial) -> None:
        if self._prepare is not None:
            with Client(trial.broker) as client:
                self._prepare(trial, client)

    def attack(self, trial: Trial, client: Client) -> None:
        request = self._request(trial)
        for _ in range(5):
            client.call(request)


class Flood(Frame):
    """The same requests sent in one piece on one connection, `count` of them."""

    def __init__(
        self,
        name: str,
        title: str,
        request: Callable[[Trial], bytes],
        prepare: Callable[[Trial, Client], None],
        count: int,
    ) -> None:
        super().__init__(name, title, request, prepare)
        self._count = count

    def attack(self, trial: Trial, client: Client) -> None:
        client.flood([self._request(trial)] * trial.scaled(self._count, self._count // 10))


class SessionFlood(Hostile):
    """Incremental fetches of one fetch session, pipelined; each names nothing and looks at every partition."""

    def __init__(self, partitions: int, count: int) -> None:
        title = f"{count} pipelined incremental fetches of a session of {partitions:,} partitions"
        super().__init__(f"session-{partitions}", title)
        self._partitions, self._count = partitions, count
        self._session = 0

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            big_topics(trial, client, self._partitions)

    def before(self, trial: Trial, client: Client) -> None:
        response = client.call(wire.fetch(big(trial, self._partitions), epoch=0))
        error, self._session = wire.session_of(response)
        client.expect("Fetch", {error, 0 if self._session else -1})

    def attack(self, trial: Trial, client: Client) -> None:
        count = trial.scaled(self._count, self._count // 10)
        client.flood([wire.fetch({}, session=self._session, epoch=1 + number) for number in range(count)])


def big_topics(trial: Trial, client: Client, partitions: int) -> None:
    """Create the topics that hold so many partitions together."""
    topics = big(trial, partitions)
    client.create(list(topics), len(next(iter(topics.values()))))


def big(trial: Trial, partitions: int) -> dict[str, range]:
    """The partitions of `big_topics`, by topic."""
    each = trial.scaled(partitions, partitions // 20) // BIG_TOPICS
    return {f"{BIG}-{number}": range(each) for number in range(BIG_TOPICS)}


def _thousand_topics(trial: Trial, client: Client) -> None:
    client.create(topic_names("described", _first(trial), trial.scaled(1_000, 50)), 1)


def _first(trial: Trial) -> Trial:
    return Trial(trial.kind, trial.directory, 0, trial.quick, trial.running)


def _twenty_thousand_groups(trial: Trial, client: Client) -> None:
    client.create(["committed"], 1)
    client.commit(group_names("listed", _first(trial), trial.scaled(20_000, 1_000)), "committed")


class DeleteGroups(Hostile):
    """One DeleteGroups request for many groups."""

    def __init__(self) -> None:
        super().__init__("delete-groups", "DeleteGroups of 5,000 groups")

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            client.create(["committed"], 1)

    def before(self, trial: Trial, client: Client) -> None:
        client.commit(self._groups(trial), "committed")

    def attack(self, trial: Trial, client: Client) -> None:
        client.expect("DeleteGroups", wire.deleted(client.call(wire.delete_groups(self._groups(trial)))))

    def _groups(self, trial: Trial) -> list[str]:
        return group_names("deleted", trial, trial.scaled(5_000, 250))


class UnknownTags(Hostile):
    """Five requests with unknown tags, each on a connection of its own: kafkalite closes it, Apache Kafka answers."""

    def __init__(self) -> None:
        super().__init__("unknown-tags", "Metadata with 3 million unknown tags (14 MB)")

    def attack(self, trial: Trial, client: Client) -> None:
        request = wire.tagged_metadata(trial.scaled(3_000_000, 100_000))
        for _ in range(5):
            with Client(trial.broker) as other, suppress(VerificationError, ConnectionError):
                other.call(request)


def _many_names(trial: Trial) -> list[str]:
    return topic_names("unknown", trial, trial.scaled(100_000, 5_000))


def _parts_of_one(trial: Trial) -> dict[str, range]:
    return {f"{BIG}-0": range(trial.scaled(100_000, 5_000))}


def _one_partition(trial: Trial, client: Client) -> None:
    client.create([f"{BIG}-0"], 1)


def _ten_thousand(trial: Trial, client: Client) -> None:
    big_topics(trial, client, 10_000)


def _twelve_thousand(trial: Trial, client: Client) -> None:
    big_topics(trial, client, 12_000)


LOADS = (
    SessionFlood(10_000, 100),
    SessionFlood(2_000, 400),
    Flood(
        "list-groups-flood", "100 pipelined ListGroups with a filter that matches none of 20,000 groups",
        lambda trial: wire.list_groups(NO_STATE), _twenty_thousand_groups, 100,
    ),
    Frame("list-groups", "ListGroups of 20,000 groups", lambda trial: wire.list_groups(), _twenty_thousand_groups),
    DeleteGroups(),
    Frame(
        "describe-configs", "DescribeConfigs of 1,000 topics",
        lambda trial: wire.describe_configs(topic_names("described", _first(trial), trial.scaled(1_000, 50))),
        _thousand_topics,
    ),
    Frame(
        "metadata-12000", "Metadata of 12,000 partitions",
        lambda trial: wire.metadata(big(trial, 12_000)), _twelve_thousand,
    ),
    Frame(
        "fetch-10000", "Fetch of 10,000 partitions, without a session",
        lambda trial: wire.fetch(big(trial, 10_000)), _ten_thousand,
    ),
    Frame(
        "list-offsets-10000", "ListOffsets of 10,000 partitions",
        lambda trial: wire.list_offsets(big(trial, 10_000)), _ten_thousand,
    ),
    Frame(
        "log-dirs-10000", "DescribeLogDirs of 10,000 partitions",
        lambda trial: wire.describe_log_dirs(), _ten_thousand,
    ),
    Frame(
        "describe-groups-100000", "DescribeGroups of 100,000 unknown groups",
        lambda trial: wire.describe_groups(_many_names(trial)), _one_partition,
    ),
    Frame(
        "fetch-100000", "Fetch of 100,000 partitions, all but one unknown",
        lambda trial: wire.fetch(_parts_of_one(trial)), _one_partition,
    ),
    Frame("metadata-100000", "Metadata of 100,000 unknown topics", lambda trial: wire.metadata(_many_names(trial))),
    Frame(
        "describe-config-keys", "DescribeConfigs of one topic 20,000 times with a list of 8 keys each",
        lambda trial: wire.describe_configs([f"{BIG}-0"], KEYS, trial.scaled(20_000, 1_000)), _one_partition,
    ),
    Frame(
        "list-offsets-100000", "ListOffsets of 100,000 partitions, all but one unknown",
        lambda trial: wire.list_offsets(_parts_of_one(trial)), _one_partition,
    ),
    UnknownTags(),
)  # fmt: skip
