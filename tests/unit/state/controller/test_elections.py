"""Preferred elections, and brokers that shut down or have lost records."""

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.channel import OFFLINE
from kafkalite.state.controller.controller import Controller
from kafkalite.state.controller.leader_rebalance import REBALANCE
from kafkalite.state.controller.values import ControllerSettings, TopicNodes
from kafkalite.state.effects import SetTimer
from tests.unit.state.controller.elections import elect, error, running, states, topic
from tests.unit.state.controller.kit import EPOCH, ID, WRITTEN, Situation, broker

NONE = -1


def shut_down(situation: Situation, broker_id: int, epoch: int = 1) -> Situation:
    return situation.report(into.ShutDownBroker("stop", broker_id, epoch))


def stopped(situation: Situation, broker_id: int) -> list[tuple[bool, int]]:
    """What a broker receives as replicas to stop: whether it deletes, and the leader epoch."""
    sends = [one for one in situation.sent if isinstance(one, out.SendStopReplica) and one.broker_id == broker_id]
    return [(each.delete, each.leader_epoch) for one in sends for topic in one.topics for each in topic.partitions]


# Preferred.


def test_preferred_replica_that_is_in_sync_leads_in_a_new_epoch() -> None:
    situation = elect(running(topic(3, 3, 1)))
    assert states(situation) == [(1, 5, (3, 1))] and not situation.completed("elect")
    assert error(situation.written(7)) == Error.NONE
    assert error(elect(situation)) == Error.ELECTION_NOT_NEEDED


def test_preferred_replica_out_of_sync_or_dead_is_not_elected() -> None:
    assert error(elect(running(topic(3, 3)))) == Error.PREFERRED_LEADER_NOT_AVAILABLE
    assert error(elect(running(topic(3, 3, 4), alive=(3, 4)))) == Error.PREFERRED_LEADER_NOT_AVAILABLE


def test_election_of_an_unknown_or_deleted_partition_is_refused() -> None:
    situation = running(topic(3, 3, 1))
    assert error(elect(situation, key=TopicPartition("a", 9))) == Error.UNKNOWN_TOPIC_OR_PARTITION
    situation.requested("a").quiet().read(topic(3, 3, 1))
    assert error(elect(situation)) == Error.INVALID_TOPIC_EXCEPTION


def rebalancing(partitions: int, elsewhere: int) -> Situation:
    machine = Controller(ControllerSettings(2, EPOCH, rebalance_ms=300_000, imbalance_max=0.1))
    moved, kept = topic(3, 3, 1).states[0], topic(1, 1, 3).states[0]
    found = {index: moved if index < elsewhere else kept for index in range(partitions)}
    nodes = TopicNodes(ID, 0, dict.fromkeys(found, (1, 3)), {}, {}, found, frozenset(found), 10)
    situation = Situation({"a": nodes}, alive=(1, 3), machine=machine).quiet()
    return situation.report(into.TimerExpired((REBALANCE, None)))


def test_leaders_move_back_when_more_than_the_allowed_share_is_elsewhere() -> None:
    assert [leader for leader, _, _ in states(rebalancing(10, elsewhere=2))] == [1, 1]
    assert not rebalancing(10, elsewhere=1).writes


# Controlled shutdown.


def test_leaders_and_in_sync_followers_leave_a_broker_that_shuts_down() -> None:
    situation = shut_down(running(topic(1, 1, 3, 4)), 1)
    assert states(situation) == [(3, 5, (3, 4))] and not situation.completed("stop")
    ((whole, (outcome,)),) = situation.written(7).completed("stop")
    assert whole == 0 and outcome.state is not None and outcome.state.leader == 3
    situation.quiet()
    assert stopped(situation, 1) == [(False, 5)]


def test_follower_that_shuts_down_leaves_the_isr_and_stops() -> None:
    situation = shut_down(running(topic(1, 1, 3)), 3)
    assert states(situation) == [(1, 5, (1,))]
    situation.written(7).quiet()
    assert stopped(situation, 3) == [(False, 5)]


def test_follower_outside_the_isr_stops_without_a_write() -> None:
    situation = shut_down(running(topic(1, 1)), 3)
    assert not situation.writes and situation.completed("stop")
    assert stopped(situation.quiet(), 3) == [(False, 4)]


def test_leader_without_another_in_sync_replica_stays_and_is_reported() -> None:
    situation = shut_down(running(topic(1, 1)), 1)
    ((_, (outcome,)),) = situation.completed("stop")
    assert not situation.writes and outcome.state is not None and outcome.state.leader == 1
    assert stopped(situation.quiet(), 1) == []


def test_partitions_with_one_replica_are_not_waited_for() -> None:
    situation = shut_down(running(topic(1, 1, replicas=(1,))), 1)
    assert situation.completed("stop") == [(0, ())] and not situation.writes


def test_broker_that_shuts_down_is_no_candidate_and_joins_no_isr() -> None:
    situation = shut_down(running(topic(1, 1)), 3)
    situation.alter((1, 3), leader_epoch=4, partition_epoch=6)
    assert error(situation, (1, 3)) == Error.INELIGIBLE_REPLICA
    situation = shut_down(running(topic(3, 3, 1)), 1).written(7).quiet()
    assert error(elect(situation)) == Error.PREFERRED_LEADER_NOT_AVAILABLE
    assert states(situation.alive(1, 4)) == [(NONE, 6, (3,))]


def test_cluster_that_stops_at_once_keeps_its_last_isr() -> None:
    situation = shut_down(running(topic(1, 1, 3)), 1).written(7).quiet()
    writes = len(situation.writes)
    shut_down(situation, 3)
    assert len(situation.writes) == writes, "the last member stays"


def test_restart_ends_the_shutdown() -> None:
    situation = shut_down(running(topic(1, 1)), 3)
    situation.report(into.BrokersChanged(situation.registrations({1: 1, 3: 2, 4: 1}))).quiet()
    situation.alter((1, 3), leader_epoch=4, partition_epoch=6)
    assert states(situation) == [(1, 4, (1, 3))]


def test_shutdown_of_another_registration_or_of_an_unknown_broker_is_refused() -> None:
    assert shut_down(running(topic(1, 1)), 1, epoch=9).completed("stop") == [(Error.STALE_BROKER_EPOCH, ())]
    assert shut_down(running(topic(1, 1)), 8).completed("stop") == [(Error.BROKER_NOT_AVAILABLE, ())]
    assert shut_down(running(topic(1, 1)), 1, epoch=-1).completed("stop")[0][0] == Error.NONE


# Unclean starts.


def back(situation: Situation, *lossy: int, alive: tuple[int, ...]) -> Situation:
    """Brokers return, some of them after a power failure."""
    brokers = tuple(broker(each, 2)._replace(unclean_since=0 if each in lossy else -1) for each in alive)
    return situation.report(into.BrokersChanged((*brokers, broker(2))))


def test_member_that_returns_after_a_power_failure_leaves_the_isr_for_members_that_are_not_alive() -> None:
    situation = running(topic(1, 1, 3), alive=(4,)).written(7).quiet()
    assert states(situation) == [(NONE, 5, (1, 3))]
    assert states(back(situation, 1, alive=(1, 4))) == [(NONE, 6, (3,))]


def test_member_that_returns_after_a_kill_leads() -> None:
    situation = running(topic(1, 1, 3), alive=(4,)).written(7).quiet()
    assert states(back(situation, alive=(1, 4))) == [(1, 6, (1,))]


def test_last_member_leads_also_after_a_power_failure() -> None:
    situation = running(topic(1, 1), alive=(4,)).written(7).quiet()
    assert states(back(situation, 1, alive=(1, 4))) == [(1, 6, (1,))]


def test_new_controller_finds_the_power_failure_of_a_follower() -> None:
    """Both followers have registered after the state was written, and before this controller was elected."""
    brokers = (broker(1), broker(3, WRITTEN + 1)._replace(unclean_since=0), broker(4, WRITTEN + 2), broker(2))
    machine = Situation({}, alive=())
    machine.report(into.BrokersChanged(brokers)).report(into.TopicsChanged(frozenset("a"))).read(topic(1, 1, 3, 4))
    assert states(machine) == [(1, 5, (1,))]


def test_death_of_a_broker_costs_one_state_per_partition_in_few_transactions() -> None:
    situation = running(topic(1, 1, 3, 4, partitions=250)).alive(3, 4)
    sizes = [len(write.operations) for write in situation.writes]
    assert sum(sizes) == 250 and len(sizes) == 3
    for write in situation.writes[:3]:
        situation.report(into.WriteDone(write.write_id, (7,) * len(write.operations)))
    situation.quiet()
    assert len(situation.writes) == 3


# Failed log directories, and deletions.


def test_failed_log_directory_of_the_leader_elects_another_member() -> None:
    situation = running(topic(1, 1, 3, 4)).report(into.LogDirsFailed({"event": 1}))
    situation.answer_until(1, out.SendLeaderAndIsr).answer(1, Error.KAFKA_STORAGE_ERROR)
    assert states(situation) == [(3, 5, (3, 4))]
    situation.written(7).answer_until(1, out.SendLeaderAndIsr).answer(1, Error.KAFKA_STORAGE_ERROR).quiet()
    offline = [each for each in situation.sent if isinstance(each, out.SendUpdateMetadata)][-1]
    assert offline.topics[0].partitions[0].offline_replicas == (1,)


def test_failed_log_directory_of_a_follower_removes_it_from_the_isr() -> None:
    situation = running(topic(1, 1, 3)).report(into.LogDirsFailed({"event": 3}))
    situation.answer_until(3, out.SendLeaderAndIsr).answer(3, Error.KAFKA_STORAGE_ERROR)
    assert states(situation) == [(1, 5, (1,))]
    situation.written(7).answer_until(3, out.SendLeaderAndIsr).answer(3, Error.KAFKA_STORAGE_ERROR)
    situation.quiet().alter((1, 3), leader_epoch=5, partition_epoch=7)
    assert error(situation, (1, 3)) == Error.INELIGIBLE_REPLICA


def test_replica_that_has_left_the_isr_is_sent_the_state_and_may_work_again() -> None:
    """Its files were missing: it begins empty, once it is not in the ISR."""
    situation = running(topic(1, 1, 3)).report(into.LogDirsFailed({"event": 3}))
    situation.answer_until(3, out.SendLeaderAndIsr).answer(3, Error.KAFKA_STORAGE_ERROR)
    situation.written(7).answer_until(3, out.SendLeaderAndIsr)
    send = situation.requests[3]
    assert isinstance(send, out.SendLeaderAndIsr) and send.topics[0].partitions[0].isr == (1,)
    situation.answer(3).quiet()
    metadata = [each for each in situation.sent if isinstance(each, out.SendUpdateMetadata)][-1]
    assert metadata.topics[0].partitions[0].offline_replicas == ()
    situation.alter((1, 3), leader_epoch=5, partition_epoch=7)
    assert states(situation) == [(1, 5, (1, 3))]


def test_replica_of_a_full_disk_is_tried_again_until_it_works() -> None:
    situation = running(topic(1, 1)).report(into.LogDirsFailed({"event": 3}))
    situation.answer_until(3, out.SendLeaderAndIsr).answer(3, Error.KAFKA_STORAGE_ERROR)
    timers = [effect for effect in situation.effects if isinstance(effect, SetTimer)]
    assert [(each.name, each.at_ms) for each in timers] == [((OFFLINE, 3), 5_000)]
    situation.quiet().report(into.TimerExpired((OFFLINE, 3)))
    assert isinstance(situation.requests[3], out.SendLeaderAndIsr)
    situation.quiet()
    metadata = [each for each in situation.sent if isinstance(each, out.SendUpdateMetadata)][-1]
    assert metadata.topics[0].partitions[0].offline_replicas == ()
    assert not situation.report(into.TimerExpired((OFFLINE, 3))).effects


def test_failed_log_directory_of_the_last_member_leaves_no_leader_and_the_isr() -> None:
    situation = running(topic(1, 1)).report(into.LogDirsFailed({"event": 1}))
    situation.answer_until(1, out.SendLeaderAndIsr).answer(1, Error.KAFKA_STORAGE_ERROR)
    assert states(situation) == [(NONE, 5, (1,))]


def test_nodes_of_a_topic_are_deleted_after_the_logs_of_all_replicas() -> None:
    found = topic(1, 1, 3, replicas=(1, 3))
    situation = running(found, alive=(1,)).written(7).quiet().requested("a").read(found).quiet()
    assert stopped(situation, 1) == [(True, -2)]
    writes = len(situation.writes)
    situation.report(into.BrokersChanged(situation.registrations({1: 1, 3: 2})))
    assert len(situation.writes) == writes, "the log of broker 3 exists still"
    situation.quiet()
    assert stopped(situation, 3) == [(True, -2)]
    situation.read(found)
    names = [type(each).__name__ for each in situation.writes[-1].operations]
    assert "DeletePartitionNode" in names


@pytest.mark.parametrize(
    ("since", "complete_epoch", "lost"),
    [(0, 5, True), (0, -1, True), (4, 3, True), (4, 4, False), (4, 5, False), (4, -1, True), (-1, 5, False)],
)
def test_broker_has_lost_what_it_had_before_its_first_registration_after_the_power_failure(
    since: int, complete_epoch: int, lost: bool
) -> None:
    assert broker(1, 7)._replace(unclean_since=since).has_lost(complete_epoch) is lost
