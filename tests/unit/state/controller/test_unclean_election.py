"""Unclean elections: on request, and where the topic allows them."""

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.values import LeaderAndIsr
from tests.unit.state.controller.elections import elect, error, running, states, topic
from tests.unit.state.controller.kit import EPOCH, KEY


def test_unclean_election_makes_the_first_live_replica_the_only_one_in_sync_and_recovering() -> None:
    situation = elect(running(topic(1, 1), alive=(3, 4)).written(7).quiet(), unclean=True)
    state = LeaderAndIsr(3, 6, (3,), EPOCH, recovering=True, isr_epochs=(1,))
    assert situation.writes[-1].operations == (out.SetState(KEY, state, 7),)
    assert error(situation.written(8)) == Error.NONE
    assert situation.machine.counts().unclean_elections == 1


def test_unclean_election_is_not_needed_while_there_is_a_leader_and_impossible_without_replicas() -> None:
    assert error(elect(running(topic(1, 1)), unclean=True)) == Error.ELECTION_NOT_NEEDED
    dead = running(topic(1, 1), alive=()).written(7).quiet()
    assert error(elect(dead, unclean=True)) == Error.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_topic_that_allows_it_elects_uncleanly_by_itself() -> None:
    situation = running(topic(1, 1), alive=(3, 4)).written(7)
    assert out.ReadTopicConfigs("a") in situation.effects
    writes = len(situation.writes)
    situation.report(into.TopicConfigsRead("a", False))
    assert len(situation.writes) == writes
    situation.report(into.ConfigsChanged("a", 1))
    assert out.ReadTopicConfigs("a") in situation.effects
    situation.report(into.TopicConfigsRead("a", True))
    assert states(situation) == [(3, 6, (3,))]


def test_configs_are_not_read_where_no_unclean_election_is_possible() -> None:
    situation = running(topic(1, 1, 3)).report(into.ConfigsChanged(None, 1))
    assert not situation.effects
    dead = running(topic(1, 1), alive=()).written(7)
    assert not [each for each in dead.effects if isinstance(each, out.ReadTopicConfigs)]
