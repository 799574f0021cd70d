"""Creating, deleting, growing and configuring topics: decided here, made durable by the store, then applied.

Each topic of a request stands for itself: one may be refused while the others are created. A change is applied to the
image and to the hosted partitions only after the store has it, so that what a client was told survives a crash.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from kafkalite.clock import Outcome, Random
from kafkalite.cluster.image import ClusterTables, TopicImage, new_partition
from kafkalite.cluster.internal import INTERNAL_TOPICS, InternalTopic
from kafkalite.cluster.turns import Turns
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.dynamic import ConfigError, check_topic_configs
from kafkalite.errors import KafkaErrorCode, reason_of, shortened
from kafkalite.slicing import Slicer, Steps, finish
from kafkalite.state.placement import place
from kafkalite.state.topic_names import complaint, folded, is_internal

LOGGER = logging.getLogger("kafkalite.cluster")
CHANGES_AT_ONCE = 20  # of one request; each takes some 200 us
PARTITIONS_PER_REQUEST_MAX = 10_000  # as in Kafka (KAFKA-17870): each takes memory, nodes, and time of the loop
PARTITIONS_MAX = 100_000  # of one topic; a request for more is a mistake or an attack


class _Refusal(NamedTuple):
    error: int
    message: str | None = None


class Refusal(_Refusal):
    """Why something asked for was not done: a Kafka error code and a sentence for the user, short enough to be sent."""

    __slots__ = ()

    def __new__(cls, error: int, message: str | None = None) -> "Refusal":
        return super().__new__(cls, error, None if message is None else shortened(message))


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
Settle = Callable[[Refusal | None], None]
Change = Callable[[Settle], None]
ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]


class Store(Protocol):
    """Where topics are kept; every call ends with `then(error)`, 0 once the change is durable."""

    def create_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def update_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def delete_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None: ...
    def configure_topic(self, name: str, configs: Mapping[str, str], then: Callable[[int], None]) -> None: ...


class Host(Protocol):
    """The broker around: what it knows, and what it does with a change."""

    config: BrokerConfig
    random: Random
    slicer: Slicer

    @property
    def tables(self) -> ClusterTables: ...

    def topic_changed(self, topic: TopicImage, done: Callable[[Outcome], object]) -> None: ...
    def topic_gone(self, name: str, done: Callable[[Outcome], object]) -> None: ...


class Gather:
    """Waits for several outcomes and tells them together, in the order of the questions."""

    def __init__(self, count: int, then: Outcomes) -> None:
        self._outcomes: list[Refusal | None] = [None] * count
        self._open = count
        self._then = then
        if not count:
            then([])

    def refused_all(self, refusal: Refusal | None) -> bool:
        """Whether there is a refusal that holds for the whole request; then everybody has been told."""
        if refusal is None:
            return False
        for at in range(self._open):
            self.put(at, refusal)
        return True

    def put(self, at: int, refusal: Refusal | None) -> None:
        self._outcomes[at] = refusal
        self._open -= 1
        if not self._open:
            self._then(self._outcomes)


class Topics:
    """The topics of a cluster whose controller is this broker. Changes of one topic take turns."""

    def __init__(self, host: Host, store: Store) -> None:
        self._host = host
        self._store = store
        self._turns = Turns()

    def create(self, asked: list[NewTopic], *, validate_only: bool, then: Outcomes) -> None:
        """Create topics; `then` gets one outcome each, None = created."""
        gather = Gather(len(asked), then)
        if gather.refused_all(excess(map(self._wanted, asked))):
            return
        self._begin([new.name for new in asked], [partial(self._create, new, validate_only) for new in asked], gather)

    def create_on_demand(self, names: list[str], then: Callable[[dict[str, int]], None]) -> None:
        """Create topics that a Metadata request named, if the broker allows it; `then` gets the codes of the failed
        ones.
        """
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

    def create_internal(self, topic: InternalTopic, then: Settle) -> None:
        """Create an internal topic as its coordinator needs it; `then` gets None, or why it was not."""

        def created(outcomes: list[Refusal | None]) -> None:
            if outcomes[0] is None:
                LOGGER.info("created internal topic %s for its coordinator", topic.name)
                topic.warn_of_one_replica(self._host.config, len(self._host.tables.brokers))
            then(outcomes[0])

        self.create([self._internal(topic)], validate_only=False, then=created)

    def delete(self, names: list[str], then: Outcomes) -> None:
        """Delete topics that exist; `then` gets one outcome each, None = gone."""
        gather = Gather(len(names), then)
        self._begin(names, [partial(self._delete, name) for name in names], gather)

    def grow(self, asked: list[MorePartitions], *, validate_only: bool, then: Outcomes) -> None:
        """Add partitions; `then` gets one outcome each, None = grown."""
        gather = Gather(len(asked), then)
        if gather.refused_all(excess(map(self._added, asked))):
            return
        self._begin([more.name for more in asked], [partial(self._grow, more, validate_only) for more in asked], gather)

    def configure(self, name: str, change: ConfigChange, *, validate_only: bool, then: Settle) -> None:
        """Set a topic's configs to what `change` makes of the present ones; in force once they are durable.

        Arguments:
            change: answers the new texts, or raises ConfigError.
            then: gets None when it is done.
        """
        self._in_turn(name, then, partial(self._configure, name, change, validate_only))

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

    def _added(self, more: MorePartitions) -> int:
        topic = self._host.tables.topics.get(more.name)
        return 0 if topic is None else more.count - len(topic.partitions)

    # One change, in its turn.

    def _begin(self, names: list[str], changes: list[Change], gather: Gather) -> None:
        """Begin a change of each topic, over several loop iterations where they are many."""
        steps = self._beginnings(names, changes, gather)
        if len(names) <= CHANGES_AT_ONCE:
            finish(steps)
        else:
            self._host.slicer.run(steps, Outcome.result)

    def _beginnings(self, names: list[str], changes: list[Change], gather: Gather) -> Steps:
        failure: Exception | None = None
        for at, (name, change) in enumerate(zip(names, changes, strict=True)):
            try:
                self._in_turn(name, partial(gather.put, at), change)
            except Exception as error:  # it has refused this change; the others are not held up by it
                failure = failure or error
            yield
        if failure is not None:
            raise failure

    def _in_turn(self, name: str, then: Settle, change: Change) -> None:
        """Have `change` run when no other one of this topic does; it settles once, or raises RefusedError."""

        def step(end: Callable[[], None]) -> None:
            settle = settling(then, end)
            attempt(partial(change, settle), settle)

        self._turns.take(folded(name), step)  # colliding names take turns, too

    def _create(self, new: NewTopic, validate_only: bool, settle: Settle) -> None:
        topic = self.validated(new)
        if validate_only:
            settle(None)
        else:
            self._store.create_topic(topic, self._kept(topic, settle))

    def _grow(self, more: MorePartitions, validate_only: bool, settle: Settle) -> None:
        topic = self._grown(more)
        if validate_only:
            settle(None)
        else:
            self._store.update_topic(topic, self._kept(topic, settle))

    def _configure(self, name: str, change: ConfigChange, validate_only: bool, settle: Settle) -> None:
        topic = self._existing(name)
        try:
            texts = change(topic.configs)
        except ConfigError as error:
            raise RefusedError(error.code, str(error)) from error
        if validate_only:
            settle(None)
            return
        changed = TopicImage(topic.name, topic.topic_id, topic.partitions, dict(texts))
        self._store.configure_topic(name, texts, self._kept(changed, settle))

    def _delete(self, name: str, settle: Settle) -> None:
        if not self._host.config.delete_topic_enable:
            raise RefusedError(KafkaErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if is_internal(name):
            raise RefusedError(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, f"'{name}' is an internal topic.")
        topic = self._existing(name)

        self._store.delete_topic(topic, applying_later(partial(self._host.topic_gone, name), settle))

    def _kept(self, topic: TopicImage, settle: Settle) -> Callable[[int], None]:
        return applying_later(partial(self._host.topic_changed, topic), settle)

    # Deciding.

    def validated(self, new: NewTopic) -> TopicImage:
        """The topic as it would be created; raises RefusedError."""
        self._check_name(new.name)
        configs = self._checked_configs(new.configs)
        replicas = self._assigned(new) if new.assignment_count else self._placed(new)
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
        topic = self._existing(more.name)
        if is_internal(more.name):  # its records would be looked for in other partitions than they are in
            text = f"The number of partitions of the internal topic '{more.name}' cannot be changed."
            raise RefusedError(KafkaErrorCode.INVALID_PARTITIONS, text)
        has, added = len(topic.partitions), more.count - len(topic.partitions)
        if added <= 0 or more.count > PARTITIONS_MAX:
            raise RefusedError(KafkaErrorCode.INVALID_PARTITIONS, no_growth(has, more.count))
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
        return TopicImage(topic.name, topic.topic_id, (*topic.partitions, *map(new_partition, replicas)), topic.configs)

    def _existing(self, name: str) -> TopicImage:
        topic = self._host.tables.topics.get(name)
        if topic is None:
            raise RefusedError(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic

    def _live(self) -> list[int]:
        return [broker.broker_id for broker in self._host.tables.brokers]


def settling(then: Settle, end: Callable[[], None]) -> Settle:
    """The end of a change: it tells `then` and gives the turn back.

    The first call counts. What is raised behind it, by the next change in turn for example, ends this one once more on
    its way up.
    """
    settled = False

    def settle(refusal: Refusal | None) -> None:
        nonlocal settled
        if settled:
            return
        settled = True
        try:
            then(refusal)
        finally:
            end()

    return settle


def attempt(change: Callable[[], object], settle: Settle) -> None:
    """Begin a change or go on with it. A RefusedError settles it; so does everything else, which is raised, too."""
    try:
        change()
    except RefusedError as error:
        settle(error.refusal)
    except Exception:
        settle(Refusal(KafkaErrorCode.UNKNOWN_SERVER_ERROR))
        raise


def applying(apply: Callable[[], None], settle: Settle) -> Callable[[int], None]:
    """What becomes of a change with the store's error code: applied where it is 0, and settled."""

    def kept(error: int) -> None:
        if not error:
            attempt(apply, settle)
        settle(Refusal(error, reason_of(error)) if error else None)

    return kept


def applying_later(apply: Callable[[Callable[[Outcome], object]], None], settle: Settle) -> Callable[[int], None]:
    """As `applying`; `apply` may take several loop iterations, and calls what it is given with its outcome."""

    def applied(outcome: Outcome) -> None:
        attempt(outcome.result, settle)
        settle(None)

    def kept(error: int) -> None:
        if error:
            settle(Refusal(error, reason_of(error)))
        else:
            attempt(partial(apply, applied), settle)

    return kept


def excess(partitions: Iterable[int]) -> Refusal | None:
    """The refusal of a request for so many new partitions, or None; impossible numbers are another check's."""
    total = sum(count for count in partitions if 0 < count <= PARTITIONS_MAX)
    if total <= PARTITIONS_PER_REQUEST_MAX:
        return None
    text = f"{total} new partitions are too many for one request: allowed are {PARTITIONS_PER_REQUEST_MAX}."
    return Refusal(KafkaErrorCode.POLICY_VIOLATION, text)


def no_growth(has: int, asked: int) -> str:
    """Why a topic with `has` partitions cannot get `asked`; Kafka's words, which tools look for."""
    if asked == has:
        return f"Topic already has {has} partition(s)."
    if asked < has:
        return f"The topic currently has {has} partition(s); {asked} would not be an increase."
    return f"Number of partitions was {asked}, allowed is up to {PARTITIONS_MAX}."
