"""Creating, deleting, growing and configuring topics: decided here, made durable by the store, then applied.

Each topic of a request stands for itself: one may be refused while the others are created. A change is applied to the
image and to the hosted partitions only after the store has it, so that what a client was told survives a crash.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from kafkalite.clock import Random
from kafkalite.cluster.image import ClusterImage, PartitionImage, TopicImage
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.dynamic import ConfigError, check_topic_configs
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.placement import place
from kafkalite.state.topic_names import colliding, complaint, is_internal

FIRST_EPOCH = 0
PARTITIONS_MAX = 100_000  # of one topic; a request for more is a mistake or an attack


class Refusal(NamedTuple):
    """Why something asked for was not done: a Kafka error code and a sentence for the user."""

    error: int
    message: str | None = None


class RefusedError(Exception):
    """A `Refusal` on its way up."""

    def __init__(self, error: int, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(error, message)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic asked for. None = the broker's default; `assignments`: partition -> broker ids, `assignment_count` as
    sent.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    assignment_count: int = 0
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic that should have `count` partitions in all; `assignments`: broker ids of each new one, or None."""

    name: str
    count: int
    assignments: list[tuple[int, ...]] | None = None


Outcomes = Callable[[list[Refusal | None]], None]


class Store(Protocol):
    """Where topics are kept; every call ends with `then(error)`, 0 once the change is durable."""

    def create_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def update_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def delete_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def configure_topic(self, name: str, configs: Mapping[str, str], then: Callable[[int], None]) -> None: ...


class Host(Protocol):
    """The broker around: what it knows, and what it does with a change."""

    config: BrokerConfig
    image: ClusterImage
    random: Random

    def topic_changed(self, topic: TopicImage) -> None: ...
    def topic_gone(self, name: str) -> None: ...


class Gather:
    """Waits for several outcomes and tells them together, in the order of the questions."""

    def __init__(self, count: int, then: Outcomes) -> None:
        self._outcomes: list[Refusal | None] = [None] * count
        self._open = count
        self._then = then
        if not count:
            then([])

    def put(self, at: int, refusal: Refusal | None) -> None:
        self._outcomes[at] = refusal
        self._open -= 1
        if not self._open:
            self._then(self._outcomes)


class Topics:
    """The topics of a cluster whose controller is this broker."""

    def __init__(self, host: Host, store: Store) -> None:
        self._host = host
        self._store = store
        self._busy: set[str] = set()  # names whose change is on its way to the store

    def create(self, asked: list[NewTopic], *, validate_only: bool, then: Outcomes) -> None:
        """Create topics; `then` gets one outcome each, None = created."""
        gather = Gather(len(asked), then)
        for at, new in enumerate(asked):
            try:
                topic = self.validated(new)
            except RefusedError as error:
                gather.put(at, error.refusal)
                continue
            if validate_only:
                gather.put(at, None)
            else:
                self._change(topic, self._store.create_topic, gather, at)

    def create_on_demand(self, names: list[str], then: Callable[[dict[str, int]], None]) -> None:
        """Create topics that a Metadata request named, if the broker allows it; `then` gets the codes of the failed
        ones.
        """
        if not self._host.config.auto_create_topics_enable:
            then({})
            return
        asked = [NewTopic(name) for name in dict.fromkeys(names)]

        def created(outcomes: list[Refusal | None]) -> None:
            then({new.name: refusal.error for new, refusal in zip(asked, outcomes, strict=True) if refusal is not None})

        self.create(asked, validate_only=False, then=created)

    def delete(self, names: list[str], then: Outcomes) -> None:
        """Delete topics that exist; `then` gets one outcome each, None = gone."""
        gather = Gather(len(names), then)
        for at, name in enumerate(names):
            refusal = self._deletion_refused(name)
            if refusal is not None:
                gather.put(at, refusal)
                continue
            self._busy.add(name)
            self._store.delete_topic(self._host.image.topics[name], partial(self._deleted, name, gather, at))

    def grow(self, asked: list[MorePartitions], *, validate_only: bool, then: Outcomes) -> None:
        """Add partitions; `then` gets one outcome each, None = grown."""
        gather = Gather(len(asked), then)
        for at, more in enumerate(asked):
            try:
                topic = self._grown(more)
            except RefusedError as error:
                gather.put(at, error.refusal)
                continue
            if validate_only:
                gather.put(at, None)
            else:
                self._change(topic, self._store.update_topic, gather, at)

    def configure(self, name: str, configs: Mapping[str, str], then: Callable[[Refusal | None], None]) -> None:
        """Replace a topic's configs (validated by the caller) and put them into force once they are durable."""
        topic = self._host.image.topics[name]
        changed = TopicImage(topic.name, topic.topic_id, topic.partitions, dict(configs))

        def done(error: int) -> None:
            if not error and name in self._host.image.topics:
                self._host.topic_changed(changed)
            then(Refusal(error) if error else None)

        self._store.configure_topic(name, configs, done)

    # Deciding.

    def validated(self, new: NewTopic) -> TopicImage:
        """The topic as it would be created; raises RefusedError."""
        self._check_name(new.name)
        configs = self._checked_configs(new.configs)
        replicas = self._assigned(new) if new.assignment_count else self._placed(new)
        return TopicImage(new.name, self._host.random.uuid(), tuple(map(fresh, replicas)), configs)

    def _check_name(self, name: str) -> None:
        wrong = complaint(name)
        if wrong:
            raise RefusedError(KafkaErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
        if name in self._host.image.topics or name in self._busy:
            raise RefusedError(KafkaErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = colliding(name, (*self._host.image.topics, *self._busy))
        if other is not None:
            raise RefusedError(
                KafkaErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other} ('.' and '_' are the same in metric names)",
            )

    def _checked_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        try:
            return check_topic_configs(self._host.config, configs)
        except ConfigError as error:
            raise RefusedError(error.code, str(error)) from error

    def _placed(self, new: NewTopic) -> list[tuple[int, ...]]:
        config = self._host.config
        count = config.num_partitions if new.partitions is None else new.partitions
        factor = config.default_replication_factor if new.replication_factor is None else new.replication_factor
        if not 1 <= count <= PARTITIONS_MAX:
            raise RefusedError(
                KafkaErrorCode.INVALID_PARTITIONS,
                f"Number of partitions was {count}, allowed is 1 to {PARTITIONS_MAX}.",
            )
        return self._place(count, factor, 0)

    def _place(self, count: int, factor: int, first_partition: int) -> list[tuple[int, ...]]:
        brokers = self._live()
        if not 1 <= factor <= len(brokers):
            raise RefusedError(
                KafkaErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor was {factor}, but {len(brokers)} broker(s) are alive.",
            )
        first_index, shift = self._host.random.below(len(brokers)), self._host.random.below(len(brokers))
        return place(brokers, count, factor, first_index=first_index, shift=shift, first_partition=first_partition)

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
                KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be assigned from 0 on without a gap."
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
                KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The replica assignment is not usable: {wrong}."
            )

    def _grown(self, more: MorePartitions) -> TopicImage:
        topic = self._host.image.topics.get(more.name)
        if topic is None:
            raise RefusedError(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{more.name}' does not exist.")
        has, added = len(topic.partitions), more.count - len(topic.partitions)
        if added <= 0 or more.count > PARTITIONS_MAX:
            raise RefusedError(
                KafkaErrorCode.INVALID_PARTITIONS,
                f"Topic '{more.name}' has {has} partition(s); {more.count} is not an increase up to {PARTITIONS_MAX}.",
            )
        factor = len(topic.partitions[0].replicas)
        if more.assignments is None:
            replicas = self._place(added, factor, has)
        else:
            if len(more.assignments) != added:
                raise RefusedError(
                    KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{added} partition(s) are new, but {len(more.assignments)} assignment(s) are given.",
                )
            self._check_assignment(more.assignments, factor)
            replicas = more.assignments
        return TopicImage(topic.name, topic.topic_id, (*topic.partitions, *map(fresh, replicas)), topic.configs)

    def _deletion_refused(self, name: str) -> Refusal | None:
        if not self._host.config.delete_topic_enable:
            return Refusal(KafkaErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if is_internal(name):
            return Refusal(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, f"'{name}' is an internal topic.")
        if name in self._busy or name not in self._host.image.topics:
            return Refusal(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None

    def _live(self) -> list[int]:
        return [broker.broker_id for broker in self._host.image.brokers]

    # Doing.

    def _change(
        self, topic: TopicImage, keep: Callable[[TopicImage, Callable[[int], None]], None], gather: Gather, at: int
    ) -> None:
        self._busy.add(topic.name)

        def kept(error: int) -> None:
            self._busy.discard(topic.name)
            if not error:
                self._host.topic_changed(topic)
            gather.put(at, Refusal(error) if error else None)

        keep(topic, kept)

    def _deleted(self, name: str, gather: Gather, at: int, error: int) -> None:
        self._busy.discard(name)
        if not error:
            self._host.topic_gone(name)
        gather.put(at, Refusal(error) if error else None)


def fresh(replicas: tuple[int, ...]) -> PartitionImage:
    """A partition nobody has written to: led by its preferred replica, everybody in sync."""
    return PartitionImage(replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=FIRST_EPOCH)
