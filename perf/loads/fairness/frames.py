"""One request that touches as much as a frame can name (B6, B7), and many such requests at once (B3)."""

from collections.abc import Callable
from contextlib import suppress

from perf.checks import VerificationError
from perf.loads.base import Turn
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
        request: Callable[[Turn], bytes],
        prepare: Callable[[Turn, Client], None] | None = None,
        brokers: frozenset[str] = BOTH,
    ) -> None:
        super().__init__(name, title, brokers=brokers)
        self._request, self._prepare = request, prepare

    def prepare(self, turn: Turn) -> None:
        if self._prepare is not None:
            with Client(turn.broker) as client:
                self._prepare(turn, client)

    def attack(self, turn: Turn, client: Client) -> None:
        request = self._request(turn)
        for _ in range(5):
            client.call(request)


class Flood(Frame):
    """The same requests sent in one piece on one connection, `count` of them."""

    def __init__(
        self,
        name: str,
        title: str,
        request: Callable[[Turn], bytes],
        prepare: Callable[[Turn, Client], None],
        count: int,
    ) -> None:
        super().__init__(name, title, request, prepare)
        self._count = count

    def attack(self, turn: Turn, client: Client) -> None:
        client.flood([self._request(turn)] * turn.scaled(self._count, self._count // 10))


class SessionFlood(Hostile):
    """Incremental fetches of one fetch session, pipelined; each names nothing and looks at every partition."""

    def __init__(self, partitions: int, count: int) -> None:
        title = f"{count} pipelined incremental fetches of a session of {partitions:,} partitions"
        super().__init__(f"session-{partitions}", title)
        self._partitions, self._count = partitions, count
        self._session = 0

    def prepare(self, turn: Turn) -> None:
        with Client(turn.broker) as client:
            big_topics(turn, client, self._partitions)

    def before(self, turn: Turn, client: Client) -> None:
        response = client.call(wire.fetch(_big(turn, self._partitions), epoch=0))
        error, self._session = wire.session_of(response)
        client.expect("Fetch", {error, 0 if self._session else -1})

    def attack(self, turn: Turn, client: Client) -> None:
        count = turn.scaled(self._count, self._count // 10)
        client.flood([wire.fetch({}, session=self._session, epoch=1 + number) for number in range(count)])


def big_topics(turn: Turn, client: Client, partitions: int) -> None:
    """Create the topics that hold so many partitions together."""
    topics = _big(turn, partitions)
    client.create(list(topics), len(next(iter(topics.values()))))


def _big(turn: Turn, partitions: int) -> dict[str, range]:
    each = turn.scaled(partitions, partitions // 20) // BIG_TOPICS
    return {f"{BIG}-{number}": range(each) for number in range(BIG_TOPICS)}


def _thousand_topics(turn: Turn, client: Client) -> None:
    client.create(topic_names("described", _first(turn), turn.scaled(1_000, 50)), 1)


def _first(turn: Turn) -> Turn:
    return Turn(turn.kind, turn.directory, 0, turn.quick, turn.running)


def _twenty_thousand_groups(turn: Turn, client: Client) -> None:
    client.create(["committed"], 1)
    client.commit(group_names("listed", _first(turn), turn.scaled(20_000, 1_000)), "committed")


class DeleteGroups(Hostile):
    """One DeleteGroups request for many groups."""

    def __init__(self) -> None:
        super().__init__("delete-groups", "DeleteGroups of 5,000 groups")

    def prepare(self, turn: Turn) -> None:
        with Client(turn.broker) as client:
            client.create(["committed"], 1)

    def before(self, turn: Turn, client: Client) -> None:
        client.commit(self._groups(turn), "committed")

    def attack(self, turn: Turn, client: Client) -> None:
        client.expect("DeleteGroups", wire.deleted(client.call(wire.delete_groups(self._groups(turn)))))

    def _groups(self, turn: Turn) -> list[str]:
        return group_names("deleted", turn, turn.scaled(5_000, 250))


class UnknownTags(Hostile):
    """Five requests with unknown tags, each on a connection of its own: kafkalite closes it, Apache Kafka answers."""

    def __init__(self) -> None:
        super().__init__("unknown-tags", "Metadata with 3 million unknown tags (14 MB)")

    def attack(self, turn: Turn, client: Client) -> None:
        request = wire.tagged_metadata(turn.scaled(3_000_000, 100_000))
        for _ in range(5):
            with Client(turn.broker) as other, suppress(VerificationError, ConnectionError):
                other.call(request)


def _many_names(turn: Turn) -> list[str]:
    return topic_names("unknown", turn, turn.scaled(100_000, 5_000))


def _parts_of_one(turn: Turn) -> dict[str, range]:
    return {f"{BIG}-0": range(turn.scaled(100_000, 5_000))}


def _one_partition(turn: Turn, client: Client) -> None:
    client.create([f"{BIG}-0"], 1)


def _ten_thousand(turn: Turn, client: Client) -> None:
    big_topics(turn, client, 10_000)


def _twelve_thousand(turn: Turn, client: Client) -> None:
    big_topics(turn, client, 12_000)


LOADS = (
    SessionFlood(10_000, 100),
    SessionFlood(2_000, 400),
    Flood(
        "list-groups-flood", "100 pipelined ListGroups with a filter that matches none of 20,000 groups",
        lambda turn: wire.list_groups(NO_STATE), _twenty_thousand_groups, 100,
    ),
    Frame("list-groups", "ListGroups of 20,000 groups", lambda turn: wire.list_groups(), _twenty_thousand_groups),
    DeleteGroups(),
    Frame(
        "describe-configs", "DescribeConfigs of 1,000 topics",
        lambda turn: wire.describe_configs(topic_names("described", _first(turn), turn.scaled(1_000, 50))),
        _thousand_topics,
    ),
    Frame(
        "metadata-12000", "Metadata of 12,000 partitions",
        lambda turn: wire.metadata(_big(turn, 12_000)), _twelve_thousand,
    ),
    Frame(
        "fetch-10000", "Fetch of 10,000 partitions, without a session",
        lambda turn: wire.fetch(_big(turn, 10_000)), _ten_thousand,
    ),
    Frame(
        "list-offsets-10000", "ListOffsets of 10,000 partitions",
        lambda turn: wire.list_offsets(_big(turn, 10_000)), _ten_thousand,
    ),
    Frame(
        "log-dirs-10000", "DescribeLogDirs of 10,000 partitions",
        lambda turn: wire.describe_log_dirs(), _ten_thousand,
    ),
    Frame(
        "describe-groups-100000", "DescribeGroups of 100,000 unknown groups",
        lambda turn: wire.describe_groups(_many_names(turn)), _one_partition,
    ),
    Frame(
        "fetch-100000", "Fetch of 100,000 partitions, all but one unknown",
        lambda turn: wire.fetch(_parts_of_one(turn)), _one_partition,
    ),
    Frame("metadata-100000", "Metadata of 100,000 unknown topics", lambda turn: wire.metadata(_many_names(turn))),
    Frame(
        "describe-config-keys", "DescribeConfigs of one topic 20,000 times with a list of 8 keys each",
        lambda turn: wire.describe_configs([f"{BIG}-0"], KEYS, turn.scaled(20_000, 1_000)), _one_partition,
    ),
    Frame(
        "list-offsets-100000", "ListOffsets of 100,000 partitions, all but one unknown",
        lambda turn: wire.list_offsets(_parts_of_one(turn)), _one_partition,
    ),
    UnknownTags(),
)  # fmt: skip
