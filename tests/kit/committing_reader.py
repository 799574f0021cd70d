"""A consumer of a group that reads and commits until it is ended, through failures of brokers."""

from __future__ import annotations

import threading

import confluent_kafka as ck

from tests.kit.checker import Partition
from tests.kit.clients.confluent import QUIET, GroupConsumer
from tests.kit.isolated import ANSWER_S, CLOSE_S, Isolated

AT_ONCE = 500
CONSUME_S = 0.1


class CommittingReader(threading.Thread):
    """librdkafka in a process that can be killed: it commits what it has read, again and again, until `finish`.

    Attributes:
        seen: topic, partition and offset of what it has read.
        accepted: the offset of the last acknowledged commit of each partition.
        commits: number of acknowledged commits.
        refused: number of commits that failed.
    """

    def __init__(self, address: str, group: str, topic: str) -> None:
        super().__init__(name=f"reader of {group}")
        self.seen: set[tuple[str, int, int]] = set()
        self.accepted: dict[Partition, int] = {}
        self.commits = 0
        self.refused = 0
        self.failure: BaseException | None = None
        self._topic = topic
        self._ending = threading.Event()
        self._settings: dict[str, object] = {
            "bootstrap.servers": address,
            "group.id": group,
            "log_level": QUIET,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 100,
        }

    def run(self) -> None:
        try:
            with Isolated(GroupConsumer, self._settings, [self._topic]) as consumer:
                while not self._ending.is_set():
                    found, _ = consumer.consume(AT_ONCE, CONSUME_S)
                    self.seen.update(found)
                    if found:
                        self._commit(consumer)
        except BaseException as failure:
            self.failure = failure
            raise

    def _commit(self, consumer: Isolated) -> None:
        try:
            accepted = consumer.commit_positions()
        except ck.KafkaException:  # without its coordinator, or in a rebalance
            self.refused += 1
        else:
            self.accepted |= accepted
            self.commits += bool(accepted)

    def finish(self) -> None:
        """Leave the group. Raises what went wrong."""
        self._ending.set()
        self.join(ANSWER_S + 2 * CLOSE_S)
        assert not self.is_alive()
        assert self.failure is None, self.failure
