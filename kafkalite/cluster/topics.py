"""Creates, deletes, extends and configures topics: validates a change, makes it durable in the store, then applies it.

Each topic of a request is independent: one may be rejected while the others are created. A change is applied to the
image and to the hosted partitions only after it is durable, so that an acknowledged change survives a crash.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from kafkalite.callbacks import FanIn, SerialExecutor, once
from kafkalite.clock import Outcome, Random, Then
from kafkalite.cluster.config_writes import ConfigChange, Texts, Written
from kafkalite.cluster.image import ClusterTables, TopicImage, new_partition
from kafkalite.cluster.internal_topics import INTERNAL_TOPICS, InternalTopic
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.dynamic import check_topic_configs
from kafkalite.config.keys import ConfigError
from kafkalite.errors import KafkaErrorCode, reason_of, shortened
from kafkalite.model import PARTITIONS_MAX
from kafkalite.slicing import Slicer, Steps, finish
from kafkalite.state.topic_names import complaint, folded, is_internal

LOGGER = logging.getLogger("kafkalite.cluster")
CHANGES_AT_ONCE = 20  # of one request; each takes some 200 us
PARTITIONS_PER_REQUEST_MAX = 10_000  # as in Kafka (KAFKA-17870): each needs memory, znodes and time of the loop
REQUEST_MS = 30_000  # timeout of a request that has none


class _Refusal(NamedTuple):
    error: int
    message: str | None = None


class Refusal(_Refusal):
    """Why a change was rejected: a Kafka error code and a message for the user, short enough for a response."""

    __slots__ = ()

    def __new__(cls, error: int, message: str | None = None) -> "Refusal":
        return super().__new__(cls, error, None if message is None else shortened(message))


class RefusedError(Exception):
    """Raised with the `Refusal` of a change."""

    def __init__(self, error: int, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(error, message)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A requested topic.

    Arguments:
        name: of the topic.
        partitions, replication_factor: None for the default of the broker.
        assignments: broker ids by partition.
        assignment_count: number of assignments in the request.
        configs: by key; None for the default.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    assignment_count: int = 0
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A requested total of `count` partitions; `assignments`: broker ids of each new one, or None."""

    name: str
    count: int
    assignments: list[tuple[int, ...]] | None = None


Outcomes = Callable[[list[Refusal | None]], None]
ChangeCompletion = Callable[[Refusal | None], None]
Change = Callable[[ChangeCompletion], None]


class Store(Protocol):
    """The durable store of topics; each method calls `then(error)` once, with 0 when the change is durable."""

    def create_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def update_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def delete_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...

    def change_topic_configs(
        self, name: str, change: ConfigChange, then: Callable[[Written], object], *, validate_only: bool
    ) -> None: ...


class TopicHost(Protocol):
    """The part of the broker that topics use; it applies their changes."""

    config: BrokerConfig
    random: Random
    slicer: Slicer

    @property
    def tables(self) -> ClusterTables: ...

    def topic_changed(self, topic: TopicImage, done: Then) -> None: ...
    def topic_gone(self, name: str, done: Then) -> None: ...


class TopicManager:
    """Changes the topics of a cluster whose controller is this broker; changes of one topic run one after another."""

    def __init__(self, host: TopicHost, store: Store) -> None:
        self._host = host
        self._store = store
        self._serial = SerialExecutor()

    def create(
        self, asked: list[NewTopic], *, validate_only: bool, then: Outcomes, timeout_ms: int = REQUEST_MS
    ) -> None:
        """Create topics; `then` receives one result for each, None if it was created.

        Here and below, `timeout_ms` counts in a cluster only: a broker that is alone waits for nothing but its disk.
        """
        refusal = excess(map(self._wanted, asked))
        if refusal is not None:
            then([refusal] * len(asked))
            return
        self._begin([new.name for new in asked], [partial(self._create, new, validate_only) for new in asked], then)

    def create_on_demand(self, names: list[str], then: Callable[[dict[str, int]], None]) -> None:
        """Create topics of a Metadata request, if the broker allows it; `then` receives the error codes by topic."""
        if not self._host.config.auto_create_topics_enable:
            then({})
            return
        asked = [self._on_demand(name) for name in dict.fromkeys(names)]

        def created(outcomes: list[Refusal | None]) -> None:
            for new, refusal in zip(asked, outcomes, strict=True):
                if refusal is None and new.name in INTERNAL_TOPICS:
                    brokers = len(self._host.tables.brokers)
                    INTERNAL_TOPICS[new.name].warn_of_one_replica(self._host.config, brokers)
            then({new.name: refusal.error for new, refusal in zip(asked, outcomes, strict=True) if refusal is not None})

        self.create(asked, validate_only=False, then=created)

    def create_internal(self, topic: InternalTopic, then: ChangeCompletion) -> None:
        """Create an internal topic with the settings of its coordinator; `then` receives None or the refusal."""

        def created(outcomes: list[Refusal | None]) -> None:
            if outcomes[0] is None:
                LOGGER.info("created internal topic %s", topic.name)
                topic.warn_of_one_replica(self._host.config, len(self._host.tables.brokers))
            then(outcomes[0])

        self.create([self._internal(topic)], validate_only=False, then=created)

    def delete(self, names: list[str], then: Outcomes, timeout_ms: int = REQUEST_MS) -> None:
        """Delete topics; `then` receives one result for each, None if it was deleted."""
        self._begin(names, [partial(self._delete, name) for name in names], then)

    def grow(
        self, asked: list[NewPartitions], *, validate_only: bool, then: Outcomes, timeout_ms: int = REQUEST_MS
    ) -> None:
        """Add partitions; `then` receives one result for each topic, None if they were added."""
        refusal = excess(map(self._added, asked))
        if refusal is not None:
            then([refusal] * len(asked))
            return
        self._begin([more.name for more in asked], [partial(self._grow, more, validate_only) for more in asked], then)

    def configure(self, name: str, change: ConfigChange, *, validate_only: bool, then: ChangeCompletion) -> None:
        """Change the configs of a topic; they apply once they are durable.

        Arguments:
            name: of the topic.
            change: returns the new configs from the stored ones, or raises ConfigError.
            validate_only: whether the change is only validated.
            then: receives None when the change was applied, else the refusal.
        """
        self._run_serially(name, then, partial(self._configure, name, change, validate_only))

    def _on_demand(self, name: str) -> NewTopic:
        internal = INTERNAL_TOPICS.get(name)
        return NewTopic(name) if internal is None else self._internal(internal)

    def _internal(self, topic: InternalTopic) -> NewTopic:
        config = self._host.config
        replicas = topic.replication_factor(config, len(self._host.tables.brokers))
        return NewTopic(topic.name, topic.partitions(config), replicas, configs=topic.configs(config))

    def _wanted(self, new: NewTopic) -> int:
        default = self._host.config.num_partitions if new.partitions is None else new.partitions
        return new.assignment_count or default

    def _added(self, more: NewPartitions) -> int:
        topic = self._host.tables.topics.get(more.name)
        return 0 if topic is None else more.count - len(topic.partitions)

    # One change after another.

    def _begin(self, names: list[str], changes: list[Change], then: Outcomes) -> None:
        """Start a change of each topic, in several loop iterations if there are many."""
        steps = self._beginnings(names, changes, FanIn(len(names), then))
        if len(names) <= CHANGES_AT_ONCE:
            finish(steps)
        else:
            self._host.slicer.run(steps, Outcome.result)

    def _beginnings(self, names: list[str], changes: list[Change], outcomes: FanIn[Refusal | None]) -> Steps:
        failure: Exception | None = None
        for at, (name, change) in enumerate(zip(names, changes, strict=True)):
            try:
                self._run_serially(name, partial(outcomes.put, at), change)
            except Exception as error:  # this change was rejected; the others continue
                failure = failure or error
            yield
        if failure is not None:
            raise failure

    def _run_serially(self, name: str, then: ChangeCompletion, change: Change) -> None:
        """Run `change` when no other change of this topic runs."""
        run_change(self._serial, folded(name), change, then)  # names that collide are one key

    def _create(self, new: NewTopic, validate_only: bool, complete: ChangeCompletion) -> None:
        topic = self.validated(new)
        if validate_only:
            complete(None)
        else:
            self._store.create_topic(topic, self._configured(topic, complete))

    def _grow(self, more: NewPartitions, validate_only: bool, complete: ChangeCompletion) -> None:
        topic = self._grown(more)
        if validate_only:
            complete(None)
        else:
            self._store.update_topic(topic, self._configured(topic, complete))

    def _configure(self, name: str, change: ConfigChange, validate_only: bool, complete: ChangeCompletion) -> None:
        topic = self._existing(name)

        def changed(written: Written) -> None:
            if written.error or validate_only:
                complete(refusal_of(written.error))
            else:
                self._apply_configs(topic, written.texts, complete)

        self._store.change_topic_configs(name, change, changed, validate_only=validate_only)

    def _apply_configs(self, topic: TopicImage, texts: Texts, complete: ChangeCompletion) -> None:
        """Apply stored configs of a topic."""
        image = TopicImage(topic.name, topic.topic_id, topic.partitions, dict(texts))
        self._configured(image, complete)(0)

    def _delete(self, name: str, complete: ChangeCompletion) -> None:
        if not self._host.config.delete_topic_enable:
            raise RefusedError(KafkaErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if is_internal(name):
            raise RefusedError(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, f"'{name}' is an internal topic.")
        topic = self._existing(name)

        self._store.delete_topic(topic, applying_later(partial(self._host.topic_gone, name), complete))

    def _configured(self, topic: TopicImage, complete: ChangeCompletion) -> Callable[[int], None]:
        return applying_later(partial(self._host.topic_changed, topic), complete)

    # Validation.

    def validated(self, new: NewTopic) -> TopicImage:
        """The topic to create. Raises RefusedError."""
        self._check_name(new.name)
        configs = self._checked_configs(new.configs)
        replicas = self._assigned(new) if new.assignment_count else self._assigned_replicas(new)
        return TopicImage(new.name, self._host.random.uuid(), tuple(map(new_partition, replicas)), configs)

    def _check_name(self, name: str) -> None:
        wrong = complaint(name)
        if wrong:
            raise RefusedError(KafkaErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
        if name in self._host.tables.topics:
            raise RefusedError(KafkaErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._host.tables.topics_by_folded_name.get(folded(name))
        if other is not None:
            raise RefusedError(
                KafkaErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other.name} ('.' and '_' are the same in metric names)",
            )

    def _checked_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        try:
            return check_topic_configs(self._host.config, configs)
        except ConfigError as error:
            raise RefusedError(error.code, str(error)) from error

    def _assigned_replicas(self, new: NewTopic) -> list[tuple[int, ...]]:
        config = self._host.config
        count = config.num_partitions if new.partitions is None else new.partitions
        factor = config.default_replication_factor if new.replication_factor is None else new.replication_factor
        if not 1 <= count <= PARTITIONS_MAX:
            raise RefusedError(
                KafkaErrorCode.INVALID_PARTITIONS,
                f"Number of partitions was {count}, expected 1 to {PARTITIONS_MAX}.",
            )
        return self._assign_replicas(count, factor, 0)

    def _assign_replicas(self, count: int, factor: int, first_partition: int) -> list[tuple[int, ...]]:
        from kafkalite.state.placement import PlacementError, assign_replicas  # a start does not need it

        racks = {broker.broker_id: broker.rack for broker in self._host.tables.brokers}
        first_index, shift = self._host.random.below(len(racks)), self._host.random.below(len(racks))
        try:
            return assign_replicas(
                racks, count, factor, first_index=first_index, shift=shift, first_partition=first_partition
            )
        except PlacementError as error:
            raise RefusedError(error.code, str(error)) from error

    def _assigned(self, new: NewTopic) -> list[tuple[int, ...]]:
        if new.partitions is not None or new.replication_factor is not None:
            raise RefusedError(
                KafkaErrorCode.INVALID_REQUEST,
                "Give either an assignment, or numbers of partitions and replicas; with an assignment both must be -1.",
            )
        if len(new.assignments) != new.assignment_count:
            raise RefusedError(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned twice.")
        if sorted(new.assignments) != list(range(new.assignment_count)):
            raise RefusedError(
                KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be assigned consecutively, starting with 0."
            )
        replicas = [new.assignments[index] for index in range(new.assignment_count)]
        self._check_assignment(replicas, len(replicas[0]))
        return replicas

    def _check_assignment(self, assignment: Iterable[tuple[int, ...]], factor: int) -> None:
        live = set(self._live())
        for replicas in assignment:
            if not replicas or len(set(replicas)) != len(replicas):
                wrong = f"a partition's replicas {list(replicas)} are empty or name a broker twice"
            elif len(replicas) != factor:
                wrong = f"partitions have {len(replicas)} and {factor} replicas"
            elif not live.issuperset(replicas):
                wrong = f"the brokers {sorted(set(replicas) - live)} are not alive"
            else:
                continue
            raise RefusedError(
                KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The replica assignment is invalid: {wrong}."
            )

    def _grown(self, more: NewPartitions) -> TopicImage:
        topic = self._existing(more.name)
        if is_internal(more.name):  # its coordinator would search its records in other partitions
            text = f"The number of partitions of the internal topic '{more.name}' cannot be changed."
            raise RefusedError(KafkaErrorCode.INVALID_PARTITIONS, text)
        has, added = len(topic.partitions), more.count - len(topic.partitions)
        if added <= 0 or more.count > PARTITIONS_MAX:
            raise RefusedError(KafkaErrorCode.INVALID_PARTITIONS, no_growth(has, more.count))
        factor = len(topic.partitions[0].replicas)
        if more.assignments is None:
            replicas = self._assign_replicas(added, factor, has)
        else:
            if len(more.assignments) != added:
                raise RefusedError(
                    KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{added} partition(s) are new, but {len(more.assignments)} assignment(s) are given.",
                )
            self._check_assignment(more.assignments, factor)
            replicas = more.assignments
        return TopicImage(topic.name, topic.topic_id, (*topic.partitions, *map(new_partition, replicas)), topic.configs)

    def _existing(self, name: str) -> TopicImage:
        topic = self._host.tables.topics.get(name)
        if topic is None:
            raise RefusedError(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic

    def _live(self) -> list[int]:
        return [broker.broker_id for broker in self._host.tables.brokers]


def run_change(serial: SerialExecutor, key: Hashable, change: Change, then: ChangeCompletion) -> None:
    """Run a change after all earlier ones of its key.

    Arguments:
        serial: of the objects that are changed.
        key: of the object.
        change: calls its argument with its outcome, or raises RefusedError.
        then: called once: with None, or with the reason of the refusal.
    """

    def step(end: Callable[[], None]) -> None:
        def end_change(refusal: Refusal | None) -> None:
            try:
                then(refusal)
            finally:
                end()

        complete = once(end_change)  # an exception of the next change, which `end` runs, propagates through this one
        attempt(partial(change, complete), complete)

    serial.run(key, step)


def attempt(change: Callable[[], object], complete: ChangeCompletion) -> None:
    """Start or continue a change. A RefusedError completes it; any other exception completes it and is raised."""
    try:
        change()
    except RefusedError as error:
        complete(error.refusal)
    except Exception:
        complete(Refusal(KafkaErrorCode.UNKNOWN_SERVER_ERROR))
        raise


def applying(apply: Callable[[], None], complete: ChangeCompletion) -> Callable[[int], None]:
    """A callback for the error code of the store: applies the change if it is 0, and completes it."""

    def kept(error: int) -> None:
        if not error:
            attempt(apply, complete)
        complete(refusal_of(error))

    return kept


def refusal_of(error: int) -> Refusal | None:
    """The refusal of a change with this error code, None for 0."""
    return Refusal(error, reason_of(error)) if error else None


def applying_later(apply: Callable[[Then], None], complete: ChangeCompletion) -> Callable[[int], None]:
    """As `applying`; `apply` may take several loop iterations, and calls its argument with its outcome."""

    def applied(outcome: Outcome) -> None:
        attempt(outcome.result, complete)
        complete(None)

    def kept(error: int) -> None:
        if error:
            complete(Refusal(error, reason_of(error)))
        else:
            attempt(partial(apply, applied), complete)

    return kept


def excess(partitions: Iterable[int]) -> Refusal | None:
    """The refusal of a request with too many new partitions, or None; other checks reject invalid numbers."""
    total = sum(count for count in partitions if 0 < count <= PARTITIONS_MAX)
    if total <= PARTITIONS_PER_REQUEST_MAX:
        return None
    text = f"{total} new partitions are too many for one request: allowed are {PARTITIONS_PER_REQUEST_MAX}."
    return Refusal(KafkaErrorCode.POLICY_VIOLATION, text)


def no_growth(has: int, asked: int) -> str:
    """Why a topic with `has` partitions cannot have `asked` partitions; in the words of Kafka, which tools expect."""
    if asked == has:
        return f"Topic already has {has} partition(s)."
    if asked < has:
        return f"The topic currently has {has} partition(s); {asked} would not be an increase."
    return f"Number of partitions was {asked}, allowed is up to {PARTITIONS_MAX}."
