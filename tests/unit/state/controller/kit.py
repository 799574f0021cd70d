"""A controller's machine in a chosen situation: what a test reports to it, and what it does then."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Endpoint, TopicPartition
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.controller import Controller
from kafkalite.state.controller.partitions import table as partition_table
from kafkalite.state.controller.states import PartitionEvent, PartitionState, TopicEvent, TopicState
from kafkalite.state.controller.topics import table as topic_table
from kafkalite.state.controller.values import (
    Broker,
    ControllerSettings,
    FeaturesNode,
    InvalidNode,
    LeaderAndIsr,
    PartitionOutcome,
    Snapshot,
    StoredState,
    TopicNodes,
)
from tests.kit.counted_table import CountedTable

ID, OTHER_ID = b"1" * 16, b"2" * 16
EPOCH = 7  # of the controller
WRITTEN = 100  # the zxid of states, after the registrations of all brokers
KEY = TopicPartition("a", 0)
INVALID = InvalidNode("not JSON")
FEATURES = FeaturesNode(True, {}, 0)
SENDS = (out.SendUpdateMetadata, out.SendLeaderAndIsr, out.SendStopReplica)
Send = out.SendUpdateMetadata | out.SendLeaderAndIsr | out.SendStopReplica


def broker(broker_id: int, epoch: int = 1) -> Broker:
    return Broker(broker_id, epoch, (Endpoint("PLAINTEXT", f"host{broker_id}", 9092),))


def stored(leader: int, leader_epoch: int = 0, version: int = 0, zxid: int = WRITTEN) -> StoredState:
    """The state of a partition with the replica 1, as an earlier controller has written it."""
    return StoredState(LeaderAndIsr(leader, leader_epoch, (1,), EPOCH - 1), version, zxid)


def nodes(
    state: StoredState | InvalidNode | None = None, topic_id: bytes | None = ID, version: int = 0, created: int = 10
) -> TopicNodes:
    """The nodes of a topic with one partition, whose replica is on broker 1."""
    states = {} if state is None else {0: state}
    return TopicNodes(topic_id, version, {0: (1,)}, {}, {}, states, frozenset(states), created)


class Situation:
    """An elected controller on broker 2, which is always alive, with the effects of the latest event.

    Arguments:
        topics: in the tree at the election.
        alive: the other brokers that are alive.
        deletions: that are requested.
        machine: a new one; None = with the default settings.
        registered: all live brokers, instead of `alive`.
    """

    def __init__(
        self,
        topics: Mapping[str, TopicNodes | InvalidNode],
        alive: tuple[int, ...] = (1,),
        deletions: frozenset[str] = frozenset(),
        machine: Controller | None = None,
        registered: tuple[Broker, ...] = (),
    ) -> None:
        self.machine = machine or Controller(ControllerSettings(2, EPOCH))
        self.now_ms = 0
        self.requests: dict[int, Send] = {}  # in flight, by broker
        self.writes: list[out.Write] = []  # all
        self.reads: list[out.ReadStates] = []
        self.sent: list[Send] = []  # all
        self.effects: list[out.Effect] = []
        self.report(into.SnapshotRead(Snapshot(registered or self._brokers(alive), topics, deletions, FEATURES)))

    def report(self, event: into.Event) -> "Situation":
        """Report an event."""
        self.effects = self.machine.handle(event, self.now_ms)
        for effect in self.effects:
            if isinstance(effect, SENDS):
                self.requests[effect.broker_id] = effect
                self.sent.append(effect)
            elif isinstance(effect, out.Write):
                self.writes.append(effect)
            elif isinstance(effect, out.ReadStates):
                self.reads.append(effect)
            elif isinstance(effect, out.Disconnect):
                self.requests.pop(effect.broker_id, None)
        return self

    # Events.

    def alive(self, *brokers: int, epoch: int = 1) -> "Situation":
        """These brokers are alive, and broker 2; `epoch`: of the registrations."""
        return self.report(into.BrokersChanged(self._brokers(brokers, epoch)))

    def read(self, found: TopicNodes | InvalidNode | None) -> "Situation":
        return self.report(into.TopicRead("a", found))

    def state_read(self, found: StoredState | InvalidNode | None) -> "Situation":
        return self.report(into.StatesRead(self.reads[-1].read_id, {KEY: found}))

    def alter(
        self,
        isr: tuple[int, ...],
        *,
        sender: int = 1,
        sender_epoch: int = 1,
        topic_id: bytes = ID,
        partition: int = 0,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        member_epoch: int = -1,
        recovering: bool = False,
    ) -> "Situation":
        """A leader requests an ISR, with these epochs of its members; the token is the requested ISR."""
        members = tuple((each, member_epoch) for each in isr)
        change = into.RequestedIsr(topic_id, partition, leader_epoch, partition_epoch, members, recovering)
        return self.report(into.AlterPartitions(isr, sender, sender_epoch, (change,)))

    def completed(self, token: object) -> list[tuple[int, tuple[PartitionOutcome, ...]]]:
        """The results of a request in the latest event: its error, and the outcomes of its partitions."""
        done = [effect for effect in self.effects if isinstance(effect, out.Completion) and effect.token == token]
        return [(each.error, each.outcomes) for each in done]

    def requested(self, *topics: str) -> "Situation":
        """The deletion of these topics is requested, and of no other."""
        return self.report(into.DeletionsChanged(frozenset(topics)))

    def written(self, version: int = 0) -> "Situation":
        """The latest transaction is committed."""
        write = self.writes[-1]
        return self.report(into.WriteDone(write.write_id, (version,) * len(write.operations)))

    def rejected(self, at: int = 0) -> "Situation":
        return self.report(into.WriteRejected(self.writes[-1].write_id, at))

    def answer(self, broker_id: int, error: int = 0) -> "Situation":
        """A broker responds to its request; `error`: of all partitions of LeaderAndIsr and StopReplica."""
        send = self.requests.pop(broker_id)
        if isinstance(send, out.SendUpdateMetadata):
            return self.report(into.UpdateMetadataAnswered(send.request_id, KafkaErrorCode.NONE))
        errors = {
            TopicPartition(topic.topic, each.partition): error for topic in send.topics for each in topic.partitions
        }
        answered: Any = (
            into.LeaderAndIsrAnswered if isinstance(send, out.SendLeaderAndIsr) else into.StopReplicaAnswered
        )
        return self.report(answered(send.request_id, KafkaErrorCode.NONE, errors))

    def quiet(self) -> "Situation":
        """All brokers have accepted what waits for them."""
        while self.requests:
            self.answer(next(iter(self.requests)))
        return self

    def answer_until(self, broker_id: int, kind: type) -> "Situation":
        """A broker accepts its requests up to one of this type, which stays in flight."""
        while not isinstance(self.requests[broker_id], kind):
            self.answer(broker_id)
        return self

    @property
    def summary(self) -> list[str]:
        """What the latest event has led to: reads, operations of writes, states that are sent, and warnings."""
        return [line for effect in self.effects for line in summaries(effect)]

    @staticmethod
    def registrations(epochs: Mapping[int, int]) -> tuple[Broker, ...]:
        """Brokers with the epochs of their registrations, and broker 2."""
        return (*(broker(each, epoch) for each, epoch in epochs.items()), broker(2))

    @staticmethod
    def _brokers(others: tuple[int, ...], epoch: int = 1) -> tuple[Broker, ...]:
        return (*(broker(each, epoch) for each in others), broker(2))


def summaries(effect: out.Effect) -> Iterator[str]:
    """An effect in words; nothing for those that the tests of rows do not compare."""
    if isinstance(effect, out.Write):
        yield from map(_operation, effect.operations)
    elif isinstance(effect, out.ReadTopic):
        yield "read the topic"
    elif isinstance(effect, out.ReadStates):
        yield "read the state"
    elif isinstance(effect, out.SendUpdateMetadata):
        for topic in effect.topics:
            yield from (f"broker {effect.broker_id}: leader {each.leader}" for each in topic.partitions)
    elif isinstance(effect, out.SendStopReplica):
        yield f"broker {effect.broker_id}: stop"
    elif isinstance(effect, out.Log) and effect.level != "info":
        yield effect.text.partition(": ")[2]
    elif isinstance(effect, out.Completion):
        yield from (f"answer {outcome.error}" for outcome in effect.outcomes)


def _operation(operation: out.Operation) -> str:
    name = type(operation).__name__
    if isinstance(operation, out.CreateState | out.SetState):
        return f"{name} leader {operation.state.leader} epoch {operation.state.leader_epoch}"
    return name


class Case(NamedTuple):
    """A row of a transition table.

    Attributes:
        state, event: of the row.
        situation: its last event takes the row.
        effects: of that event.
    """

    state: PartitionState | TopicState
    event: PartitionEvent | TopicEvent
    situation: Callable[[], Situation]
    effects: list[str]

    @property
    def name(self) -> str:
        """The id of its test."""
        return f"{self.state.name}-{self.event.name}"

    def check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The row is taken, and its event has these effects."""
        module = partition_table if isinstance(self.state, PartitionState) else topic_table
        table: CountedTable[Any, Any] = CountedTable(module.TRANSITIONS)
        monkeypatch.setattr(module, "TRANSITIONS", table)
        situation = self.situation()
        assert (self.state, self.event) in table.used
        assert situation.summary == self.effects
