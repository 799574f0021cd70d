"""Consumers that join groups, each in its own thread, so that one group can have several.

Invariants: a member is driven by its own thread alone (others ask it by `ask`); it commits on request, never by
itself; each change is announced on the crowd's one condition, so no caller polls; what goes wrong in a
member is raised by the crowd's next wait, or at its end.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiokafka.errors
import confluent_kafka as ck
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange

from tests.kit.clients.confluent import QUIET, GroupConsumer
from tests.kit.clients.model import DEADLINE_S
from tests.kit.clients.python import KafkaConsumer
from tests.kit.isolated import Isolated

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import KafkaError


class CommitRefused(Exception):
    """A Java consumer's commit failed because its group rebalances."""


# What libraries raise when a commit is not taken: in a rebalance, without a broker, by one that lost its place.
REFUSED = (ck.KafkaException, aiokafka.errors.KafkaError, KafkaError, CommitRefused)
POLL_S = 0.05
HEARTBEAT_MS = 200
REFRESH_MS = 300

TopicPartition = tuple[str, int]


class Seen(NamedTuple):
    """Where a record lay that a member read."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Wish:
    """What a member asks for: topics by name or, where there is one, by pattern (a regular expression from `^` on)."""

    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance: str | None = None
    session_ms: int = 10_000


class Member(threading.Thread, ABC):
    """One consumer: what it owns, what it has read, and its failure, if it came to one."""

    def __init__(self, crowd: Crowd, wish: Wish) -> None:
        super().__init__(name=f"{type(self).__name__} of {wish.group}", daemon=True)
        self.wish = wish
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.seen: list[Seen] = []
        self.failure: Exception | None = None
        self.forgiven = False
        self._crowd = crowd
        self.address = crowd.address
        self._ending = threading.Event()
        self._asked: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    def run(self) -> None:
        try:
            with self._opened():
                while not self._ending.is_set():
                    self._report(self._poll(), self._assignment())
                    while self._asked:
                        answer_with(*self._asked.popleft())
        except Exception as failure:  # raised again where it is waited for
            self.failure = failure
        self._report([], frozenset())

    def _report(self, fresh: list[Seen], assigned: frozenset[TopicPartition]) -> None:
        if not fresh and assigned == self.assigned and self.failure is None:
            return
        with self._crowd.changed:
            self.seen += fresh
            self.assigned = assigned
            self._crowd.changed.notify_all()

    def ask(self, job: Callable[[], Any]) -> Any:
        """Have the member's own thread do this, between two polls; answers what it returned, raises what it raised."""
        answer: Future[Any] = Future()
        self._asked.append((job, answer))
        return answer.result(DEADLINE_S)

    def commit(self, before: Callable[[], None] | None = None) -> None:
        """Commit how far it has read; returns when the broker has taken it, raises REFUSED if it has not.

        before: done first, by the member's thread, so that nothing is read between it and the commit.
        """

        def both() -> None:
            if before is not None:
                before()
            self._commit()

        self.ask(both)

    def set(self, offsets: Mapping[TopicPartition, int]) -> str | None:
        """Commit these offsets, also of partitions of other members; returns why the broker rejected some of them."""
        return self.ask(lambda: self._set(offsets))  # type: ignore[no-any-return]

    def leave(self) -> None:
        """Close the consumer: a dynamic member leaves its group."""
        self._ending.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), f"{self.name} does not close"

    @contextmanager
    @abstractmethod
    def _opened(self) -> Iterator[None]: ...

    @abstractmethod
    def _poll(self) -> list[Seen]: ...

    @abstractmethod
    def _assignment(self) -> frozenset[TopicPartition]: ...

    @abstractmethod
    def _commit(self) -> None: ...

    def _set(self, offsets: Mapping[TopicPartition, int]) -> str | None:
        raise NotImplementedError(type(self).__name__)


def answer_with(job: Callable[[], Any], answer: Future[Any]) -> None:
    """Do the job, and let who waits for its answer have what became of it."""
    try:
        answer.set_result(job())
    except Exception as error:  # raised again by who asked
        answer.set_exception(error)


class Librdkafka(Member):
    """confluent-kafka, by any of its three kinds of rebalance, in a process that can be killed.

    Attributes:
        assignments: how often it was given partitions.
    """

    def __init__(self, crowd: Crowd, wish: Wish, **more: Any) -> None:
        super().__init__(crowd, wish)
        self.assignments = 0
        if more.get("group.protocol") != "consumer":
            more |= {"session.timeout.ms": wish.session_ms, "heartbeat.interval.ms": HEARTBEAT_MS}
        if wish.instance is not None:
            more["group.instance.id"] = wish.instance
        self._settings = {
            "bootstrap.servers": self.address,
            "group.id": wish.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "reconnect.backoff.max.ms": 500,
            "fetch.wait.max.ms": 100,
            "log_level": QUIET,
            **more,
        }

    @contextmanager
    def _opened(self) -> Iterator[None]:
        topics = [self.wish.pattern] if self.wish.pattern else list(self.wish.topics)
        with Isolated(GroupConsumer, self._settings, topics) as self._consumer:
            yield

    def _poll(self) -> list[Seen]:
        records, errors = self._consumer.consume(500, POLL_S)
        for error in errors:
            if error.fatal() or (not error.retriable() and error.code() not in PASSING):
                raise ck.KafkaException(error)
        return [Seen(*record) for record in records]

    def _assignment(self) -> frozenset[TopicPartition]:
        assigned, self.assignments = self._consumer.assignment()
        return assigned  # type: ignore[no-any-return]

    def _commit(self) -> None:
        try:
            self._consumer.commit()
        except ck.KafkaException as error:
            if error.args[0].code() != ck.KafkaError._NO_OFFSET:  # it has read nothing since
                raise

    def _set(self, offsets: Mapping[TopicPartition, int]) -> str | None:
        try:
            self._consumer.commit(dict(offsets))
        except ck.KafkaException as error:
            return str(error.args[0].str())
        return None


# Errors that librdkafka only reports, and from which it recovers by itself.
PASSING = {
    ck.KafkaError._TRANSPORT,
    ck.KafkaError._ALL_BROKERS_DOWN,
    ck.KafkaError._RESOLVE,
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
    ck.KafkaError.REBALANCE_IN_PROGRESS,  # a join that waited when its group was converted
}


class KafkaPythonMember(Member):
    """kafka-python, eager."""

    @contextmanager
    def _opened(self) -> Iterator[None]:
        self._consumer = KafkaConsumer(
            bootstrap_servers=self.address,
            group_id=self.wish.group,
            group_instance_id=self.wish.instance,
            session_timeout_ms=self.wish.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=REFRESH_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            reconnect_backoff_max_ms=500,
            request_timeout_ms=20_000,
        )
        with closing(self._consumer):
            self._consumer.subscribe(self.wish.topics, self.wish.pattern)
            yield

    def _poll(self) -> list[Seen]:
        found = self._consumer.poll(int(POLL_S * 1000))
        self._join_again_if_lost()
        return [Seen(m.topic, m.partition, m.offset) for messages in found.values() for m in messages]

    def _join_again_if_lost(self) -> None:
        """kafka-python 3.0 can lose the end of a rebalance, and then neither reads nor sends heartbeats any more.

        As the leader it joins again when metadata changed. If a poll ends while its SyncGroup is on the way, later
        polls see that it has assigned by the new metadata, and no poll returns the result of the join.
        """
        coordinator = self._consumer._coordinator
        if (task := coordinator._join_task) is not None and task.is_done and not coordinator.need_rejoin():
            coordinator.request_rejoin()

    def _assignment(self) -> frozenset[TopicPartition]:
        return frozenset(
            (topic_partition.topic, topic_partition.partition) for topic_partition in self._consumer.assignment()
        )

    def _commit(self) -> None:
        self._consumer.commit()


class AioKafkaMember(Member):
    """aiokafka, eager. Its loop runs in this thread only, so a member that is held is silent."""

    @contextmanager
    def _opened(self) -> Iterator[None]:
        with asyncio.Runner() as runner:
            self._runner = runner
            self._consumer = runner.run(self._start())
            try:
                yield
            finally:
                runner.run(self._consumer.stop())

    async def _start(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.address,
            group_id=self.wish.group,
            group_instance_id=self.wish.instance,
            session_timeout_ms=self.wish.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=REFRESH_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            partition_assignment_strategy=(AioRange,),
        )
        await consumer.start()
        consumer.subscribe(self.wish.topics, self.wish.pattern)
        return consumer

    def _poll(self) -> list[Seen]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [Seen(m.topic, m.partition, m.offset) for messages in found.values() for m in messages]

    def _assignment(self) -> frozenset[TopicPartition]:
        return frozenset(
            (topic_partition.topic, topic_partition.partition) for topic_partition in self._consumer.assignment()
        )

    def _commit(self) -> None:
        self._runner.run(self._consumer.commit())


@dataclass(frozen=True)
class Kind:
    """A library and a way of rebalancing."""

    name: str
    make: Callable[[Crowd, Wish], Member]


EAGER = Kind("librdkafka-eager", partial(Librdkafka, **{"partition.assignment.strategy": "range"}))
COOPERATIVE = Kind(
    "librdkafka-cooperative", partial(Librdkafka, **{"partition.assignment.strategy": "cooperative-sticky"})
)
CONSUMER = Kind("librdkafka-consumer", partial(Librdkafka, **{"group.protocol": "consumer"}))
AIO = Kind("aiokafka", AioKafkaMember)
PYTHON = Kind("kafka-python", KafkaPythonMember)
KINDS = (EAGER, COOPERATIVE, CONSUMER, AIO, PYTHON)


class Crowd:
    """Members and what is expected of them together; ends them all with its block."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.changed = threading.Condition()
        self.members: list[Member] = []

    def join(self, kind: Kind, wish: Wish) -> Member:
        """One more member; returns at once."""
        member = kind.make(self, wish)
        self.members.append(member)
        member.start()
        return member

    def wait(self, until: Callable[[], object], what: str, *, seconds: float = DEADLINE_S) -> None:
        """Wait until it is true; raises the error of a member, or after the deadline one with the states of all."""
        with self.changed:
            self.changed.wait_for(lambda: until() or self.failed(), seconds)
            if not until():
                self.check()
                state = {member.name: sorted(member.assigned) for member in self.members}
                raise AssertionError(f"not in time: {what}; assigned are {state}")

    def failed(self) -> list[Member]:
        return [member for member in self.members if member.failure is not None and not member.forgiven]

    def check(self) -> None:
        """Raise the failures that no test has read."""
        if failed := self.failed():
            raise ExceptionGroup("members failed", [each.failure for each in failed if each.failure is not None])

    def refused(self, member: Member) -> Exception:
        """Wait until this member has failed, and answer why."""
        member.forgiven = True
        self.wait(lambda: member.failure, f"{member.name} is refused")
        assert member.failure is not None
        return member.failure

    def share(self, topic_partitions: Iterable[TopicPartition], *members: Member) -> None:
        """Wait until these members own these places: each place one owner, no member idle."""
        wanted = sorted(topic_partitions)

        def fair() -> bool:
            return sorted(p for m in members for p in m.assigned) == wanted and all(m.assigned for m in members)

        self.wait(fair, f"{len(members)} members share {wanted}")

    def read(self, records: Iterable[Seen], *members: Member) -> None:
        """Wait until these members have read all of these records between them."""
        wanted = set(records)
        self.wait(lambda: wanted <= {seen for m in members for seen in m.seen}, f"{len(wanted)} records are read")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            if member.is_alive():
                member.leave()
        if error is None:
            self.check()
