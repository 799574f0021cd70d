"""Runs a controller's machine over a session and a network, as the runtime of the broker does.

It reads the tree with watches, executes transactions with the check of the controller epoch, sends requests and reports
results. Everything may be late; nothing arrives after the machine has resigned.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from kafkalite.model import TopicPartition
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.controller import Controller
from kafkalite.state.controller.values import (
    Broker,
    ControllerSettings,
    FeaturesNode,
    InvalidNode,
    LeaderAndIsr,
    Snapshot,
    StoredState,
    TimerName,
    TopicNodes,
)
from kafkalite.state.effects import CancelTimer, SetTimer
from tests.story.controller import tree as nodes
from tests.story.controller.changes import TopicValue, changes_of, state_path
from tests.story.controller.schedule import Schedule
from tests.story.controller.session import LostError, Session
from tests.story.controller.tree import RejectedError

Request = out.SendUpdateMetadata | out.SendLeaderAndIsr | out.SendStopReplica
MINIMUM = 2  # of in-sync replicas
UNCLEAN = "unclean"  # the configs of a topic that elects replicas that are not in sync
Answer = Callable[[object], object]


class Network(Protocol):
    """The connections of a controller. `respond` receives the response, or None if there is none."""

    def send(self, broker: Broker, controller_epoch: int, request: Request, respond: Answer) -> None: ...


class ControllerRuntime:
    """The controller of one broker.

    Arguments:
        broker_id, epoch, epoch_version: the result of the election.
        create: the machine; tests replace it by one with a planted bug.
        resigned: called once after `Resign`.
    """

    def __init__(
        self,
        session: Session,
        schedule: Schedule,
        network: Network,
        broker_id: int,
        epoch: int,
        epoch_version: int,
        resigned: Callable[[], object],
        create: Callable[[ControllerSettings], Controller] = Controller,
    ) -> None:
        self.session, self.schedule, self.network = session, schedule, network
        self.epoch, self.epoch_version = epoch, epoch_version
        self.machine = create(ControllerSettings(broker_id, epoch, rebalance_ms=3_000, min_insync_replicas=MINIMUM))
        self.active = True
        self.completions: dict[object, int] = {}
        self.responses: dict[object, Callable[[out.Completion], object]] = {}  # called with the results, by token
        self.logged: list[out.Log] = []
        self._resigned = resigned
        self._reading = True
        self._late: list[Callable[[], object]] = []  # reads for watches that fired during the load
        self._topic_watches: dict[str, Callable[[], object]] = {}
        self._topics_read: dict[str, bool] = {}  # the topics that are being read, and whether to begin again
        self._connections: dict[int, Broker] = {}
        self._sent: dict[int, int] = {}  # broker of each request in flight
        self._timers: dict[TimerName, int] = {}
        self._timer_number = 0
        self._read_snapshot()

    # Events.

    def handle(self, event: into.Event) -> None:
        """Report an event, and do what follows."""
        if self.active:
            for effect in self.machine.handle(event, self.schedule.now_ms):
                if self.active:
                    EXECUTE[type(effect)](self, effect)

    def moved(self) -> None:
        """Another controller was elected, or the node of this one was deleted."""
        self.handle(into.ControllerMoved("/controller has changed"))

    def stop(self) -> None:
        """The process ends, or its session is lost."""
        self.active = False

    # Reads.

    def _read_snapshot(self) -> None:
        """Read names, then everything below; each is a read of its own."""
        found: dict[str, Any] = {"topics": {}, "brokers": ()}
        waiting = {"brokers", "topics", "deletions", "rest"}

        def done(name: str) -> None:
            waiting.discard(name)
            if not waiting:
                self._loaded(found)

        def brokers_read(value: object) -> None:
            found["brokers"] = value
            done("brokers")

        def deletions_read(value: object) -> None:
            found["deletions"] = value
            done("deletions")

        def rest_read(value: object) -> None:
            found["rest"] = value
            done("rest")

        def topics_read(value: object) -> None:
            names: Any = value
            missing = set(names)
            for name in names:
                self._read_topic(name, partial(topic_read, missing, name))
            if not names:
                done("topics")

        def topic_read(missing: set[str], name: str, value: object) -> None:
            missing.discard(name)
            if value is not None:
                found["topics"][name] = value
            if not missing:
                done("topics")

        self._read_brokers(brokers_read)
        self._read_children(nodes.TOPICS, self._topics_fired, topics_read)
        self._read_children(nodes.DELETIONS, self._deletions_fired, deletions_read)
        self.session.read(self._rest, rest_read)

    def _loaded(self, found: dict[str, Any]) -> None:
        if self.active:
            self._reading = False
            features, reassignment, election, events = found["rest"]
            self.handle(
                into.SnapshotRead(
                    Snapshot(
                        found["brokers"],
                        found["topics"],
                        frozenset(found["deletions"]),
                        features,
                        reassignment,
                        election,
                        events,
                    )
                )
            )
            self._events_fired()
            for read in self._late:
                read()

    def _rest(self) -> object:
        tree = self.session.tree
        feature, reassignment, election = (
            tree.get(path) for path in (nodes.FEATURE, nodes.REASSIGNMENT, nodes.ELECTION)
        )
        levels: Any = None if feature is None else feature.value
        features = None if feature is None else FeaturesNode(True, levels, feature.version)
        return (
            features,
            None if reassignment is None else reassignment.value,
            None if election is None else election.value,
            tuple(tree.children(nodes.LOG_DIR_EVENTS)),
        )

    def _read_children(self, path: str, fired: Callable[[], object], then: Answer) -> None:
        def execute() -> object:
            self.session.watch("children", path, fired)
            return self.session.tree.children(path)

        self.session.read(execute, then)

    def _read_brokers(self, then: Answer) -> None:
        def execute() -> object:
            tree = self.session.tree
            self.session.watch("children", nodes.BROKERS, self._brokers_fired)
            paths = [f"{nodes.BROKERS}/{name}" for name in tree.children(nodes.BROKERS)]
            for path in paths:
                self.session.watch("data", path, self._brokers_fired)
            return tuple(_broker(tree, path) for path in paths)

        self.session.read(execute, then)

    def _brokers_fired(self) -> None:
        self._when_loaded(lambda: self._read_brokers(lambda value: self.handle(into.BrokersChanged(_any(value)))))

    def _topics_fired(self) -> None:
        def then(value: object) -> None:
            self.handle(into.TopicsChanged(frozenset(_any(value))))

        self._when_loaded(lambda: self._read_children(nodes.TOPICS, self._topics_fired, then))

    def _deletions_fired(self) -> None:
        def then(value: object) -> None:
            self.handle(into.DeletionsChanged(frozenset(_any(value))))

        self._when_loaded(lambda: self._read_children(nodes.DELETIONS, self._deletions_fired, then))

    def _topic_fired(self, name: str) -> None:
        if name in self._topics_read:
            self._topics_read[name] = True
        else:
            self._when_loaded(lambda: self._report_topic(name))

    def _report_topic(self, name: str) -> None:
        if name in self._topics_read:
            self._topics_read[name] = True
        else:
            self._read_topic(name, lambda value: self.handle(into.TopicRead(name, _any(value))))

    def _events_fired(self) -> None:
        def execute() -> object:
            tree = self.session.tree
            self.session.watch("children", nodes.LOG_DIR_EVENTS, self._events_fired)
            names = tree.children(nodes.LOG_DIR_EVENTS)
            return {name: tree.nodes[f"{nodes.LOG_DIR_EVENTS}/{name}"].value for name in names}

        def then(value: object) -> None:
            if value:
                self.handle(into.LogDirsFailed(_any(value)))

        self._when_loaded(lambda: self.session.read(execute, then))

    def _when_loaded(self, read: Callable[[], object]) -> None:
        """Read after a watch has fired; during the load, after it."""
        if self._reading:
            self._late.append(read)
        elif self.active:
            read()

    def _read_topic(self, name: str, then: Answer) -> None:
        """Read until the watch on the node does not fire meanwhile, and nothing asks for another read."""
        self._topics_read[name] = False

        def read(value: object) -> None:
            if self._topics_read.pop(name):
                self._read_topic(name, then)
            else:
                then(value)

        self._read_topic_once(name, read)

    def _read_topic_once(self, name: str, then: Answer) -> None:
        """The node with a watch, then the names of its partitions, then their states."""
        tree, path = self.session.tree, f"{nodes.TOPICS}/{name}"
        fired = self._topic_watches.setdefault(name, partial(self._topic_fired, name))

        def node() -> object:
            self.session.watch("data", path, fired)
            found = tree.get(path)
            return None if found is None else (found.value, found.version, found.czxid)

        def node_read(value: object) -> None:
            if value is None or isinstance(_any(value)[0], InvalidNode):
                then(None if value is None else _any(value)[0])
                return
            self.session.read(partial(names, _any(value)[0]), partial(names_read, _any(value)))

        def names(value: TopicValue) -> object:
            above = f"{path}/partitions"
            return None if tree.get(above) is None else [int(index) for index in tree.children(above)]

        def names_read(read: tuple[TopicValue, int, int], value: object) -> None:
            found: list[int] = [] if value is None else _any(value)
            keys = [TopicPartition(name, index) for index in found]
            exists = None if value is None else frozenset(found)
            self.session.read(partial(_states, tree, keys), partial(states_read, read, exists))

        def states_read(read: tuple[TopicValue, int, int], exists: frozenset[int] | None, value: object) -> None:
            states = {key.partition: state for key, state in _any(value).items() if state is not None}
            topic, version, created = read
            then(TopicNodes(topic.topic_id, version, topic.replicas, {}, {}, states, exists, created))

        self.session.read(node, node_read)

    # Effects.

    def write(self, effect: out.Write) -> None:
        self.session.write(self.fenced(effect), partial(self.written, effect), self)

    def written(self, effect: out.Write, result: object) -> None:
        """Report the result of a transaction."""
        if isinstance(result, LostError):
            self.handle(into.WriteFailed(effect.write_id, "connection lost"))
        elif not isinstance(result, RejectedError):
            self.handle(into.WriteDone(effect.write_id, _last_versions(effect, _any(result))))
        elif result.at == 0:
            self.handle(into.ControllerMoved("the controller epoch has changed"))
        else:
            self.handle(into.WriteRejected(effect.write_id, _operation_at(effect, result.at)))

    def fenced(self, effect: out.Write) -> list[nodes.Change]:
        """The changes of a write, after the check of the controller epoch."""
        changes: list[nodes.Change] = [nodes.Check(nodes.EPOCH, self.epoch_version)]
        for operation in effect.operations:
            changes += changes_of(operation, self.schedule.chance)
        return changes

    def delete_notifications(self, effect: out.DeleteNotifications) -> None:
        paths = [f"{nodes.LOG_DIR_EVENTS}/{name}" for name in effect.log_dir_events]
        paths += [nodes.REASSIGNMENT] * effect.reassignment + [nodes.ELECTION] * effect.preferred_election

        def then(path: str, result: object) -> None:
            if isinstance(result, LostError):
                remove(path)
            elif isinstance(result, RejectedError) and result.at == 0:
                self.handle(into.ControllerMoved("the controller epoch has changed"))

        def remove(path: str) -> None:
            if self.active:
                check = nodes.Check(nodes.EPOCH, self.epoch_version)
                self.session.write([check, nodes.Remove(path)], partial(then, path), self)

        for path in paths:
            remove(path)

    def read_topic(self, effect: out.ReadTopic) -> None:
        self._report_topic(effect.topic)

    def read_states(self, effect: out.ReadStates) -> None:
        execute = partial(_states, self.session.tree, effect.partitions)
        self.session.read(execute, lambda value: self.handle(into.StatesRead(effect.read_id, _any(value))))

    def read_configs(self, effect: out.ReadTopicConfigs) -> None:
        """A topic allows unclean elections if the value of its configs says so."""

        def execute() -> object:
            node = self.session.tree.get(f"{nodes.CONFIGS}/{effect.topic}")
            return node is not None and node.value == UNCLEAN

        self.session.read(execute, lambda value: self.handle(into.TopicConfigsRead(effect.topic, bool(value))))

    def connect(self, effect: out.Connect) -> None:
        self._connections[effect.broker.broker_id] = effect.broker

    def disconnect(self, effect: out.Disconnect) -> None:
        del self._connections[effect.broker_id]
        self._sent = {request: broker for request, broker in self._sent.items() if broker != effect.broker_id}

    def send(self, effect: Request) -> None:
        broker = self._connections[effect.broker_id]
        assert broker.epoch == effect.broker_epoch
        assert effect.broker_id not in self._sent.values(), "two requests in flight"
        self._sent[effect.request_id] = effect.broker_id
        self.network.send(broker, self.epoch, effect, partial(self._answered, effect))

    def _answered(self, effect: Request, response: object) -> None:
        if not self.active or self._sent.pop(effect.request_id, None) is None:
            return
        if response is None:
            self.handle(into.RequestFailed(effect.request_id, "no response"))
        elif isinstance(effect, out.SendUpdateMetadata):
            self.handle(into.UpdateMetadataAnswered(effect.request_id, _any(response)))
        elif isinstance(effect, out.SendLeaderAndIsr):
            self.handle(into.LeaderAndIsrAnswered(effect.request_id, *_any(response)))
        else:
            self.handle(into.StopReplicaAnswered(effect.request_id, *_any(response)))

    def complete(self, effect: out.Completion) -> None:
        assert effect.token not in self.completions, "completed twice"
        self.completions[effect.token] = effect.error
        if effect.token in self.responses:
            self.responses.pop(effect.token)(effect)

    def set_timer(self, effect: SetTimer) -> None:
        self._timer_number += 1
        number = self._timers[effect.name] = self._timer_number

        def expired() -> None:
            if self._timers.get(effect.name) == number:
                del self._timers[effect.name]
                self.handle(into.TimerExpired(effect.name))

        self.schedule.at(effect.at_ms, expired)

    def cancel_timer(self, effect: CancelTimer) -> None:
        self._timers.pop(effect.name, None)

    def log(self, effect: out.Log) -> None:
        self.logged.append(effect)

    def resign(self, effect: out.Resign) -> None:
        self.active = False
        self._resigned()


EXECUTE: dict[type[out.Effect], Callable[[ControllerRuntime, Any], None]] = {
    out.Write: ControllerRuntime.write,
    out.DeleteNotifications: ControllerRuntime.delete_notifications,
    out.ReadTopic: ControllerRuntime.read_topic,
    out.ReadStates: ControllerRuntime.read_states,
    out.SendUpdateMetadata: ControllerRuntime.send,
    out.SendLeaderAndIsr: ControllerRuntime.send,
    out.SendStopReplica: ControllerRuntime.send,
    out.ReadTopicConfigs: ControllerRuntime.read_configs,
    out.Connect: ControllerRuntime.connect,
    out.Disconnect: ControllerRuntime.disconnect,
    out.Completion: ControllerRuntime.complete,
    SetTimer: ControllerRuntime.set_timer,
    CancelTimer: ControllerRuntime.cancel_timer,
    out.Log: ControllerRuntime.log,
    out.Resign: ControllerRuntime.resign,
}


def _any(value: object) -> Any:
    return value


def _broker(tree: nodes.ZnodeTree, path: str) -> Broker:
    node = tree.nodes[path]
    broker: Any = node.value
    return broker._replace(epoch=node.czxid)


def _states(tree: nodes.ZnodeTree, keys: object) -> object:
    found: dict[TopicPartition, StoredState | InvalidNode | None] = {}
    for key in _any(keys):
        node = tree.get(state_path(key))
        if node is None:
            found[key] = None
        else:
            value: Any = node.value
            found[key] = StoredState(value, node.version, node.mzxid) if isinstance(value, LeaderAndIsr) else value
    return found


def _last_versions(effect: out.Write, versions: tuple[int, ...]) -> tuple[int, ...]:
    """The version after the last change of each operation."""
    last, at = [], 0
    for operation in effect.operations:
        at += len(changes_of(operation, random.Random(0)))
        last.append(versions[at])
    return tuple(last)


def _operation_at(effect: out.Write, at: int) -> int:
    """The operation that a change belongs to; the first change is the check."""
    count = 0
    for index, operation in enumerate(effect.operations):
        count += len(changes_of(operation, random.Random(0)))
        if at <= count:
            return index
    raise AssertionError(at)
