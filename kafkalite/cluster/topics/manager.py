"""Creates, deletes, extends and configures topics: validates a change, makes it durable in the store, then applies it.

Each topic of a request is independent: one may be rejected while the others are created. A change is applied to the
image and to the hosted partitions only after it is durable, so that an acknowledged change survives a crash.

`TopicManager` is the same for every broker. Its `TopicControl` decides whether this broker may change topics, and
applies the changes: `OwnTopics` for a broker that is alone, `ControlledTopics` in a cluster. `auto_creation` creates
the unknown topics of Metadata requests.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kafkalite.callbacks import FanIn, SerialExecutor
from kafkalite.clock import Outcome
from kafkalite.cluster.changes import (
    Change,
    ChangeCompletion,
    Refusal,
    RefusedError,
    applying_later,
    refusal_of,
    run_change,
)
from kafkalite.cluster.configs.writes import ConfigChange, Written
from kafkalite.cluster.metadata.image import TopicImage, new_partition
from kafkalite.cluster.topics.control import REQUEST_MS, ChangeRequest, TopicControl, TopicHost
from kafkalite.cluster.topics.internal_topics import InternalTopic
from kafkalite.config.describe_and_alter import check_topic_configs
from kafkalite.config.keys import ConfigError
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import PARTITIONS_MAX, PARTITIONS_PER_REQUEST_MAX
from kafkalite.slicing import Steps, finish
from kafkalite.state.topic_names import complaint, fold, is_internal

LOGGER = logging.getLogger("kafkalite.cluster")
CHANGES_AT_ONCE = 20  # of one request; each takes some 200 us


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


class Store(Protocol):
    """The durable store of topics; each method calls `then(error)` once, with 0 when the change is durable."""

    def create_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def update_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def delete_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...

    def change_topic_configs(
        self, name: str, change: ConfigChange, then: Callable[[Written], object], *, validate_only: bool
    ) -> None: ...


RequestedChange = Callable[[ChangeRequest, ChangeCompletion], None]


class TopicManager:
    """Changes topics; changes of one topic run one after another.

    Arguments:
        host: this broker.
        store: makes changes durable.
        control: decides whether this broker may change topics, and applies durable changes.

    Attributes:
        control: the argument.
    """

    def __init__(self, host: TopicHost, store: Store, control: TopicControl) -> None:
        self._host = host
        self._store = store
        self.control = control
        self._serial = SerialExecutor()

    def create(
        self, asked: list[NewTopic], *, validate_only: bool, then: Outcomes, timeout_ms: int = REQUEST_MS
    ) -> None:
        """Create topics.

        Arguments:
            asked: the new topics.
            validate_only: whether they are only validated.
            then: receives one result for each, None if it was created.
            timeout_ms: of the request; it counts in a cluster only.
        """
        self._create_all(self.control.admit(timeout_ms), asked, validate_only, then)

    def create_for_broker(self, asked: list[NewTopic], then: Outcomes) -> None:
        """Create topics that this broker needs; the arguments are those of `create`.

        A topic that another broker has created meanwhile counts as created.
        """

        def created(outcomes: list[Refusal | None]) -> None:
            then([self._unless_shared(refusal) for refusal in outcomes])

        self._create_all(self.control.broker_request(), asked, False, created)

    def create_internal(self, topic: InternalTopic, then: ChangeCompletion) -> None:
        """Create an internal topic with the settings of its coordinator; `then` receives None or the refusal."""

        def created(outcomes: list[Refusal | None]) -> None:
            if outcomes[0] is None:
                LOGGER.info("created internal topic %s", topic.name)
                self.control.warn_of_few_replicas(topic)
            then(self._unless_shared(outcomes[0]))

        self._create_all(self.control.broker_request(), [self.internal_topic(topic)], False, created)

    def delete(self, names: list[str], then: Outcomes, timeout_ms: int = REQUEST_MS) -> None:
        """Delete topics; `then` receives one result for each, None if it was deleted. For `timeout_ms` see `create`."""
        self._begin(self.control.admit(timeout_ms), names, [partial(self._delete, name) for name in names], then)

    def grow(
        self, asked: list[NewPartitions], *, validate_only: bool, then: Outcomes, timeout_ms: int = REQUEST_MS
    ) -> None:
        """Add partitions; the arguments are those of `create`."""
        names, changes = [more.name for more in asked], [partial(self._grow, more, validate_only) for more in asked]
        self._begin(self.control.admit(timeout_ms), names, changes, then, map(self._added, asked))

    def configure(self, name: str, change: ConfigChange, *, validate_only: bool, then: ChangeCompletion) -> None:
        """Change the configs of a topic; they apply once they are durable.

        Arguments:
            name: of the topic.
            change: returns the new configs from the stored ones, or raises ConfigError.
            validate_only: whether the change is only validated.
            then: receives None when the change was applied, else the refusal.
        """
        self._run_serially(name, then, partial(self._configure, name, change, validate_only))

    def _create_all(
        self, request: ChangeRequest | Refusal, asked: list[NewTopic], validate_only: bool, then: Outcomes
    ) -> None:
        names, changes = [new.name for new in asked], [partial(self._create, new, validate_only) for new in asked]
        self._begin(request, names, changes, then, map(self._wanted, asked))

    def _unless_shared(self, refusal: Refusal | None) -> Refusal | None:
        """The refusal of a topic that this broker needs: none, if another broker has created it."""
        exists = refusal is not None and refusal.error == KafkaErrorCode.TOPIC_ALREADY_EXISTS
        return None if exists and self.control.shared else refusal

    def internal_topic(self, topic: InternalTopic) -> NewTopic:
        """The request for an internal topic, with the settings of its coordinator."""
        config = self._host.config
        factor = self.control.internal_factor(topic)
        return NewTopic(topic.name, topic.partitions(config), factor, configs=topic.configs(config))

    def _wanted(self, new: NewTopic) -> int:
        default = self._host.config.num_partitions if new.partitions is None else new.partitions
        return new.assignment_count or default

    def _added(self, more: NewPartitions) -> int:
        topic = self._host.tables.topics.get(more.name)
        return 0 if topic is None else more.count - len(topic.partitions)

    # One change after another.

    def _begin(
        self,
        request: ChangeRequest | Refusal,
        names: list[str],
        changes: Sequence[RequestedChange],
        then: Outcomes,
        added: Iterable[int] = (),
    ) -> None:
        """Start a change of each topic, in several loop iterations if there are many.

        Arguments:
            request: that they belong to, or why it is refused.
            names, changes: of the topics.
            then: receives one result for each.
            added: the number of new partitions of each topic.
        """
        if not isinstance(request, Refusal):
            request = excess(added) or request
        if isinstance(request, Refusal):
            then([request] * len(names))
            return
        run = partial(self.control.run, request)
        steps = self._beginnings(
            names, [partial(run, partial(change, request)) for change in changes], FanIn(len(names), then)
        )
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
        run_change(self._serial, fold(name), change, then)  # names that collide are one key

    def _create(self, new: NewTopic, validate_only: bool, request: ChangeRequest, complete: ChangeCompletion) -> None:
        topic = self.validate(new)
        if validate_only:
            complete(None)
        else:
            self._store.create_topic(topic, self._changed(request, topic, complete))

    def _grow(
        self, more: NewPartitions, validate_only: bool, request: ChangeRequest, complete: ChangeCompletion
    ) -> None:
        topic = self._grown(more)
        if validate_only:
            complete(None)
        else:
            self._store.update_topic(topic, self._changed(request, topic, complete))

    def _configure(self, name: str, change: ConfigChange, validate_only: bool, complete: ChangeCompletion) -> None:
        topic = self._existing(name)

        def changed(written: Written) -> None:
            if written.error or validate_only:
                complete(refusal_of(written.error))
            else:
                image = TopicImage(topic.name, topic.topic_id, topic.partitions, dict(written.texts))
                applying_later(partial(self.control.configs_changed, image), complete)(0)

        self._store.change_topic_configs(name, change, changed, validate_only=validate_only)

    def _delete(self, name: str, request: ChangeRequest, complete: ChangeCompletion) -> None:
        if not self._host.config.delete_topic_enable:
            raise RefusedError(KafkaErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if is_internal(name):
            raise RefusedError(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, f"'{name}' is an internal topic.")
        topic = self._existing(name)
        self._store.delete_topic(topic, applying_later(partial(self.control.topic_gone, request, name), complete))

    def _changed(self, request: ChangeRequest, topic: TopicImage, complete: ChangeCompletion) -> Callable[[int], None]:
        return applying_later(partial(self.control.topic_changed, request, topic), complete)

    # Validation.

    def validate(self, new: NewTopic) -> TopicImage:
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
        other = self._host.tables.topics_by_folded_name.get(fold(name))
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
        if not racks:
            raise RefusedError(KafkaErrorCode.INVALID_REPLICATION_FACTOR, "This broker does not know the others yet.")
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
        live = {broker.broker_id for broker in self._host.tables.brokers}
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
