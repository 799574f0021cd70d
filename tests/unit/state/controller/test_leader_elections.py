"""Which replica leads after brokers have failed, returned or restarted, with one replica and with several."""

import pytest

from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.partitions.leader_elections import next_state
from kafkalite.state.controller.values import LeaderAndIsr, Replicas, StoredState, TopicNodes
from tests.unit.state.controller.kit import EPOCH, ID, WRITTEN, Situation, broker, nodes, stored

NONE = -1


def after(
    leader: int, isr: Replicas, online: Replicas, restarted: tuple[int, ...] = ()
) -> tuple[int, Replicas, int] | None:
    """Leader, ISR and leader epoch of the next state; the epoch was 4. None: the state remains."""
    state = next_state(LeaderAndIsr(leader, 4, isr, 1), online, 2, restarted=restarted)
    return None if state is None else (state.leader, state.isr, state.leader_epoch)


@pytest.mark.parametrize(
    ("leader", "isr", "online", "restarted", "expected"),
    [
        (1, (1,), (1,), (1,), (1, (1,), 5)),
        (1, (1, 2), (1, 2), (1,), (2, (2,), 5)),
        (1, (1, 2, 3), (1, 2, 3), (1,), (2, (2, 3), 5)),
        (1, (1, 2, 3), (1, 2, 3), (1, 2), (3, (3,), 5)),
        (1, (1, 2, 3), (1, 2, 3), (3,), (1, (1, 2), 5)),
        (1, (1, 2), (1, 2, 3), (3,), None),
        (2, (1, 2), (1, 2), (1, 2), (2, (2,), 5)),
        (1, (1, 2), (2, 3), (2,), (2, (2,), 5)),
        (NONE, (1, 2), (1, 2), (1, 2), (1, (1,), 5)),
        (NONE, (1,), (2,), (), None),
        (NONE, (1,), (1,), (1,), (1, (1,), 5)),
        (1, (1,), (), (1,), (NONE, (1,), 5)),
    ],
)
def test_restarted_replica_has_failed_and_then_started(
    leader: int,
    isr: Replicas,
    online: Replicas,
    restarted: tuple[int, ...],
    expected: tuple[int, Replicas, int] | None,
) -> None:
    assert after(leader, isr, online, restarted) == expected


@pytest.mark.parametrize(
    ("leader", "isr", "online", "expected"),
    [
        (1, (1, 2), (1, 2), None),
        (1, (1, 2), (2,), (2, (2,), 5)),
        (1, (1, 2), (1,), (1, (1,), 5)),
        (1, (1, 2), (3,), (NONE, (1, 2), 5)),
        (NONE, (1, 2), (2,), (2, (2,), 5)),
    ],
)
def test_failed_replica_leaves_the_in_sync_ones(
    leader: int, isr: Replicas, online: Replicas, expected: tuple[int, Replicas, int] | None
) -> None:
    assert after(leader, isr, online) == expected


# Restarts with several replicas, of which Apache Kafka has assigned some in sync.


def in_sync(
    leader: int, *isr: int, leader_epoch: int = 0, zxid: int = WRITTEN, isr_epochs: tuple[int, ...] = ()
) -> TopicNodes:
    """The nodes of a topic with replicas on the brokers 1 and 3."""
    state = StoredState(LeaderAndIsr(leader, leader_epoch, isr, EPOCH - 1, False, isr_epochs), leader_epoch, zxid)
    return TopicNodes(ID, 0, {0: (1, 3)}, {}, {}, {0: state}, frozenset({0}), 10)


def leaders_sent(situation: Situation, broker_id: int) -> list[tuple[int, int]]:
    """Leader and leader epoch in the LeaderAndIsr request to a broker, which has accepted those before it."""
    send = situation.answer_until(broker_id, out.SendLeaderAndIsr).requests[broker_id]
    assert isinstance(send, out.SendLeaderAndIsr)
    return [(each.leader, each.leader_epoch) for topic in send.topics for each in topic.partitions]


def test_other_in_sync_replica_leads_after_the_leader_has_restarted() -> None:
    situation = Situation({"a": in_sync(1, 1, 3)}, alive=(1, 3)).quiet()
    situation.report(into.BrokersChanged((broker(1, 9), broker(3), broker(2))))
    assert situation.summary[0] == "SetState leader 3 epoch 1"
    (state,) = [each.state for each in situation.writes[-1].operations if isinstance(each, out.SetState)]
    assert state.isr == (3,), "the restarted replica may have lost the end of its log"


def test_in_sync_follower_that_has_restarted_leaves_the_isr() -> None:
    situation = Situation({"a": in_sync(1, 1, 3)}, alive=(1, 3)).quiet()
    situation.report(into.BrokersChanged((broker(1), broker(3, 9), broker(2))))
    (state,) = [each.state for each in situation.writes[-1].operations if isinstance(each, out.SetState)]
    assert (state.leader, state.leader_epoch, state.isr) == (1, 1, (1,))


def test_replicas_that_restarted_together_with_the_controller_are_found_by_their_registrations() -> None:
    restarted = Situation({"a": in_sync(1, 1, 3, leader_epoch=4, zxid=0)}, alive=(1, 3))
    (state,) = [each.state for each in restarted.writes[-1].operations if isinstance(each, out.SetState)]
    assert (state.leader, state.leader_epoch, state.isr) == (1, 5, (1,))


@pytest.mark.parametrize(
    ("isr_epochs", "expected"),
    [
        ((1, 1), None),
        ((1, 0), (1, 5, (1,))),  # the controller died before it noticed that broker 3 had registered again
        ((0, 1), (3, 5, (3,))),
        ((1, -1), (1, 5, (1,))),  # broker 3 was not alive when the state was chosen
    ],
)
def test_restarts_before_a_state_that_the_former_controller_has_not_noticed_are_found(
    isr_epochs: tuple[int, int], expected: tuple[int, int, Replicas] | None
) -> None:
    situation = Situation({"a": in_sync(1, 1, 3, leader_epoch=4, isr_epochs=isr_epochs)}, alive=(1, 3))
    states = [each.state for write in situation.writes for each in write.operations if isinstance(each, out.SetState)]
    assert [state[:3] for state in states] == ([expected] if expected else [])


def test_a_state_has_the_registrations_of_its_members() -> None:
    situation = Situation({"a": in_sync(1, 1, 3)}, alive=(1,))
    (state,) = [each.state for each in situation.writes[-1].operations if isinstance(each, out.SetState)]
    assert (state.isr, state.isr_epochs) == ((1,), (1,))
    situation = Situation({"a": in_sync(1, 1, 3)}, alive=())
    (state,) = [each.state for each in situation.writes[-1].operations if isinstance(each, out.SetState)]
    assert (state.leader, state.isr, state.isr_epochs) == (-1, (1, 3), (-1, -1))


def test_restarted_leader_is_not_sent_its_leadership_of_before() -> None:
    situation = Situation({"a": nodes(stored(1))}).quiet().alive(1, epoch=9)
    assert leaders_sent(situation, 1) == [(-1, 0)], "the next state is being written"
    situation.written(1)
    situation.answer(1)
    assert leaders_sent(situation, 1) == [(1, 1)]


def test_leader_that_restarts_again_while_its_state_is_written_gets_another_leader_epoch() -> None:
    situation = Situation({"a": nodes(stored(1))}).quiet().alive(1, epoch=9).alive(1, epoch=11).written(1)
    assert "SetState leader 1 epoch 2" in situation.summary
