"""What must hold at every moment, and what must hold once the cluster is quiet.

At every moment: a leader is in the ISR of the state before or was eligible there, or an unclean election was allowed;
eligible replicas are outside an ISR below the minimum, and have every acknowledged record; the ISR is not empty;
a leader epoch has one leader; transactions of a controller are committed in its own controller epoch only, and that
has one writer; nodes and logs of a topic are deleted only after the deletion of that topic, by its id, was requested;
an image is never replaced by an older state. Once it is quiet: a broker that has registered again is in no ISR, unless
the leader has let it join again, or it leads alone; no broker leads or is eligible that has lost acknowledged records
which others have.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.model import TopicPartition
from kafkalite.state.controller.values import NO_LEADER, Broker, LeaderAndIsr
from tests.story.controller import tree as nodes
from tests.story.controller.broker import BrokerState, Log
from tests.story.controller.changes import TopicValue, state_path
from tests.story.controller.runtime import MINIMUM, UNCLEAN, ControllerRuntime
from tests.story.controller.tree import Change, Check, Create, Put, Remove, ZnodeTree

if TYPE_CHECKING:
    from tests.story.controller.cluster import Cluster


class ViolationError(AssertionError):
    """A rule is broken."""


class Invariants:
    """Watches the tree and the logs of all brokers."""

    def __init__(self, tree: ZnodeTree) -> None:
        self.tree = tree
        self.writers: dict[int, ControllerRuntime] = {}  # by controller epoch
        self.requested: set[bytes] = set()  # topics whose deletion was requested while they existed
        self.ids: dict[int, bytes] = {}  # by creation of a topic: its node may lose its id
        self.foreign: set[str] = set()  # states that others have written; a controller reads them before it writes
        self.unclean: set[str] = set()  # topics for which an unclean election was requested
        self.leaders: dict[tuple[TopicPartition, bytes, int], int] = {}  # by topic id and leader epoch
        self.restarted: set[tuple[str, int]] = set()  # states, with brokers in their ISR that have registered again
        self.complete: dict[str, set[int]] = {}  # by state: the replicas with every acknowledged record
        self._logs = 0
        tree.committed = self.committed

    def report(self, text: str) -> None:
        """End the simulation."""
        raise ViolationError(text)

    def next_log(self) -> int:
        self._logs += 1
        return self._logs

    def leads(self, key: TopicPartition, topic_id: bytes, leader_epoch: int, broker_id: int) -> None:
        """A broker leads a partition: there is one leader per epoch."""
        other = self.leaders.setdefault((key, topic_id, leader_epoch), broker_id)
        if other != broker_id:
            self.report(f"{key} is led by {other} and {broker_id} in leader epoch {leader_epoch}")

    # At every moment.

    def committed(self, writer: object, changes: Sequence[Change], before: dict[str, object]) -> None:
        """A transaction was committed."""
        if isinstance(writer, ControllerRuntime):
            self._check_epoch(writer)
            self._check_deletions(changes, before)
            for change in changes:
                if isinstance(change, Put) and isinstance(change.value, LeaderAndIsr):
                    self._check_change(change.path, before[change.path], change.value)
        self._note_restarts(changes)
        self._note_complete(changes, before)
        states = {change.path for change in changes if change.path.endswith("/state")}
        self.foreign = self.foreign - states if isinstance(writer, ControllerRuntime) else self.foreign | states
        for change in [each for each in changes if nodes.parent(each.path) == nodes.TOPICS]:
            topic = self.topic(change.path.rpartition("/")[2])
            if topic is not None and topic.topic_id is not None:
                self.ids[self.tree.nodes[change.path].czxid] = topic.topic_id
        for name in self.tree.children(nodes.DELETIONS):
            node = self.tree.get(f"{nodes.TOPICS}/{name}")
            if node is not None and node.czxid in self.ids:
                self.requested.add(self.ids[node.czxid])

    def _note_restarts(self, changes: Sequence[Change]) -> None:
        """A broker that registers again leaves each ISR, unless it leads alone then, or none of the ISR was alive."""
        for change in changes:
            if isinstance(change, Create) and nodes.parent(change.path) == nodes.BROKERS:
                broker = int(change.path.rpartition("/")[2])
                self.restarted |= {(path, broker) for path, state in self._led_states() if broker in state.isr}
            elif change.path.endswith("/state") and not isinstance(change, Check):
                state = change.value if isinstance(change, Put) else None  # else it begins or ends
                ended = {each for each in self.restarted if each[0] == change.path and _has_left(each[1], state)}
                self.restarted -= ended

    def _note_complete(self, changes: Sequence[Change], before: dict[str, object]) -> None:
        """A leader acknowledges what its ISR has, if there are no eligible replicas; who joins has caught up with it.
        An unclean start loses records of all partitions.
        """
        for change in changes:
            if isinstance(change, Create) and isinstance(change.value, Broker) and change.value.unclean_since >= 0:
                for replicas in self.complete.values():
                    replicas.discard(change.value.broker_id)
            elif change.path.endswith("/state") and isinstance(getattr(change, "value", None), LeaderAndIsr):
                self._note_state(change.path, before.get(change.path), change.value)  # type: ignore[union-attr]
            elif isinstance(change, Remove):
                self.complete.pop(change.path, None)

    def _note_state(self, path: str, before: object, state: LeaderAndIsr) -> None:
        known = self.complete.get(path, set())
        if not isinstance(before, LeaderAndIsr) or (state.leader != NO_LEADER and state.leader not in known):
            self.complete[path] = set(state.isr)  # a new partition, or the records are lost
        elif state.leader != NO_LEADER:
            joined = {*state.isr} - {*before.isr} if state.leader_epoch == before.leader_epoch else set()
            self.complete[path] = (known | joined) & {*state.isr, *state.eligible}

    def _led_states(self) -> Iterator[tuple[str, LeaderAndIsr]]:
        for path in self.tree.below(nodes.TOPICS):
            value: Any = self.tree.nodes[path].value
            if isinstance(value, LeaderAndIsr) and value.leader != NO_LEADER:
                yield path, value

    def _check_change(self, path: str, before: object, after: LeaderAndIsr) -> None:
        """A state follows from the one before: the ISR is not empty, has the leader, and epochs grow."""
        assert isinstance(before, LeaderAndIsr)
        if not after.isr or after.leader not in (*after.isr, NO_LEADER):
            self.report(f"{path}: {after} has no leader in sync")
        if after.leader_epoch < before.leader_epoch:
            self.report(f"{path}: {after} follows {before}")
        if after.leader_epoch == before.leader_epoch and after.leader != before.leader:
            self.report(f"{path}: another leader in the same epoch: {after} follows {before}")
        left = {*before.isr, *before.eligible} - {*after.isr}
        if not {*after.eligible} <= left or (after.eligible and len(after.isr) >= MINIMUM):
            self.report(f"{path}: other replicas are eligible: {after} follows {before}")
        if after.leader not in (*before.isr, *before.eligible, NO_LEADER):
            name = path.removeprefix(f"{nodes.TOPICS}/").partition("/")[0]
            config = self.tree.get(f"{nodes.CONFIGS}/{name}")
            allowed = name in self.unclean or (config is not None and config.value == UNCLEAN)
            if not allowed or not after.recovering or after.isr != (after.leader,):
                self.report(f"{path}: a replica leads that was not in sync: {after} follows {before}")

    def topic(self, name: str) -> TopicValue | None:
        node = self.tree.get(f"{nodes.TOPICS}/{name}")
        return node.value if node is not None and isinstance(node.value, TopicValue) else None

    def _check_epoch(self, writer: ControllerRuntime) -> None:
        epoch = self.tree.nodes[nodes.EPOCH].value
        if writer.epoch != epoch:
            self.report(f"the controller of epoch {writer.epoch} wrote in epoch {epoch}")
        if self.writers.setdefault(writer.epoch, writer) is not writer:
            self.report(f"two controllers wrote in epoch {epoch}")

    def _check_deletions(self, changes: Sequence[Change], before: dict[str, object]) -> None:
        for change in changes:
            parts = change.path.removeprefix(nodes.TOPICS + "/").split("/")
            if not isinstance(change, Remove) or not change.path.startswith(nodes.TOPICS + "/"):
                continue
            value: Any = before.get(f"{nodes.TOPICS}/{parts[0]}") or self.topic(parts[0])
            if value.topic_id is not None and value.topic_id not in self.requested:
                self.report(f"{change.path} was deleted without a request")

    def log_deleted(self, key: TopicPartition, log: Log) -> None:
        """A broker has deleted a log."""
        if log.topic_id not in self.requested:
            self.report(f"the log of {key} was deleted without a request")

    def log_strayed(self, key: TopicPartition, log: Log) -> None:
        """A broker has renamed a log that it does not host any more."""
        node = self.tree.get(f"{nodes.TOPICS}/{key.topic}")
        if node is None or log.topic_id in self.requested:
            return
        if self.ids.get(node.czxid) == log.topic_id:  # an invalid node may have been created since the request left
            self.report(f"the log of {key} was renamed, but its topic exists: {log} {node.value}")

    # Once the cluster is quiet.

    def check_quiet(self, cluster: "Cluster") -> None:
        """All brokers are alive, and nothing has happened for long."""
        if cluster.controller() is None:
            self.report("there is no controller")
        if self.tree.children(nodes.DELETIONS):
            self.report(f"deletions remain: {self.tree.children(nodes.DELETIONS)}")
        states = self._check_topics()
        registered = set(self.tree.children(nodes.BROKERS))
        for broker, process in cluster.processes.items():
            if str(broker) not in registered:
                self.report(f"broker {broker} is not registered")
            self._check_image(broker, process.state, states)
            self._check_logs(broker, process.state, states)
            self._check_leaders(broker, process.state, states)

    def _check_topics(self) -> dict[TopicPartition, tuple[bytes, LeaderAndIsr, int]]:
        """Every topic is whole and led; returns the states."""
        states = {}
        for name in self.tree.children(nodes.TOPICS):
            topic = self.topic(name)
            if topic is None:
                continue  # an invalid node
            if topic.topic_id is None:
                self.report(f"{name} has no topic id")
                continue
            above = f"{nodes.TOPICS}/{name}/partitions"
            if set(self.tree.children(above)) != {str(index) for index in topic.replicas}:
                self.report(f"{name} has the partitions {self.tree.children(above)} of {sorted(topic.replicas)}")
            for index, replicas in topic.replicas.items():
                key = TopicPartition(name, index)
                states[key] = (topic.topic_id, *self._check_state(key, replicas))
        return states

    def _check_state(self, key: TopicPartition, replicas: tuple[int, ...]) -> tuple[LeaderAndIsr, int]:
        node = self.tree.get(f"{nodes.TOPICS}/{key.topic}/partitions/{key.partition}/state")
        if node is None or not isinstance(node.value, LeaderAndIsr):
            raise ViolationError(f"{key} has no state")
        if node.value.leader not in node.value.isr or not set(node.value.isr) <= set(replicas):
            self.report(f"{key} is led by {node.value.leader} with the ISR {node.value.isr} of {replicas}")
        registered = self.tree.nodes.get(f"{nodes.BROKERS}/{node.value.leader}")
        if registered is not None and registered.czxid > node.mzxid and state_path(key) not in self.foreign:
            self.report(f"{key}: broker {node.value.leader} has restarted and leads in the same leader epoch")
        for broker in node.value.isr:
            if (state_path(key), broker) in self.restarted and len(replicas) > 1:
                self.report(f"{key}: broker {broker} has restarted and stays in the ISR {node.value.isr}")
        complete = self.complete.get(state_path(key), set())
        if complete and not {node.value.leader, *node.value.eligible} <= complete:
            self.report(f"{key}: only {sorted(complete)} have lost no records: {node.value}")
        return node.value, node.version

    def _check_image(
        self, broker: int, state: BrokerState, states: dict[TopicPartition, tuple[bytes, LeaderAndIsr, int]]
    ) -> None:
        image = {
            key: (
                *(each.topic_id, each.state.leader, each.state.leader_epoch, each.state.isr),
                0 if state_path(key) in self.foreign else each.state.partition_epoch,
            )
            for key, each in state.image.items()
        }
        expected = {
            key: (topic_id, each.leader, each.leader_epoch, each.isr, 0 if state_path(key) in self.foreign else version)
            for key, (topic_id, each, version) in states.items()
        }
        if image != expected:
            wrong = {key for key in image.keys() | expected.keys() if image.get(key) != expected.get(key)}
            self.report(f"the image of broker {broker} differs from the tree: {sorted(wrong)}")
        brokers = {str(each.broker_id): each.epoch for each in state.brokers}
        registered = {
            name: self.tree.nodes[f"{nodes.BROKERS}/{name}"].czxid for name in self.tree.children(nodes.BROKERS)
        }
        if brokers != registered:
            self.report(f"the image of broker {broker} has the brokers {brokers} instead of {registered}")

    def _check_logs(
        self, broker: int, state: BrokerState, states: dict[TopicPartition, tuple[bytes, LeaderAndIsr, int]]
    ) -> None:
        assigned = {key: each[1].leader_epoch for key, each in states.items() if broker in self._replicas(key)}
        hosted = {key: each.leader_epoch for key, each in state.hosted.items()}
        if hosted != assigned:
            wrong = {key for key in hosted.keys() | assigned.keys() if hosted.get(key) != assigned.get(key)}
            self.report(f"broker {broker} hosts other partitions than those assigned to it: {sorted(wrong)}")
        for key, log in state.disks.logs.items():
            if key not in assigned or states[key][0] != log.topic_id:
                self.report(f"broker {broker} has a log of {key}, which is not assigned to it")

    def _replicas(self, key: TopicPartition) -> tuple[int, ...]:
        topic = self.topic(key.topic)
        return () if topic is None else topic.replicas[key.partition]

    def _check_leaders(
        self, broker: int, state: BrokerState, states: dict[TopicPartition, tuple[bytes, LeaderAndIsr, int]]
    ) -> None:
        led = sorted(key for key, each in states.items() if each[1].leader == broker)
        if state.led != led:
            self.report(f"broker {broker} leads {state.led} instead of {led}")


def _has_left(broker: int, state: object) -> bool:
    """Whether a broker that has restarted is out of the ISR, or leads as its only member, or the ISR has no leader."""
    if not isinstance(state, LeaderAndIsr):
        return True
    return broker not in state.isr or state.isr == (broker,) or state.leader == NO_LEADER
