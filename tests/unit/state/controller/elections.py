"""Partitions of one topic whose leaders are elected."""

from kafkalite.model import TopicPartition
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.values import LeaderAndIsr, StoredState, TopicNodes
from tests.unit.state.controller.kit import EPOCH, ID, KEY, WRITTEN, Situation


def topic(leader: int, *isr: int, replicas: tuple[int, ...] = (1, 3, 4), partitions: int = 1) -> TopicNodes:
    """Partitions in leader epoch 4."""
    state = StoredState(LeaderAndIsr(leader, 4, isr, EPOCH - 1), 6, WRITTEN)
    indexes = range(partitions)
    return TopicNodes(
        ID, 0, dict.fromkeys(indexes, replicas), {}, {}, dict.fromkeys(indexes, state), frozenset(indexes), 10
    )


def running(nodes: TopicNodes, alive: tuple[int, ...] = (1, 3, 4)) -> Situation:
    return Situation({"a": nodes}, alive).quiet()


def elect(situation: Situation, *, unclean: bool = False, key: TopicPartition = KEY) -> Situation:
    return situation.report(into.ElectLeaders("elect", unclean, (key,)))


def error(situation: Situation, token: object = "elect") -> int:
    ((whole, (outcome,)),) = situation.completed(token)
    assert whole == 0
    return outcome.error


def states(situation: Situation) -> list[tuple[int, int, tuple[int, ...]]]:
    """Leader, leader epoch and ISR of the latest transaction."""
    written = [each.state for each in situation.writes[-1].operations if isinstance(each, out.SetState)]
    return [(each.leader, each.leader_epoch, each.isr) for each in written]
