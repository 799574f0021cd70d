"""Finds the hosted partitions by topic name or id and index, in one step."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Raised
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.validation import LoopBudget
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.log import Log

if TYPE_CHECKING:
    from kafkalite.cluster.partition.verification import TransactionChecks

UNKNOWN = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOTHING: Mapping[str, str] = MappingProxyType({})
UNKNOWN_ID = KafkaErrorCode.UNKNOWN_TOPIC_ID


class HostedTopic:
    """A topic with those of its partitions that this broker hosts.

    Arguments:
        name, topic_id: of the topic; the id is 16 bytes.
        config: its settings.
        overrides: the configs that are set on the topic itself; `config` has them and those of the broker. None: they
            cannot be read.

    Attributes:
        partitions: by index. In a cluster, other brokers host the missing ones.
    """

    __slots__ = ("config", "name", "overrides", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, config: TopicConfig, overrides: Mapping[str, str] | None = NOTHING
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.overrides = overrides
        self.partitions: dict[int, Partition] = {}


def raise_error(_callback: object, error: BaseException) -> None:
    """Raise an exception that has ended appends, where no log is given for it."""
    raise error


def no_checks() -> "TransactionChecks":
    """Fail where no coordinator can be asked."""
    raise NotImplementedError("this host of partitions has no coordinators of transactions")


# Arguments: topic name, topic id, index, whether the id counts.
Elsewhere = Callable[[str, bytes, int, bool], KafkaErrorCode | None]


class Replicas:
    """All hosted topics, and the partitions with appends that are written at the end of the loop iteration.

    Arguments:
        report: logs the exceptions that have ended appends.

    Attributes:
        elsewhere: returns the error of a partition that another broker hosts, None for an unknown one. None = this
            broker is alone.
        make_checks: creates `transaction_checks` with its first use.
        offline_observers: are called with the logs of a failed log directory, after their partitions were closed.
    """

    def __init__(self, report: Raised = raise_error) -> None:
        self.report = report
        self._by_name: dict[str, HostedTopic] = {}
        self._by_id: dict[bytes, HostedTopic] = {}
        self._dirty: list[Partition] = []
        self._writing = False
        self._after_writes: list[Callable[[], object]] = []
        self.loop_budget = LoopBudget()
        self.elsewhere: Elsewhere | None = None
        self.flusher: Flusher | None = None
        self.make_checks: Callable[[], TransactionChecks] = no_checks
        self._checks: TransactionChecks | None = None
        self.offline_observers: list[Callable[[list[Log]], object]] = []

    def __iter__(self) -> Iterator[HostedTopic]:
        return iter(self._by_name.values())

    @property
    def transaction_checks(self) -> "TransactionChecks":
        """Asks the coordinators of transactions."""
        if self._checks is None:
            self._checks = self.make_checks()
        return self._checks

    def transaction_completed(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """Repeat the checks of the next transaction, which wait for the end of the previous one.

        Arguments:
            transactional_id: of a transaction that is complete.
            producer_id, epoch: of the next one.
        """
        if self._checks is not None:
            self._checks.transaction_completed(transactional_id, producer_id, epoch)

    def close_checks(self) -> None:
        """End what waits for coordinators of transactions."""
        if self._checks is not None:
            self._checks.close()

    def find(self, name: str, topic_id: bytes, *, by_id: bool) -> HostedTopic | KafkaErrorCode:
        """The topic by `topic_id` if `by_id`, else by `name`.

        If it is unknown: UNKNOWN_TOPIC_ID or, by name, UNKNOWN_TOPIC_OR_PARTITION.
        """
        if by_id:
            return self._by_id.get(topic_id, UNKNOWN_ID)
        return self._by_name.get(name, UNKNOWN)

    def hosted_topic(self, name: str) -> HostedTopic | None:
        """The topic of this name, if this broker hosts a partition of it."""
        return self._by_name.get(name)

    def hosted_partition(self, key: TopicPartition) -> Partition | None:
        """The partition, if this broker hosts it."""
        topic = self._by_name.get(key.topic)
        return None if topic is None else topic.partitions.get(key.partition)

    def partition(self, name: str, topic_id: bytes, index: int, *, by_id: bool) -> Partition | KafkaErrorCode:
        """The partition `index` of a topic, or a Kafka error code.

        The topic is found by `topic_id` if `by_id`, else by `name`.
        """
        topic = self._by_id.get(topic_id) if by_id else self._by_name.get(name)
        if topic is not None:
            found = topic.partitions.get(index)
            if found is not None:
                return found
        error = None if self.elsewhere is None else self.elsewhere(name, topic_id, index, by_id)
        return error or (UNKNOWN_ID if by_id and topic is None else UNKNOWN)

    def offline(self, topic_id: bytes) -> frozenset[int]:
        """Indexes of the partitions of a topic that cannot be served here."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            return frozenset()
        return frozenset(partition.index for partition in topic.partitions.values() if partition.error)

    def add(self, topic: HostedTopic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def remove(self, name: str) -> HostedTopic:
        """Remove a topic. Its partitions are closed with UNKNOWN_TOPIC_OR_PARTITION, delayed fetches are completed."""
        topic = self._by_name.pop(name)
        del self._by_id[topic.topic_id]
        call_each(lambda partition: partition.close(UNKNOWN), topic.partitions.values())
        return topic

    def remove_partition(self, name: str, index: int) -> Partition:
        """Remove one partition as `remove` does, and its topic with its last partition. Raises KeyError."""
        topic = self._by_name[name]
        partition = topic.partitions.pop(index)
        if not topic.partitions:
            del self._by_name[name]
            del self._by_id[topic.topic_id]
        partition.close(UNKNOWN)
        return partition

    def complete_delayed_fetches(self) -> None:
        """Complete all delayed fetches with the records that exist."""
        for topic in self._by_name.values():
            for partition in topic.partitions.values():
                partition.complete_delayed_fetches()

    def mark_dirty(self, partition: Partition) -> None:
        """Write `partition` at the end of the loop iteration."""
        self._dirty.append(partition)

    def write_pending(self) -> None:
        """Write the queued appends of every partition with one system call each, then start the requested flushes.

        A completed fetch may cause further appends, so this repeats until none is left. An exception of a callback is
        raised after all partitions were written, because the received bytes are valid in this loop iteration only.
        """
        failure: Exception | None = None
        broken: list[Partition] = []
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            self._writing = True
            for partition in dirty:
                try:
                    partition.write()
                except Exception as error:
                    failure = failure or error
                    if partition not in self._dirty:  # else a callback has appended
                        broken.append(partition)
            self._writing = False
            if self._after_writes:
                failure = self._call_after_writes() or failure
        if broken:
            call_each(lambda partition: partition.abandon_unwritten(), broken)
        self.loop_budget.renew()
        if self.flusher is not None and self.flusher.waiting:
            self.flusher.begin()
        if failure is not None:
            raise failure

    @property
    def is_writing(self) -> bool:
        """Whether the appends of a loop iteration are being written: further ones are written with them."""
        return self._writing

    def after_writes(self, callback: Callable[[], object]) -> bool:
        """Call `callback` after the writes of this loop iteration; False if they are not in progress."""
        if self._writing:
            self._after_writes.append(callback)
        return self._writing

    def _call_after_writes(self) -> Exception | None:
        callbacks, self._after_writes = self._after_writes, []
        try:
            call_all(*callbacks)
        except Exception as error:
            return error
        return None
