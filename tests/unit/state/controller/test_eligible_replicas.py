"""Which replicas stay eligible while the ISR is below the minimum, and when they lead (KIP-966)."""

from __future__ import annotations

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.controller import Controller
from kafkalite.state.controller.partitions.leader_elections import next_state
from kafkalite.state.controller.preferred_election import preferred_state
from kafkalite.state.controller.unclean_election import unclean_state
from kafkalite.state.controller.values import (
    Broker,
    ControllerSettings,
    LeaderAndIsr,
    Replicas,
    StoredState,
    TopicNodes,
)
from tests.unit.state.controller.kit import EPOCH, ID, KEY, WRITTEN, Situation, broker

NONE = -1
SETTINGS = ControllerSettings(2, EPOCH, min_insync_replicas=2)
Found = tuple[int, Replicas, Replicas] | None


def found(state: LeaderAndIsr | None) -> Found:
    """Leader, ISR and eligible replicas."""
    return None if state is None else (state.leader, state.isr, state.eligible)


@pytest.mark.parametrize(
    ("leader", "isr", "eligible", "online", "minimum", "expected"),
    [
        (1, (1, 2, 3), (), (1, 2), 2, (1, (1, 2), ())),
        (1, (1, 2), (), (1,), 2, (1, (1,), (2,))),
        (1, (1, 2, 3), (), (1,), 2, (1, (1,), (2, 3))),
        (1, (1, 2, 3), (), (1,), 1, (1, (1,), ())),
        (1, (1, 2), (), (2, 3), 2, (2, (2,), (1,))),
        (1, (1, 2), (3,), (1,), 3, (1, (1,), (2, 3))),
        (1, (1,), (2,), (2, 3), 2, (NONE, (1,), (2,))),  # the last member may return with records of acks=1
        (NONE, (1,), (2,), (1, 2), 2, (1, (1,), (2,))),
        (1, (1,), (2,), (1, 2), 2, None),
        (1, (1,), (2,), (1, 2), 1, (1, (1,), ())),  # the minimum was lowered
    ],
)
def test_members_that_leave_an_isr_below_the_minimum_stay_eligible(
    leader: int, isr: Replicas, eligible: Replicas, online: Replicas, minimum: int, expected: Found
) -> None:
    state = LeaderAndIsr(leader, 4, isr, 1, eligible=eligible)
    chosen = next_state(state, online, 2, minimum=minimum)
    assert found(chosen) == expected
    assert chosen is None or chosen.leader_epoch == 5


@pytest.mark.parametrize(
    ("isr", "eligible", "online", "lossy", "expected"),
    [
        ((3,), (2,), (2, 3), (3,), (2, (2,), ())),
        ((3,), (1, 2), (1, 2, 3), (3,), (1, (1, 2), ())),
        ((3,), (1, 2), (2, 3), (3,), (2, (2,), (1,))),
        ((3,), (1, 2), (3,), (3,), (NONE, (1, 2), ())),
        ((3,), (1, 2), (1, 2, 3), (3, 1), (2, (2,), ())),
        ((3,), (2,), (2, 3), (3, 2), (3, (3,), ())),  # no replica is left that has lost nothing
        ((1,), (2, 3), (1, 2), (2,), (1, (1,), (3,))),
        ((1,), (2,), (2,), (2,), (NONE, (1,), ())),
    ],
)
def test_eligible_replicas_replace_an_isr_that_has_lost_records(
    isr: Replicas, eligible: Replicas, online: Replicas, lossy: Replicas, expected: Found
) -> None:
    state = LeaderAndIsr(isr[0], 4, isr, 1, eligible=eligible)
    assert found(next_state(state, online, 2, restarted=lossy, lossy=lossy, minimum=2)) == expected


@pytest.mark.parametrize(
    ("eligible", "online", "failed", "expected"),
    [
        ((2, 3), (2,), (1,), (NONE, (1,), (2, 3))),  # it may be repaired
        ((2, 3), (), (1,), (NONE, (1,), (2, 3))),
        ((2, 3), (1, 2), (3,), (1, (1,), (2,))),  # it may begin empty
        ((2, 3), (2,), (3,), (NONE, (1,), (2, 3))),
    ],
)
def test_replicas_in_failed_log_directories(
    eligible: Replicas, online: Replicas, failed: Replicas, expected: Found
) -> None:
    state = LeaderAndIsr(1, 4, (1,), 1, eligible=eligible)
    assert found(next_state(state, online, 2, failed=failed, minimum=2)) == expected


def test_elections_on_request() -> None:
    state = LeaderAndIsr(NONE, 4, (1,), 1, eligible=(3,))
    chosen = unclean_state(state, (2, 3), 2, 2)
    assert chosen is not None and not chosen.recovering, "nothing is lost with an eligible replica"
    assert found(chosen) == (3, (3,), (1,))
    chosen = unclean_state(state, (2,), 2, 2)
    assert chosen is not None and chosen.recovering
    assert found(chosen) == (2, (2,), ())
    led = LeaderAndIsr(3, 4, (1, 3), 1, eligible=(2,))
    assert found(preferred_state(led, 1, 2)) == (1, (1, 3), (2,))


# The controller.


def topic(
    *isr: int, eligible: Replicas = (), eligible_epochs: tuple[int, ...] = (), minimum: int | None = None
) -> TopicNodes:
    """A partition with the replicas 1, 3 and 4, led in leader epoch 4 by the first member of the ISR."""
    epochs = (1,) * len(isr)
    state = LeaderAndIsr(isr[0], 4, isr, EPOCH - 1, False, epochs, eligible, eligible_epochs or (1,) * len(eligible))
    stored = StoredState(state, 6, WRITTEN)
    return TopicNodes(ID, 0, {0: (1, 3, 4)}, {}, {}, {0: stored}, frozenset({0}), 10, minimum)


def situation(nodes: TopicNodes, *alive: int) -> Situation:
    return Situation({"a": nodes}, alive=alive, machine=Controller(SETTINGS))


def unclean(broker_id: int, epoch: int) -> Broker:
    return broker(broker_id, epoch)._replace(unclean_since=0)


def states(run: Situation) -> list[LeaderAndIsr]:
    """The states that were written."""
    return [each.state for write in run.writes for each in write.operations if isinstance(each, out.SetState)]


def sent(run: Situation, broker_id: int) -> list[Replicas]:
    """The eligible replicas in the LeaderAndIsr request to a broker."""
    send = run.answer_until(broker_id, out.SendLeaderAndIsr).requests[broker_id]
    assert isinstance(send, out.SendLeaderAndIsr)
    return [each.eligible for each_topic in send.topics for each in each_topic.partitions]


def test_change_of_a_leader_is_written_answered_and_sent_with_the_eligible_replicas() -> None:
    run = situation(topic(1, 3), 1, 3, 4).quiet().alter((1,), leader_epoch=4, partition_epoch=6)
    expected = LeaderAndIsr(1, 4, (1,), EPOCH, False, (1,), (3,), (1,))
    assert run.writes[-1].operations == (out.SetState(KEY, expected, 6),)
    run.written(7)
    ((_, (outcome,)),) = run.completed((1,))
    assert outcome.state == expected
    metadata = [effect for effect in run.effects if isinstance(effect, out.SendUpdateMetadata)]
    assert {each.topics[0].partitions[0].eligible for each in metadata} == {(3,)}
    run.quiet().alter((1, 4), leader_epoch=4, partition_epoch=7)
    assert found(states(run)[-1]) == (1, (1, 4), ())


def test_power_fails_and_both_others_leave_before_its_session_ends() -> None:
    run = situation(topic(1, 3, 4), 1, 3, 4).quiet()
    run.report(into.BrokersChanged((broker(3), broker(4), broker(2)))).written(7)
    run.report(into.BrokersChanged((broker(4), broker(2)))).written(8)
    assert found(states(run)[-1]) == (4, (4,), (3,)), "broker 4 has no power, and its session has not ended"
    run.report(into.BrokersChanged((unclean(4, 9), broker(2)))).written(9)
    assert found(states(run)[-1]) == (NONE, (3,), ())
    run.quiet().report(into.BrokersChanged((broker(3, 11), unclean(4, 9), broker(2)))).written(10)
    assert found(states(run)[-1]) == (3, (3,), ())


def test_eligible_replica_that_starts_unclean_is_not_eligible_any_more() -> None:
    run = situation(topic(1, eligible=(3, 4)), 1).quiet()
    run.report(into.BrokersChanged((broker(1), unclean(3, 9), broker(2))))
    assert found(states(run)[-1]) == (1, (1,), (4,))
    run.written(7).quiet().report(into.BrokersChanged((broker(1), broker(2), broker(4, 9))))
    assert len(states(run)) == 1, "a start after a kill loses nothing"


@pytest.mark.parametrize(("epoch", "eligible"), [(1, None), (-1, ()), (0, ())])
def test_new_controller_finds_unclean_starts_of_eligible_replicas(epoch: int, eligible: Replicas | None) -> None:
    """Broker 3 is alive in the registration 1; `epoch`: in the state."""
    nodes, machine = topic(1, eligible=(3,), eligible_epochs=(epoch,)), Controller(SETTINGS)
    run = Situation({"a": nodes}, machine=machine, registered=(broker(1), broker(2), unclean(3, 1)))
    assert [each.eligible for each in states(run)] == ([] if eligible is None else [eligible])


def test_lower_minimum_counts_when_the_leader_is_sent_a_state_without_eligible_replicas() -> None:
    run = situation(topic(1, eligible=(3,), minimum=2), 1).quiet()
    run.report(into.ConfigsChanged("a", 2))
    assert run.summary == ["read the topic"]
    run.read(topic(1, eligible=(3,), minimum=1))
    assert found(states(run)[-1]) == (1, (1,), ()) and states(run)[-1].leader_epoch == 5
    run.written(7)
    assert sent(run, 1) == [()]


def test_default_minimum_of_the_brokers_is_changed() -> None:
    run = situation(topic(1, eligible=(3,)), 1).quiet()
    assert not run.report(into.ConfigsChanged(None, 2)).summary
    run.report(into.ConfigsChanged(None, 1))
    assert found(states(run)[-1]) == (1, (1,), ())


def test_replica_with_lost_files_is_sent_its_state_when_it_is_not_eligible_any_more() -> None:
    run = situation(topic(1, eligible=(3,)), 1, 3)
    assert sent(run, 3) == [(3,)]
    run.answer(3, Error.KAFKA_STORAGE_ERROR)
    assert found(states(run)[-1]) == (1, (1,), ())
    run.written(7)
    assert sent(run, 3) == [()]
