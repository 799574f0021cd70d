"""A random history of a cluster: administrators, brokers, disks, sessions and controllers do what they may do.

A history lasts 20 virtual seconds; then all faults end, and ten seconds later the cluster must be quiet and right. Each
seed draws its own subset of the operations, so that rare combinations occur (swarm testing).
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.controller.effects import Completion
from kafkalite.state.controller.events import (
    AlterPartitions,
    AwaitDeletion,
    AwaitTopic,
    ConfigsChanged,
    ElectLeaders,
    RequestedIsr,
    ShutDownBroker,
    TimerExpired,
)
from kafkalite.state.controller.leader_rebalance import REBALANCE
from kafkalite.state.controller.values import InvalidNode, LeaderAndIsr
from tests.story.controller import tree as nodes
from tests.story.controller.broker import BrokerState
from tests.story.controller.changes import TopicValue, partition_path, state_path, topic_path
from tests.story.controller.cluster import Cluster, CreateRuntime, Process
from tests.story.controller.runtime import MINIMUM, UNCLEAN, ControllerRuntime
from tests.story.controller.schedule import Schedule
from tests.story.controller.tree import Change, RejectedError

Request: TypeAlias = AwaitTopic | AwaitDeletion | ElectLeaders | AlterPartitions | ShutDownBroker
NAMES = ("a", "b", "c", "d")
HISTORY_MS = 20_000
QUIET_MS = 10_000
STEP_MS = 250
AWAIT_MS = 3_000


class Simulation:
    """One history.

    Arguments:
        seed: of everything random.
        create_runtime: see `Cluster`.
    """

    def __init__(self, seed: int, create_runtime: CreateRuntime = ControllerRuntime) -> None:
        self.chance = random.Random(seed)
        self.schedule = Schedule(self.chance)
        self.cluster = Cluster(self.schedule, self.chance.choice((2, 3, 4)), create_runtime)
        self.tree = self.cluster.tree
        self.awaited: list[tuple[ControllerRuntime, object, str]] = []
        self._tokens = 0
        self._operations = [each for each in OPERATIONS if self.chance.random() < 0.7] or list(OPERATIONS)

    def run(self) -> None:
        """Run the history and check the invariants."""
        for _ in range(HISTORY_MS // STEP_MS):
            self.chance.choice(self._operations)(self)
            self.schedule.run_until(self.schedule.now_ms + self.chance.randrange(2 * STEP_MS))
        self._end_faults()
        self.schedule.run_until(self.schedule.now_ms + QUIET_MS)
        self.cluster.invariants.check_quiet(self.cluster)
        self._check_awaited()

    def _end_faults(self) -> None:
        self.cluster.faulty = False
        for broker, process in list(self.cluster.processes.items()):
            process.session.reconnect()
            if process.running and self.cluster.disks[broker].failed:
                process.kill()
            if not process.running:
                self.cluster.start(broker)
        for name in self.tree.children(nodes.TOPICS):
            if isinstance(self.tree.nodes[topic_path(name)].value, InvalidNode):
                self._remove_topic(name)

    def _check_awaited(self) -> None:
        for runtime, token, topic in self.awaited:
            if runtime.active and token not in runtime.completions:
                self.cluster.invariants.report(f"the request for {topic} was not completed")

    # Administrators.

    def create_topic(self) -> None:
        """As CreateTopics does: configs and topic together; the client waits for the leaders."""
        name = self.chance.choice(NAMES)
        topic = self._new_topic(with_id=True)
        configs = self.chance.choice((None, None, UNCLEAN))
        if self._commit([nodes.Create(f"{nodes.CONFIGS}/{name}", configs), nodes.Create(topic_path(name), topic)]):
            self._await(AwaitTopic(self._token(), name, topic.topic_id or b"", len(topic.replicas), self._deadline()))

    def create_topic_in_the_tree(self) -> None:
        """As a tool does that writes znodes, perhaps without a topic id and without configs."""
        name = self.chance.choice(NAMES)
        self._commit([nodes.Create(topic_path(name), self._new_topic(with_id=False))])

    def create_half_a_topic(self) -> None:
        """As a controller leaves it that has failed."""
        name = self.chance.choice(NAMES)
        topic = self._new_topic(with_id=True)
        changes: list[Change] = [nodes.Create(topic_path(name), topic), nodes.Create(f"{topic_path(name)}/partitions")]
        for index, replicas in topic.replicas.items():
            key = TopicPartition(name, index)
            if self.chance.random() < 0.5:
                changes.append(nodes.Create(partition_path(key)))
                if self.chance.random() < 0.5:
                    epoch: Any = self.tree.nodes[nodes.EPOCH].value
                    changes.append(nodes.Create(state_path(key), LeaderAndIsr(replicas[0], 0, replicas, epoch)))
        self._commit(changes)

    def grow_topic(self) -> None:
        """As CreatePartitions does."""
        name = self.chance.choice(NAMES)
        topic = self.cluster.invariants.topic(name)
        if topic is None or topic.topic_id is None or len(topic.replicas) > 8:
            return
        count = len(topic.replicas)
        grown = TopicValue(
            topic.topic_id, {**topic.replicas, **self._replicas(count, count + self.chance.randint(1, 3))}
        )
        version = self.tree.nodes[topic_path(name)].version
        if self._commit([nodes.Put(topic_path(name), grown, version)]):
            self._await(AwaitTopic(self._token(), name, topic.topic_id, len(grown.replicas), self._deadline()))

    def delete_topic(self) -> None:
        """As DeleteTopics does, also for topics that do not exist."""
        name = self.chance.choice(NAMES)
        if self._commit([nodes.Create(f"{nodes.DELETIONS}/{name}")]):
            self._await(AwaitDeletion(self._token(), name, self._deadline()))

    def create_again(self) -> None:
        """A topic is created as soon as it is deleted."""
        self.delete_topic()
        self.schedule.run_until(self.schedule.now_ms + self.chance.choice((5, 20, 100)))
        self.create_topic()

    def withdraw_deletion(self) -> None:
        """The request to delete a topic is removed by hand."""
        for name in self.tree.children(nodes.DELETIONS)[:1]:
            self._commit([nodes.Remove(f"{nodes.DELETIONS}/{name}")])

    def delete_znodes(self) -> None:
        """The nodes of a topic are deleted by hand, and perhaps another topic gets its name."""
        name = self.chance.choice(NAMES)
        if self.tree.get(topic_path(name)) is not None:
            self._remove_topic(name)
            if self.chance.random() < 0.5:
                self.create_topic_in_the_tree()

    def remove_topic_id(self) -> None:
        """As a tool of Kafka before 2.8 does when it adds partitions."""
        name = self.chance.choice(NAMES)
        topic = self.cluster.invariants.topic(name)
        if topic is not None:
            self._commit([nodes.Put(topic_path(name), topic._replace(topic_id=None))])

    def write_invalid_node(self) -> None:
        """A new topic has a node that is not valid."""
        self._commit([nodes.Create(topic_path(self.chance.choice(NAMES)), InvalidNode("not JSON"))])

    def write_state(self) -> None:
        """Another writer changes the version of states."""
        name = self.chance.choice(NAMES)
        paths = [path for path in self.tree.below(topic_path(name)) if path.endswith("/state")]
        for path in paths:
            if self.chance.random() < 0.5:
                self._commit([nodes.Put(path, self.tree.nodes[path].value)])

    def change_configs(self) -> None:
        """A topic allows unclean elections, or forbids them; the brokers are notified."""
        name = self.chance.choice(NAMES)
        path = f"{nodes.CONFIGS}/{name}"
        if self._commit([nodes.Put(path, self.chance.choice((None, UNCLEAN)))]):
            for controller in self.cluster.controllers():
                controller.handle(ConfigsChanged(name, MINIMUM))

    def elect_leaders(self) -> None:
        """As ElectLeaders does."""
        name = self.chance.choice(NAMES)
        keys = tuple(TopicPartition(name, index) for index in range(3))
        unclean = self.chance.random() < 0.3
        if unclean:
            self.cluster.invariants.unclean.add(name)
        self._await(ElectLeaders(self._token(), unclean, keys))

    def rebalance(self) -> None:
        """The timer of the controller is due."""
        controller = self.cluster.controller()
        if controller is not None:
            controller.handle(TimerExpired((REBALANCE, None)))

    # Brokers, disks, sessions and controllers.

    def change_isrs(self) -> None:
        """A leader removes followers, or adds them; its request may be lost, and so may the response."""
        process = self._process()
        state, controller = process.state, self.cluster.controller()
        keys = [key for key in state.led if len(state.hosted[key].replicas) > 1]
        if not process.running or controller is None or not keys:
            return
        keys = self.chance.sample(keys, min(len(keys), self.chance.randint(1, 4)))
        changes = tuple(self._isr_change(state, key) for key in keys)
        request = AlterPartitions(self._token(), process.broker_id, state.epoch, changes)
        repeated = self.chance.random() < 0.3

        def send() -> None:
            if controller.active:
                again = request._replace(token=self._token()) if repeated else request
                controller.responses[again.token] = partial(self._isrs_changed, state, keys)
                self._report(controller, again, "an ISR")

        for _ in range(1 + repeated):
            self.schedule.after(self.schedule.delay_ms(), send)

    def _isr_change(self, state: BrokerState, key: TopicPartition) -> RequestedIsr:
        known, partition_epoch = state.isrs[key]
        hosted, follower = state.hosted[key], self.chance.choice(state.hosted[key].replicas)
        isr = tuple(each for each in known if each != follower) if follower in known else (*known, follower)
        if state.broker_id not in isr and self.chance.random() < 0.9:
            isr = (*isr, state.broker_id)
        epochs = [self.chance.choice((-1, self.cluster.processes[each].state.epoch)) for each in isr]
        members = tuple(zip(isr, epochs, strict=True))
        topic_id = state.disks.logs[key].topic_id
        return RequestedIsr(topic_id, key.partition, hosted.leader_epoch, partition_epoch, members)

    def _isrs_changed(self, state: BrokerState, keys: list[TopicPartition], result: Completion) -> None:
        if self.chance.random() < 0.1:
            return  # the response is lost
        for key, outcome in zip(keys, result.outcomes, strict=False):
            hosted, new = state.hosted.get(key), outcome.state
            if outcome.error != SUCCESS or hosted is None or new is None:
                continue
            if new.leader_epoch == hosted.leader_epoch and outcome.version > state.isrs[key][1]:
                state.isrs[key] = new.isr, outcome.version

    def shut_down_broker(self) -> None:
        """A broker stops in the controlled way, and does not wait for the end."""
        process, controller = self._process(), self.cluster.controller()
        if process.running and controller is not None:
            self._report(
                controller, ShutDownBroker(self._token(), process.broker_id, process.state.epoch), "a shutdown"
            )
            self.schedule.run_until(self.schedule.now_ms + self.chance.choice((1, 50, 200)))
            process.kill()

    def cut_power(self) -> None:
        """A broker restarts after a power failure."""
        process = self._process()
        if process.running:
            process.kill()
            process.session.expire()
            self.cluster.start(process.broker_id, unclean=True)

    def kill_broker(self) -> None:
        process = self._process()
        if process.running:
            process.kill()

    def start_brokers(self) -> None:
        for broker, process in list(self.cluster.processes.items()):
            if not process.running:
                self.cluster.start(broker)

    def restart_broker(self) -> None:
        """A broker restarts so fast that the controller sees only another registration."""
        process = self._process()
        if process.running:
            process.kill()
            process.session.expire()
            self.cluster.start(process.broker_id)

    def change_endpoint(self) -> None:
        """A broker moves to another port without a restart, and changes its registration."""
        process = self._process()
        path = f"{nodes.BROKERS}/{process.broker_id}"
        node = self.tree.get(path)
        if process.running and node is not None and node.owner == process.session.number:
            registration: Any = node.value
            process.port += 1_000
            self._commit([nodes.Put(path, registration._replace(endpoints=(process.endpoint,)))])

    def fail_disk(self) -> None:
        """A log directory fails, and its broker notifies the controller."""
        process = self._process()
        if process.running:
            process.state.fail_disk(self.chance.randrange(2))
            event = f"{nodes.LOG_DIR_EVENTS}/log_dir_event_{self.tree.zxid:010d}"
            self._commit([nodes.Create(event, self.chance.choice((process.broker_id,) * 9 + (None,)))])

    def expire_session(self) -> None:
        process = self._process()
        if process.running:
            process.session.expire()

    def break_connection(self) -> None:
        process = self._process()
        process.session.disconnect()
        self.schedule.after(self.chance.choice((1, 100, 1_000)), process.session.reconnect)

    def delete_controller(self) -> None:
        """The node is deleted by hand: the controller continues until it learns of it."""
        if self.tree.get(nodes.CONTROLLER) is not None:
            self._commit([nodes.Remove(nodes.CONTROLLER)])

    # Parts of the above.

    def _process(self) -> Process:
        return self.cluster.processes[self.chance.choice(sorted(self.cluster.processes))]

    def _commit(self, changes: list[Change]) -> bool:
        try:
            self.tree.commit("administrator", changes)
        except RejectedError:
            return False
        return True

    def _remove_topic(self, name: str) -> None:
        paths = [*reversed(list(self.tree.below(topic_path(name)))), topic_path(name)]
        config = f"{nodes.CONFIGS}/{name}"
        self._commit([nodes.Remove(path) for path in [*paths, *([config] if self.tree.get(config) else [])]])

    def _new_topic(self, *, with_id: bool) -> TopicValue:
        identified = with_id or self.chance.random() < 0.5
        return TopicValue(
            self.chance.randbytes(16) if identified else None, self._replicas(0, self.chance.randint(1, 5))
        )

    def _replicas(self, first: int, end: int) -> dict[int, tuple[int, ...]]:
        brokers = sorted(self.cluster.disks)
        factor = self.chance.randint(1, min(3, len(brokers)))
        return {index: tuple(self.chance.sample(brokers, factor)) for index in range(first, end)}

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _deadline(self) -> int:
        return self.schedule.now_ms + AWAIT_MS

    def _await(self, event: AwaitTopic | AwaitDeletion | ElectLeaders) -> None:
        """The client has sent its request to the controller."""
        controller = self.cluster.controller()
        if controller is not None:
            self._report(controller, event, "an election" if isinstance(event, ElectLeaders) else event.topic)

    def _report(self, controller: ControllerRuntime, event: Request, name: str) -> None:
        """Report a request, which must be completed while the controller is active."""
        if controller.active:
            self.awaited.append((controller, event.token, name))
            controller.handle(event)


OPERATIONS: tuple[Callable[[Simulation], None], ...] = (
    *(Simulation.create_topic,) * 3,
    *(Simulation.delete_topic,) * 2,
    Simulation.create_topic_in_the_tree,
    Simulation.create_half_a_topic,
    Simulation.grow_topic,
    Simulation.create_again,
    Simulation.withdraw_deletion,
    Simulation.delete_znodes,
    Simulation.remove_topic_id,
    Simulation.write_invalid_node,
    Simulation.write_state,
    Simulation.kill_broker,
    *(Simulation.start_brokers,) * 2,
    Simulation.restart_broker,
    Simulation.change_endpoint,
    Simulation.fail_disk,
    Simulation.expire_session,
    Simulation.break_connection,
    Simulation.delete_controller,
    *(Simulation.change_isrs,) * 4,
    Simulation.change_configs,
    Simulation.elect_leaders,
    Simulation.rebalance,
    Simulation.shut_down_broker,
    Simulation.cut_power,
)
SUCCESS = KafkaErrorCode.NONE
