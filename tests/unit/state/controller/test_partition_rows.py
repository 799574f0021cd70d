"""Every row of the transition table of partitions, each in a situation that takes it."""

import pytest

from kafkalite.state.controller.partitions.table import TRANSITIONS
from kafkalite.state.controller.states import PartitionEvent, PartitionState
from kafkalite.state.controller.values import LeaderAndIsr, StoredState, TopicNodes
from tests.unit.state.controller.kit import EPOCH, ID, INVALID, WRITTEN, Case, Situation, nodes, stored

S, E = PartitionState, PartitionEvent


# The partition a-0 has the replica 1. Broker 2 is the controller.


def new() -> Situation:
    """Without a state; broker 1 is not alive."""
    return Situation({"a": nodes()}, alive=()).quiet()


def creating() -> Situation:
    return Situation({"a": nodes()}).quiet()


def online() -> Situation:
    return Situation({"a": nodes(stored(1))}).quiet()


def offline() -> Situation:
    return Situation({"a": nodes(stored(-1))}, alive=()).quiet()


def electing() -> Situation:
    """Broker 1 has restarted: its new leader epoch is being written."""
    return online().alive(1, epoch=2).quiet()


def reading() -> Situation:
    return electing().rejected().quiet()


def invalid() -> Situation:
    return Situation({"a": nodes(INVALID)}).quiet()


def two_replicas(leader: int, leader_epoch: int, version: int) -> TopicNodes:
    """The nodes of a topic that Apache Kafka has created with the replicas 1 and 3, of which only 1 was in sync."""
    state = StoredState(
        LeaderAndIsr(leader, leader_epoch, (leader,) if leader > 0 else (1,), EPOCH - 1), version, WRITTEN
    )
    return TopicNodes(ID, 0, {0: (1, 3)}, {}, {}, {0: state}, frozenset({0}), 10)


def deleted(situation: Situation, found: TopicNodes) -> Situation:
    """The deletion of the topic is requested and confirmed."""
    return situation.requested("a").quiet().read(found)


def led(replicas: tuple[int, ...] = (1, 3), isr: tuple[int, ...] = (1, 3), version: int = 0) -> TopicNodes:
    """The nodes of a topic whose partition is led by broker 1."""
    state = StoredState(LeaderAndIsr(1, 0, isr, EPOCH - 1), version, WRITTEN)
    return TopicNodes(ID, 0, {0: replicas}, {}, {}, {0: state}, frozenset({0}), 10)


def changing() -> Situation:
    """The ISR of a partition is being written without broker 3."""
    return Situation({"a": led()}, alive=(1, 3)).quiet().alter((1,))


def metadata(*brokers: int) -> list[str]:
    """The leader is sent to these brokers."""
    return [f"broker {each}: leader 1" for each in brokers]


FIRST = ["CheckTopic", "CreateState leader 1 epoch 0"]

CASES = [
    Case(S.NEW, E.REPLICAS_CHANGED, lambda: new().alive(1), FIRST),
    Case(S.NEW, E.STATE_CHOSEN, lambda: new().alive(1), FIRST),
    Case(
        S.NEW, E.LEADERLESS, lambda: new().read(nodes(stored(1))), ["SetState leader -1 epoch 1", "broker 2: leader 1"]
    ),
    Case(S.NEW, E.UNREADABLE, lambda: new().read(nodes(INVALID)), []),
    Case(S.NEW, E.DELETED, lambda: deleted(new(), nodes()), ["read the topic", "broker 2: leader -2"]),
    Case(S.NEW, E.REQUESTED, lambda: new().alter((1,), sender=2), ["answer 3"]),
    Case(S.CREATING, E.REQUESTED, lambda: creating().alter((1,)), []),
    Case(S.ONLINE, E.REQUESTED, changing, ["SetState leader 1 epoch 0"]),
    Case(S.OFFLINE, E.REQUESTED, lambda: offline().alter((1,), sender=2, leader_epoch=5), ["answer 74"]),
    Case(S.ELECTING, E.REQUESTED, lambda: changing().alter((1, 3)), []),
    Case(S.ELECTING, E.ISR_WRITTEN, lambda: changing().written(1), ["answer 0", *metadata(1, 2, 3)]),
    Case(S.READING, E.REQUESTED, lambda: changing().rejected().alter((1, 3)), []),
    Case(S.INVALID, E.REQUESTED, lambda: invalid().alter((1,)), ["answer 3"]),
    Case(S.CREATING, E.REPLICAS_CHANGED, lambda: creating().alive(), []),
    Case(S.CREATING, E.LED, lambda: creating().written(), ["broker 2: leader 1"]),
    Case(
        S.CREATING,
        E.LEADERLESS,
        lambda: creating().alive().quiet().written(),
        ["SetState leader -1 epoch 1", "broker 2: leader 1"],
    ),
    Case(S.CREATING, E.WRITE_FAILED, lambda: creating().rejected(), ["read the topic"]),
    Case(S.CREATING, E.DELETED, lambda: deleted(creating(), nodes()), ["read the topic", "broker 2: leader -2"]),
    Case(S.ONLINE, E.REPLICAS_CHANGED, lambda: online().alive(), ["SetState leader -1 epoch 1"]),
    Case(
        S.ONLINE,
        E.REPLICAS_CHANGED,
        lambda: online().alive(1, epoch=2),
        ["SetState leader 1 epoch 1", "broker 1: leader 1"],
    ),
    Case(S.ONLINE, E.STATE_CHOSEN, lambda: online().alive(), ["SetState leader -1 epoch 1"]),
    Case(S.ONLINE, E.LED, lambda: online().read(nodes(stored(1, 1, 1))), ["broker 2: leader 1"]),
    Case(
        S.ONLINE,
        E.LEADERLESS,
        lambda: online().read(nodes(stored(-1, 1, 1))),
        ["SetState leader 1 epoch 2", "broker 2: leader -1"],
    ),
    Case(
        S.ONLINE, E.DELETED, lambda: deleted(online(), nodes(stored(1))), ["broker 1: leader -2", "broker 2: leader -2"]
    ),
    Case(
        S.OFFLINE, E.REPLICAS_CHANGED, lambda: offline().alive(1), ["SetState leader 1 epoch 1", "broker 1: leader -1"]
    ),
    Case(S.OFFLINE, E.STATE_CHOSEN, lambda: offline().alive(1), ["SetState leader 1 epoch 1", "broker 1: leader -1"]),
    Case(
        S.OFFLINE,
        E.LED,
        lambda: Situation({"a": two_replicas(-1, 0, 0)}, alive=(3,)).quiet().read(two_replicas(3, 1, 1)),
        ["broker 2: leader 3"],
    ),
    Case(S.OFFLINE, E.LEADERLESS, lambda: offline().read(nodes(stored(-1, 1, 1))), ["broker 2: leader -1"]),
    Case(
        S.OFFLINE,
        E.DELETED,
        lambda: deleted(offline(), nodes(stored(-1))),
        ["its deletion waits for the brokers [1]", "broker 2: leader -2"],
    ),
    Case(S.ELECTING, E.REPLICAS_CHANGED, lambda: electing().alive(), []),
    Case(S.ELECTING, E.REPLICAS_CHANGED, lambda: electing().alive(1, epoch=3), ["broker 1: leader 1"]),
    Case(S.ELECTING, E.LED, lambda: electing().written(1), ["broker 2: leader 1"]),
    Case(
        S.ELECTING,
        E.LEADERLESS,
        lambda: electing().alive().quiet().written(1),
        ["SetState leader -1 epoch 2", "broker 2: leader 1"],
    ),
    Case(S.ELECTING, E.WRITE_FAILED, lambda: electing().rejected(), ["read the state"]),
    Case(
        S.ELECTING,
        E.DELETED,
        lambda: deleted(electing(), nodes(stored(1))),
        ["broker 2: leader -2", "broker 1: leader -2"],
    ),
    Case(S.READING, E.REPLICAS_CHANGED, lambda: reading().alive(), []),
    Case(S.READING, E.REPLICAS_CHANGED, lambda: reading().alive(1, epoch=3), ["broker 1: leader 1"]),
    Case(S.READING, E.LED, lambda: reading().state_read(stored(1, 1, 1)), ["broker 2: leader 1"]),
    Case(
        S.READING,
        E.LEADERLESS,
        lambda: reading().alive().quiet().state_read(stored(1, 1, 1)),
        ["SetState leader -1 epoch 2", "broker 2: leader 1"],
    ),
    Case(S.READING, E.MISSING, lambda: Situation({"a": nodes()}), FIRST),
    Case(S.READING, E.UNREADABLE, lambda: Situation({"a": nodes(INVALID)}), []),
    Case(
        S.READING,
        E.DELETED,
        lambda: deleted(reading(), nodes(stored(1))),
        ["broker 2: leader -2", "broker 1: leader -2"],
    ),
    Case(S.INVALID, E.REPLICAS_CHANGED, lambda: invalid().alive(), []),
    Case(S.INVALID, E.LED, lambda: invalid().read(nodes(stored(1))), ["broker 2: leader 1"]),
    Case(
        S.INVALID,
        E.LEADERLESS,
        lambda: invalid().alive().quiet().read(nodes(stored(1))),
        ["SetState leader -1 epoch 1", "broker 2: leader 1"],
    ),
    Case(S.INVALID, E.MISSING, lambda: invalid().read(nodes()), FIRST),
    Case(S.INVALID, E.UNREADABLE, lambda: invalid().read(nodes(INVALID)), []),
    Case(S.INVALID, E.DELETED, lambda: deleted(invalid(), nodes(INVALID)), ["read the topic", "broker 2: leader -2"]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_row(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.check(monkeypatch)


def test_every_row_has_a_case() -> None:
    assert {(case.state, case.event) for case in CASES} == TRANSITIONS.keys()
