"""Topics for the loads, and the proof that what was sent is there: no figure without it."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perf.brokers.base import Running
from perf.errors import VerificationError

if TYPE_CHECKING:  # `--help` works where confluent_kafka is not installed
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import OffsetSpec

TIMEOUT_S = 120.0
CREATED_AT_ONCE = 500
NOT_YET = (
    "UNKNOWN_TOPIC_OR_PART",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "UNKNOWN_LEADER_EPOCH",
    "_NOENT",  # "no leaders found"
    "_UNKNOWN_PARTITION",
    "_UNKNOWN_TOPIC",
)


class Topics:
    """Topics of one broker, through an independent client (librdkafka)."""

    def __init__(self, broker: Running) -> None:
        from confluent_kafka.admin import AdminClient

        self.broker = broker
        # Telemetry (KIP-714) is the client's own chatter and no part of any load.
        self._admin = AdminClient({"bootstrap.servers": broker.address, "enable.metrics.push": False, "log_level": 2})

    def create(self, names: Sequence[str], partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create the topics and wait until every partition has a leader that answers for it."""
        from confluent_kafka.admin import NewTopic

        replicas = self.broker.replicas
        config = dict(configs or {}) | ({"min.insync.replicas": "2"} if replicas > 1 else {})
        more = {"num_partitions": partitions, "replication_factor": replicas, "config": config}
        wanted = [NewTopic(name, **more) for name in names]
        for future in self._admin.create_topics(wanted, request_timeout=TIMEOUT_S).values():
            future.result(TIMEOUT_S)
        for name in names:
            self.led(name, partitions)

    def create_all(self, names: Sequence[str], partitions: int) -> None:
        """The same for thousands of topics: a few hundred in each request."""
        for first in range(0, len(names), CREATED_AT_ONCE):
            self.create(names[first : first + CREATED_AT_ONCE], partitions)

    def led(self, name: str, partitions: int) -> None:
        """Wait until every partition has a leader that answers for it, as after a start. Raises VerificationError."""
        deadline = time.monotonic() + TIMEOUT_S
        while error := self._not_yet(name, partitions):
            if time.monotonic() > deadline:
                raise VerificationError(f"{self.broker.name}: {name} has no leaders after {TIMEOUT_S} s: {error}")
            time.sleep(0.05)  # leaders come by no event that a client can wait for

    def _not_yet(self, name: str, partitions: int) -> "KafkaException | None":
        from confluent_kafka import KafkaException

        # Metadata may name a leader before that broker knows of it: ask the leader itself, as ListOffsets does.
        try:
            self.records(name, partitions)
        except KafkaException as error:
            if error.args[0].name() in NOT_YET:
                return error
            raise VerificationError(f"{self.broker.name}: {name}: {error}") from error
        return None

    def delete(self, names: Sequence[str]) -> None:
        for future in self._admin.delete_topics(list(names), request_timeout=TIMEOUT_S).values():
            future.result(TIMEOUT_S)

    def records(self, name: str, partitions: int) -> int:
        """How many records the topic holds, by ListOffsets: sum of (latest - earliest)."""
        return sum(self._held(name, partitions))

    def _held(self, name: str, partitions: int) -> list[int]:
        from confluent_kafka.admin import OffsetSpec

        ends, starts = (self._offsets(name, partitions, spec) for spec in (OffsetSpec.latest(), OffsetSpec.earliest()))
        return [end - start for end, start in zip(ends, starts, strict=True)]

    def _offsets(self, name: str, partitions: int, spec: "OffsetSpec") -> list[int]:
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(name, number) for number in range(partitions)]
        answers = self._admin.list_offsets(dict.fromkeys(asked, spec))
        found = {partition.partition: int(future.result(TIMEOUT_S).offset) for partition, future in answers.items()}
        return [found[number] for number in range(partitions)]

    def expect(self, name: str, partitions: int, records: int) -> None:
        """Raises VerificationError unless the topic has exactly so many records; the text lists the differences."""
        held = self._held(name, partitions)
        if sum(held) != records:
            again = self._held(name, partitions)
            few = sorted(range(partitions), key=held.__getitem__)[:5]
            where = ", ".join(f"{number}: {held[number]}, asked again {again[number]}" for number in few)
            raise VerificationError(
                f"{self.broker.name}: {records} records sent to {name}, {sum(held)} are there, "
                f"{sum(again)} when asked again; by partition: {where}"
            )
