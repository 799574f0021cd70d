"""Every row of the transition table of topics, each in a situation that takes it."""

import pytest

from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.states import TopicEvent, TopicState
from kafkalite.state.controller.topics.table import TRANSITIONS
from kafkalite.state.controller.values import TopicNodes
from tests.unit.state.controller.kit import ID, INVALID, Case, Situation, nodes, stored

S, E = TopicState, TopicEvent
FOUND, WITHOUT_ID = nodes(stored(1)), nodes(stored(1), topic_id=None)


# The topic a has a partition with the replica 1. Broker 2 is the controller.


def topics(situation: Situation, *names: str) -> Situation:
    """These topics exist."""
    return situation.report(into.TopicsChanged(frozenset(names)))


def unread() -> Situation:
    return topics(Situation({}), "a").quiet()


def without_id() -> Situation:
    return Situation({"a": WITHOUT_ID}).quiet()


def invalid() -> Situation:
    return Situation({"a": INVALID}).quiet()


def active() -> Situation:
    return Situation({"a": FOUND}).quiet()


def deleting() -> Situation:
    """Broker 1 has not deleted its replica yet."""
    return active().requested("a").read(FOUND)


def ineligible() -> Situation:
    """Broker 1 is not alive."""
    return Situation({"a": FOUND}, alive=()).quiet().requested("a").read(nodes(stored(-1, 1, 1))).quiet()


def removing() -> Situation:
    return deleting().answer_until(1, out.SendStopReplica).answer(1)


def replicas_of_two() -> TopicNodes:
    """The partition 0 on broker 1, the partition 1 on broker 3."""
    return TopicNodes(ID, 0, {0: (1,), 1: (3,)}, {}, {}, {0: stored(1), 1: stored(-1)}, frozenset({0, 1}), 10)


def partly_ineligible() -> Situation:
    """Broker 1 has deleted its replica, broker 3 is not alive."""
    situation = Situation({"a": replicas_of_two()}).quiet().requested("a").read(replicas_of_two())
    return situation.answer_until(1, out.SendStopReplica).answer(1)


CASES = [
    Case(S.UNREAD, E.READ, lambda: unread().read(FOUND), []),
    Case(S.UNREAD, E.READ_WITHOUT_ID, lambda: unread().read(WITHOUT_ID), ["SetTopicId"]),
    Case(S.UNREAD, E.UNREADABLE, lambda: unread().read(INVALID), []),
    Case(S.UNREAD, E.MISSING, lambda: unread().read(None), []),
    Case(S.UNREAD, E.DELETION_REQUESTED, lambda: unread().requested("a"), ["read the topic"]),
    Case(S.WITHOUT_ID, E.READ, lambda: without_id().read(FOUND), []),
    Case(S.WITHOUT_ID, E.READ_WITHOUT_ID, lambda: without_id().read(WITHOUT_ID), []),
    Case(S.WITHOUT_ID, E.UNREADABLE, lambda: without_id().read(INVALID), []),
    Case(S.WITHOUT_ID, E.MISSING, lambda: topics(without_id()), []),
    Case(S.WITHOUT_ID, E.DELETION_REQUESTED, lambda: without_id().requested("a"), []),
    Case(S.WITHOUT_ID, E.WRITTEN, lambda: without_id().written(), ["read the topic"]),
    Case(S.WITHOUT_ID, E.WRITE_FAILED, lambda: without_id().rejected(), ["read the topic"]),
    Case(S.INVALID, E.READ, lambda: invalid().read(FOUND), []),
    Case(S.INVALID, E.READ_WITHOUT_ID, lambda: invalid().read(WITHOUT_ID), ["SetTopicId"]),
    Case(S.INVALID, E.UNREADABLE, lambda: invalid().read(INVALID), []),
    Case(S.INVALID, E.MISSING, lambda: topics(invalid()), []),
    Case(
        S.INVALID,
        E.DELETION_REQUESTED,
        lambda: invalid().requested("a"),
        ["it cannot be deleted because its znode is invalid"],
    ),
    Case(S.ACTIVE, E.READ, lambda: active().read(FOUND), []),
    Case(S.ACTIVE, E.READ_WITHOUT_ID, lambda: active().read(WITHOUT_ID), ["SetTopicId"]),
    Case(S.ACTIVE, E.UNREADABLE, lambda: active().read(INVALID), []),
    Case(
        S.ACTIVE,
        E.MISSING,
        lambda: topics(active()),
        ["its znodes were deleted by others, its logs are kept", "broker 2: leader -2"],
    ),
    Case(S.ACTIVE, E.WRITTEN, lambda: active().read(WITHOUT_ID).written(), ["read the topic"]),
    Case(S.ACTIVE, E.WRITE_FAILED, lambda: active().read(WITHOUT_ID).rejected(), ["read the topic"]),
    Case(S.ACTIVE, E.DELETION_REQUESTED, lambda: active().requested("a"), ["read the topic"]),
    Case(
        S.ACTIVE,
        E.DELETION_CONFIRMED,
        lambda: active().requested("a").read(FOUND),
        ["broker 1: leader -2", "broker 2: leader -2"],
    ),
    Case(S.DELETING, E.READ, lambda: deleting().read(FOUND), []),
    Case(S.DELETING, E.READ_WITHOUT_ID, lambda: deleting().read(WITHOUT_ID), []),
    Case(S.DELETING, E.UNREADABLE, lambda: deleting().read(INVALID), []),
    Case(
        S.DELETING,
        E.MISSING,
        lambda: topics(deleting()),
        ["its znodes were deleted by others, its logs are kept", "DeleteDeletion"],
    ),
    Case(S.DELETING, E.REPLICAS_AVAILABLE, lambda: deleting().alive(1, epoch=2), ["broker 1: leader -2"]),
    Case(S.DELETING, E.REPLICAS_UNAVAILABLE, lambda: deleting().alive(), ["its deletion waits for the brokers [1]"]),
    Case(
        S.DELETING,
        E.REPLICAS_DELETED,
        lambda: deleting().answer_until(1, out.SendStopReplica).answer(1),
        ["read the topic"],
    ),
    Case(S.DELETING, E.ONLY_UNAVAILABLE_LEFT, lambda: deleting().alive(), ["its deletion waits for the brokers [1]"]),
    Case(
        S.DELETING, E.ALL_DELETED, lambda: deleting().answer_until(1, out.SendStopReplica).answer(1), ["read the topic"]
    ),
    Case(
        S.DELETING,
        E.DELETION_WITHDRAWN,
        lambda: deleting().requested(),
        ["the request to delete it was removed, some of its logs are deleted", "read the topic"],
    ),
    Case(S.INELIGIBLE, E.READ, lambda: ineligible().read(FOUND), []),
    Case(S.INELIGIBLE, E.READ_WITHOUT_ID, lambda: ineligible().read(WITHOUT_ID), []),
    Case(S.INELIGIBLE, E.UNREADABLE, lambda: ineligible().read(INVALID), []),
    Case(
        S.INELIGIBLE,
        E.MISSING,
        lambda: topics(ineligible()),
        ["its znodes were deleted by others, its logs are kept", "DeleteDeletion", "broker 2: leader -2"],
    ),
    Case(S.INELIGIBLE, E.REPLICAS_AVAILABLE, lambda: ineligible().alive(1), ["broker 1: leader -2"]),
    Case(S.INELIGIBLE, E.REPLICAS_UNAVAILABLE, lambda: partly_ineligible().alive(), []),
    Case(
        S.INELIGIBLE,
        E.DELETION_WITHDRAWN,
        lambda: ineligible().requested(),
        ["the request to delete it was removed, some of its logs are deleted", "read the topic"],
    ),
    Case(S.REMOVING, E.READ, lambda: removing().read(FOUND), ["CheckDeletion", "DeleteState", "DeletePartitionNode"]),
    Case(
        S.REMOVING,
        E.READ_WITHOUT_ID,
        lambda: removing().read(WITHOUT_ID),
        ["CheckDeletion", "DeleteState", "DeletePartitionNode"],
    ),
    Case(
        S.REMOVING,
        E.UNREADABLE,
        lambda: removing().read(INVALID),
        ["it cannot be deleted because its znode is invalid"],
    ),
    Case(S.REMOVING, E.MISSING, lambda: removing().read(None), ["DeleteDeletion"]),
    Case(
        S.REMOVING,
        E.PART_WRITTEN,
        lambda: removing().read(FOUND).written(),
        ["DeletePartitionsNode", "DeleteTopicNode", "DeleteTopicConfig", "DeleteDeletion"],
    ),
    Case(S.REMOVING, E.WRITTEN, lambda: removing().read(FOUND).written().written(), []),
    Case(S.REMOVING, E.WRITE_FAILED, lambda: removing().read(FOUND).rejected(), ["read the topic"]),
    Case(
        S.REMOVING,
        E.DELETION_WITHDRAWN,
        lambda: removing().requested(),
        ["the request to delete it was removed, some of its logs are deleted", "read the topic"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_row(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.check(monkeypatch)


def test_every_row_has_a_case() -> None:
    assert {(case.state, case.event) for case in CASES} == TRANSITIONS.keys()
