"""Reads the tree for the controller's machine: everything after the election, then what watches report.

1. Each read sets its watch again, and each event has the value that was read, so changes may coalesce.
2. What watches find while the snapshot is being read is reported after it.
3. The read of a topic begins again if the watch on its node fires meanwhile, or if the machine asks for another read:
   the node and the states that are reported belong together, and are not older than the machine's request.
4. Nodes with invalid contents or names are left out (`invalid_nodes`), or passed on as `InvalidNode`.
5. An unexpected exception in a callback of a read is passed on: the event would be lost, and the term must end.
6. Any failed read ends the controller (`ControllerMoved`): the session is over, or the service refuses reads.
7. At most READS_MAX reads are open, and lists of partitions are processed in slices: other work of the loop waits for
   some milliseconds, however many partitions there are.

Sources: KafkaController.scala (its handlers of znode changes), KafkaZkClient.scala of Apache Kafka 3.9.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafkalite.callbacks import FanIn, Window, gather
from kafkalite.clock import Outcome
from kafkalite.cluster.controller.invalid_nodes import InvalidNodes
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoNodeError
from kafkalite.coordination.tree import Stat, Watcher, WatchEvent
from kafkalite.coordination.znodes import brokers, controller
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.model import TopicPartition
from kafkalite.slicing import Slicer, Steps, group_steps
from kafkalite.state.controller.events import (
    BrokersChanged,
    ControllerMoved,
    DeletionsChanged,
    Event,
    LogDirsFailed,
    SnapshotRead,
    StatesRead,
    TopicRead,
    TopicsChanged,
)
from kafkalite.state.controller.values import (
    Broker,
    FeaturesNode,
    InvalidNode,
    LeaderAndIsr,
    Snapshot,
    StoredState,
    TopicNodes,
)

READS_MAX = 100  # their responses may arrive in one loop iteration: some 10 ms

T = TypeVar("T")
Found = tuple[bytes, Stat] | None
Taken = Callable[[Any], object]
Read = Callable[[Taken], object]
TopicValue = TopicNodes | InvalidNode | None
StateValue = StoredState | InvalidNode | None


class TreeReader:
    """The reads of one elected controller.

    Arguments:
        session: the one that was elected.
        report: receives the events.
        failed: receives an unexpected exception of a read.
        invalid: the nodes that are left out.
        slicer: spreads work on many nodes over loop iterations.
        minimum_of: returns `min.insync.replicas` of the configs of a topic, None if it is not set.
    """

    def __init__(
        self,
        session: Coordination,
        report: Callable[[Event], object],
        failed: Callable[[Exception], object],
        invalid: InvalidNodes,
        slicer: Slicer,
        minimum_of: Callable[[Mapping[str, str]], int | None],
    ) -> None:
        self._session = session
        self._report = report
        self._failed = failed
        self._invalid = invalid
        self._slicer = slicer
        self._minimum_of = minimum_of
        self._window = Window(READS_MAX)
        self._later: list[Event] | None = []  # found while the snapshot is read
        self._reading: dict[str, bool] = {}  # the topics that are being read, and whether the read must begin again
        self._closed = False

    def close(self) -> None:
        """Report nothing any more."""
        self._closed = True
        self._window.close()

    # What the machine asks for.

    def read_snapshot(self) -> None:
        """Read everything and set the watches; ends with `SnapshotRead`."""
        reads: list[Read] = [
            self._brokers,
            self._all_topics,
            self._deletions,
            partial(self._node, brokers.FEATURE, features_of),
            partial(
                self._node, controller.REASSIGN_PARTITIONS, lambda data, _stat: controller.decode_reassignment(data)
            ),
            partial(self._node, controller.PREFERRED_ELECTION, preferred_of),
            partial(self._names, controller.LOG_DIR_EVENTS, self._log_dirs_changed),
            partial(self._names, controller.ISR_CHANGES, None),
        ]
        gather(reads, self._snapshot_read)

    def read_topic(self, topic: str) -> None:
        """Read a topic and watch its node; ends with `TopicRead`. Calls during a read end with it."""
        if topic in self._reading:
            self._reading[topic] = True
        else:
            self._topic(topic, lambda found: self.deliver(TopicRead(topic, found)))

    def read_states(self, read_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Read the states of partitions; ends with `StatesRead`."""

        def read(states: list[StateValue]) -> None:
            self.deliver(StatesRead(read_id, dict(zip(partitions, states, strict=True))))

        self._states(partitions, read)

    def read_configs(self, topic: str, taken: Callable[[Mapping[str, str]], object]) -> None:
        """Read the configs of a topic; nothing is passed on if they are invalid."""

        def read(configs: Mapping[str, str] | None) -> None:
            if configs is not None:
                taken(configs)

        self._configs(topic, read)

    def _configs(self, topic: str, read: Callable[[Mapping[str, str] | None], object]) -> None:
        """Read the configs of a topic; None = they are invalid."""
        path = znodes.topic_config_path(topic)

        def found(value: Found) -> None:
            if value is None:
                read({})
            else:
                self._use(path, value, lambda data, _stat: znodes.decode_configs(path, data), read)

        self._get(path, None, found)

    # Watches.

    def _brokers_changed(self, _event: WatchEvent) -> None:
        self._brokers(lambda found: self.deliver(BrokersChanged(found)))

    def _topics_changed(self, _event: WatchEvent) -> None:
        self._topic_names(
            znodes.TOPICS, self._topics_changed, lambda found: self.deliver(TopicsChanged(frozenset(found)))
        )

    def _topic_changed(self, event: WatchEvent) -> None:
        self.read_topic(event.path.removeprefix(f"{znodes.TOPICS}/"))

    def _deletions_changed(self, _event: WatchEvent) -> None:
        self._deletions(lambda found: self.deliver(DeletionsChanged(found)))

    def _log_dirs_changed(self, _event: WatchEvent) -> None:
        self._names(controller.LOG_DIR_EVENTS, self._log_dirs_changed, self._log_dirs_listed)

    def _log_dirs_listed(self, names: list[str]) -> None:
        def read(owners: list[int | None]) -> None:
            self.deliver(LogDirsFailed(dict(zip(names, owners, strict=True))))

        paths = [f"{controller.LOG_DIR_EVENTS}/{name}" for name in names]
        gather([partial(self._node, path, log_dir_of(path)) for path in paths], read)

    # Reads; each calls `taken` with its value, or ends the controller.

    def _snapshot_read(self, found: list[Any]) -> None:
        live, topics, deletions, features, reassignment, preferred, log_dirs, isr_changes = found
        snapshot = Snapshot(
            live, topics, deletions, features, reassignment, preferred, tuple(log_dirs), tuple(isr_changes)
        )
        later, self._later = self._later, None
        self.deliver(SnapshotRead(snapshot))
        for event in later or ():
            self.deliver(event)

    def _brokers(self, taken: Taken) -> None:
        def listed(names: list[str]) -> None:
            ids = self._invalid.numbers(znodes.BROKER_IDS, names)

            def read(found: list[Broker | None]) -> None:
                taken(tuple(broker for broker in found if broker is not None))

            gather(
                [
                    partial(self._node, brokers.registration_path(each), broker_of(each), watch=self._brokers_changed)
                    for each in ids
                ],
                read,
            )

        self._names(znodes.BROKER_IDS, self._brokers_changed, listed)

    def _all_topics(self, taken: Taken) -> None:
        def listed(names: list[str]) -> None:
            def read(found: list[TopicValue]) -> None:
                taken({name: topic for name, topic in zip(names, found, strict=True) if topic is not None})

            gather([partial(self._topic, name) for name in names], read)

        self._topic_names(znodes.TOPICS, self._topics_changed, listed)

    def _deletions(self, taken: Taken) -> None:
        self._topic_names(znodes.DELETE_TOPICS, self._deletions_changed, lambda names: taken(frozenset(names)))

    def _topic(self, topic: str, taken: Callable[[TopicValue], object]) -> None:
        """Read a topic until nothing asks for another read meanwhile."""
        self._reading[topic] = False

        def read(found: TopicValue) -> None:
            if self._reading.pop(topic):
                self._topic(topic, taken)
            else:
                taken(found)

        self._topic_once(topic, read)

    def _topic_once(self, topic: str, taken: Callable[[TopicValue], object]) -> None:
        path = znodes.topic_path(topic)

        def read(found: Found) -> None:
            if found is None:
                self._invalid.remove(path)
                self._invalid.remove(znodes.topic_config_path(topic))
                taken(None)
                return
            try:
                node = znodes.decode_topic(path, found[0])
            except ZnodeError as error:
                taken(InvalidNode(self._invalid.add(path, error)))
                return
            self._invalid.remove(path)
            if not any(len(replicas) > 1 for replicas in node.replicas.values()):
                self._partitions(topic, node, found[1], None, taken)
                return

            def configured(configs: Mapping[str, str] | None) -> None:
                minimum = None if configs is None else self._minimum_of(configs)
                self._partitions(topic, node, found[1], minimum, taken)

            self._configs(topic, configured)

        self._get(path, self._topic_changed, read)

    def _partitions(
        self, topic: str, node: znodes.TopicNode, stat: Stat, minimum: int | None, taken: Callable[[TopicValue], object]
    ) -> None:
        path = f"{znodes.topic_path(topic)}/partitions"

        def listed(names: list[str] | None) -> None:
            made = sorted(self._invalid.numbers(path, names or []))

            def read(found: list[StateValue]) -> None:
                states = {index: state for index, state in zip(made, found, strict=True) if state is not None}
                nodes = None if names is None else frozenset(made)
                assignment = node.replicas, node.adding, node.removing
                taken(TopicNodes(node.topic_id, stat.version, *assignment, states, nodes, stat.czxid, minimum))

            self._states([TopicPartition(topic, index) for index in made], read)

        self._list(path, None, listed)

    def _states(self, partitions: Sequence[TopicPartition], taken: Callable[[list[StateValue]], object]) -> None:
        """Read states, and pass them on in the order of the partitions."""
        results: FanIn[StateValue] = FanIn(len(partitions), taken)

        def begin() -> Steps:
            for index, partition in enumerate(partitions):
                self._state(partition, partial(results.put, index))
                yield

        self._slicer.run(group_steps(begin()), self._begun)

    def _begun(self, outcome: Outcome) -> None:
        try:
            outcome.result()
        except Exception as error:
            self._failed(error)

    def _state(self, partition: TopicPartition, taken: Callable[[StateValue], object]) -> None:
        path = znodes.state_path(*partition)

        def read(found: Found) -> None:
            if found is None:
                self._invalid.remove(path)
                taken(None)
                return
            try:
                state = LeaderAndIsr(*znodes.decode_state(path, found[0]))
            except ZnodeError as error:
                taken(InvalidNode(self._invalid.add(path, error)))
                return
            self._invalid.remove(path)
            taken(StoredState(state, found[1].version, found[1].mzxid))

        self._get(path, None, read)

    def _node(
        self, path: str, decode: Callable[[bytes, Stat], T], taken: Callable[[T | None], object],
        watch: Watcher | None = None,
    ) -> None:  # fmt: skip
        """Read a node; None = it does not exist or is invalid."""

        self._get(path, watch, lambda found: self._use(path, found, decode, taken))

    def _use(
        self, path: str, found: Found, decode: Callable[[bytes, Stat], T], taken: Callable[[T | None], object]
    ) -> None:
        """Pass on the value of a node that was read; None = it does not exist or is invalid."""
        try:
            value = None if found is None else decode(*found)
            self._invalid.remove(path)
        except ZnodeError as error:
            value = None
            self._invalid.add(path, error)
        taken(value)

    def _names(self, path: str, watch: Watcher | None, taken: Callable[[list[str]], object]) -> None:
        """The children of a node; none if it does not exist."""
        self._list(path, watch, lambda names: taken(names or []))

    def _topic_names(self, path: str, watch: Watcher | None, taken: Callable[[list[str]], object]) -> None:
        """The children of a node that are names of topics."""
        self._names(path, watch, lambda names: taken(self._invalid.topics(path, names)))

    def _list(self, path: str, watch: Watcher | None, taken: Callable[[list[str] | None], object]) -> None:
        self._read(self._session.children, path, watch, lambda found: taken(found and found[0]))

    def _get(self, path: str, watch: Watcher | None, taken: Callable[[Found], object]) -> None:
        self._read(self._session.get, path, watch, taken)

    def _read(self, call: Callable[..., object], path: str, watch: Watcher | None, taken: Taken) -> None:
        """Call a method of the session, and pass on its value, None for a missing node."""

        def begin(end: Callable[[], None]) -> None:
            def ended(outcome: Outcome) -> None:
                if self._closed:
                    return
                try:
                    end()  # begins a read that waits
                    self._read_ended(outcome, taken)
                except Exception as error:
                    self._failed(error)

            call(path, ended, self._open(watch))

        self._window.run(begin)

    def _read_ended(self, outcome: Outcome, taken: Callable[[Any], object]) -> None:
        if outcome.error is None or isinstance(outcome.error, NoNodeError):
            taken(outcome.value)
        elif isinstance(outcome.error, CoordinationError):
            self._later = None
            self.deliver(ControllerMoved(f"the tree cannot be read: {outcome.error}"))
        else:
            raise outcome.error

    def _open(self, watch: Watcher | None) -> Watcher | None:
        """A watch that does nothing once the reader is closed. One object for each method: it counts once per path."""
        return None if watch is None else OpenWatch(self, watch)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def deliver(self, event: Event) -> None:
        """Report an event; behind `SnapshotRead`, if the snapshot is being read."""
        if self._closed:
            return
        if self._later is not None:
            self._later.append(event)
        else:
            self._report(event)


class OpenWatch:
    """A watch of a reader; equal ones on one path count once, so that repeated reads do not add up."""

    __slots__ = ("_reader", "_watch")

    def __init__(self, reader: TreeReader, watch: Watcher) -> None:
        self._reader = reader
        self._watch = watch

    def __call__(self, event: WatchEvent) -> None:
        if not self._reader.closed:
            self._watch(event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenWatch) and (self._reader, self._watch) == (other._reader, other._watch)

    def __hash__(self) -> int:
        return hash((id(self._reader), self._watch))


def broker_of(broker_id: int) -> Callable[[bytes, Stat], Broker]:
    """Decodes a registration."""

    def decode(data: bytes, stat: Stat) -> Broker:
        found = brokers.decode_registration(broker_id, data)
        features = {name: (each.first, each.last) for name, each in found.features.items()}
        return Broker(broker_id, stat.czxid, found.endpoints, found.rack, features, found.unclean_since)

    return decode


def features_of(data: bytes, stat: Stat) -> FeaturesNode:
    """Decodes the feature node."""
    node = brokers.decode_features(data)
    return FeaturesNode(node.enabled, node.levels, stat.version)


def preferred_of(data: bytes, _stat: Stat) -> tuple[TopicPartition, ...]:
    """Decodes the node of a preferred leader election."""
    return controller.decode_partitions(controller.PREFERRED_ELECTION, data)


def log_dir_of(path: str) -> Callable[[bytes, Stat], int]:
    """Decodes the notification of a failed log directory."""
    return lambda data, _stat: controller.decode_log_dir_event(path, data)
