"""Reads many znodes through a session: all topics of a cluster as one result."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import NodeExistsError, NoNodeError
from kafkalite.coordination.tree import Stat, Watcher

Call = Callable[[Then], object]


class TopicRecord(NamedTuple):
    """A topic as it is stored. `directories`: partition -> broker -> log directory. `configs`: None = they are invalid,
    for the reason `invalid_configs`.
    """

    name: str
    node: znodes.TopicNode
    version: int
    configs: Mapping[str, str] | None
    states: Mapping[int, tuple[znodes.PartitionState, int]]
    directories: Mapping[int, Mapping[int, str]]
    invalid_configs: str = ""


def ensure_nodes(session: Coordination, paths: Sequence[str], then: Then) -> None:
    """Make the nodes that are missing, with those above them, without data."""
    wanted = list(dict.fromkeys(node for path in paths for node in (*znodes.parents(path), path)))

    def make(path: str) -> Call:
        return lambda done: session.create(path, b"", done)

    def made(outcomes: list[Outcome]) -> None:
        failed = [one for one in outcomes if one.error is not None and not isinstance(one.error, NodeExistsError)]
        then(failed[0] if failed else Outcome())

    gather([make(path) for path in wanted], made)


def read_topics(session: Coordination, then: Then, watch: Watcher | None = None) -> None:
    """Every topic, by name: a list of TopicRecord. `watch` is set on the list of topics."""

    def listed(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
            return
        names: list[str] = outcome.value[0]
        gather([reader(session, name) for name in names], all_read)

    def all_read(outcomes: list[Outcome]) -> None:
        failed = [one for one in outcomes if one.error is not None and not isinstance(one.error, NoNodeError)]
        there = [one.value for one in outcomes if one.error is None]  # a topic may go while it is read
        then(failed[0] if failed else Outcome(there))

    session.children(znodes.TOPICS, listed, watch)


def reader(session: Coordination, name: str) -> Call:
    """A call that reads one topic."""
    return lambda done: TopicReader(session, name, done).start()


class TopicReader:
    """Reads one topic: its node and configs, then its partitions and their noted directories."""

    def __init__(self, session: Coordination, name: str, then: Then) -> None:
        self._session = session
        self._name = name
        self._then = then

    def start(self) -> None:
        """Begin to read; the result is a TopicRecord."""
        calls: list[Call] = [
            lambda done: self._session.get(znodes.topic_path(self._name), done),
            lambda done: self._session.get(znodes.topic_config_path(self._name), done),
        ]
        gather(calls, self._known)

    def _known(self, outcomes: list[Outcome]) -> None:
        topic, configs = outcomes
        if self._failed(topic) or (not isinstance(configs.error, NoNodeError) and self._failed(configs)):
            return
        try:
            self._node = znodes.decode_topic(znodes.topic_path(self._name), topic.value[0])
        except znodes.ZnodeError as error:
            self._then(Outcome(error=error))
            return
        self._configs: Mapping[str, str] | None = {}
        self._invalid_configs = ""
        if configs.error is None:
            try:
                self._configs = znodes.decode_configs(znodes.topic_config_path(self._name), configs.value[0])
            except znodes.ZnodeError as error:
                self._configs, self._invalid_configs = None, str(error)
        self._version = version_of(topic)
        if self._node.topic_id is None:
            self._read_partitions([])
        else:
            self._session.children(znodes.directories_path(self._node.topic_id), self._listed)

    def _listed(self, outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            self._read_partitions([])
        elif not self._failed(outcome):
            self._read_partitions(outcome.value[0])

    def _read_partitions(self, noted: list[str]) -> None:
        self._partitions = sorted(self._node.replicas)
        there = set(noted)
        self._noted = [partition for partition in self._partitions if str(partition) in there]
        calls = [self._get(znodes.state_path(self._name, partition)) for partition in self._partitions]
        if self._noted:
            topic_id = self._node.topic_id
            assert topic_id is not None
            calls += [self._get(znodes.directory_path(topic_id, partition)) for partition in self._noted]
        gather(calls, self._complete)

    def _get(self, path: str) -> Call:
        return lambda done: self._session.get(path, done)

    def _complete(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if not isinstance(outcome.error, NoNodeError) and self._failed(outcome):
                return
        states: dict[int, tuple[znodes.PartitionState, int]] = {}
        directories: dict[int, dict[int, str]] = {}
        count = len(self._partitions)
        try:
            for partition, outcome in zip(self._partitions, outcomes[:count], strict=True):
                if outcome.error is None:
                    state = znodes.decode_state(znodes.state_path(self._name, partition), outcome.value[0])
                    states[partition] = state, version_of(outcome)
            for partition, outcome in zip(self._noted, outcomes[count:], strict=True):
                if outcome.error is None:
                    path = f"{znodes.DIRECTORIES} of {self._name}-{partition}"
                    directories[partition] = znodes.decode_directory(path, outcome.value[0])
        except znodes.ZnodeError as error:
            self._then(Outcome(error=error))
            return
        record = TopicRecord(
            self._name, self._node, self._version, self._configs, states, directories, self._invalid_configs
        )
        self._then(Outcome(record))

    def _failed(self, outcome: Outcome) -> bool:
        if outcome.error is not None:
            self._then(outcome)
        return outcome.error is not None


def version_of(outcome: Outcome) -> int:
    """The version of the node that a `get` read."""
    value: tuple[Any, Stat] = outcome.value
    return value[1].version
