"""The topic of decisions: it is created on first use, read from its end, and appended to by drivers."""

from collections.abc import Mapping
from typing import Any

from kafkalite_sdk.admin import EARLIEST, LATEST, NewTopic

from kafkalite.errors import KafkaErrorCode, TopicAlreadyExistsError, TopicAuthorizationFailedError
from kafkalite.model import TopicPartition
from pyspark_kafkalite import clients
from pyspark_kafkalite.exactly_once.decisions import Decision, StoredDecision, encode, last_valid, of_query

CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # small, so that compaction reaches all but the last decisions
    "min.compaction.lag.ms": "3600000",
}
REACH = 1000
"""How many offsets before the end are read first; the last decision of a running query is among them."""


class DecisionLog:
    """The decisions in partition 0 of a topic.

    Arguments:
        client: `SinkOptions.shared`.
        topic: its name.
    """

    def __init__(self, client: Mapping[str, Any], topic: str) -> None:
        self._client = client
        self._topic = topic
        self._partition = TopicPartition(topic, 0)

    def create(self) -> None:
        """Create the topic, unless it exists. Raises KafkaError."""
        admin = clients.admin(self._client)
        described = admin.topics.describe(self._topic)
        error = described.errors.get(self._topic)
        if error is None:
            return
        if error.code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
        created = admin.topics.create(NewTopic(self._topic, partitions=1, configs=CONFIGS))
        failure = created.errors.get(self._topic)
        if failure is not None and not isinstance(failure, TopicAlreadyExistsError | TopicAuthorizationFailedError):
            raise failure

    def last(self, query: str, batch: int) -> Decision | None:
        """Return the valid decision about the last decided batch of a query, None = there is none.

        Arguments:
            query: its id.
            batch: the current one: the log is read back to a decision about an earlier batch.

        Raises:
            KafkaError: the topic cannot be read. DecisionError: one of its records cannot.
        """
        start, end = self._bound(EARLIEST), self._bound(LATEST)
        reach = REACH
        while True:
            begin = max(start, end - reach)
            found = of_query(self._records(begin, end), query)
            if begin == start or any(each.batch < batch for each in found):
                return last_valid(found)
            reach *= 8

    def append(self, query: str, decision: Decision) -> int:
        """Append a decision and return its offset. Raises KafkaError: it may be in the log nevertheless."""
        producer = clients.producer(self._client)
        return producer.send(self._topic, encode(decision), query.encode(), partition=0).result().offset

    def _bound(self, time: int) -> int:
        found = clients.admin(self._client).partitions.offsets({self._partition: time})
        return found[self._partition].offset

    def _records(self, begin: int, end: int) -> list[StoredDecision]:
        """Return the records of a range."""
        import pyarrow

        if begin >= end:
            return []
        reader = clients.reader(self._client, "read_uncommitted")
        columns = ("offset", "key", "value")
        tables = [pyarrow.record_batch(each) for each in reader.read(self._topic, 0, begin, end, columns=columns)]
        return [
            StoredDecision(*row)
            for table in tables
            for row in zip(*(table.column(name).to_pylist() for name in columns), strict=True)
        ]
