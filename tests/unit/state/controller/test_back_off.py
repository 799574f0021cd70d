"""The time until a request that failed, or partitions that a broker has refused, are sent again."""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.channel import RETRY
from kafkalite.state.effects import SetTimer
from tests.unit.state.controller.kit import Situation, nodes, stored

TIMES = [100, 200, 400, 800, 1_000, 1_000]
REFUSED = KafkaErrorCode.UNKNOWN_SERVER_ERROR


def back_off(situation: Situation) -> int:
    """How long broker 1 waits."""
    (timer,) = (one for one in situation.effects if isinstance(one, SetTimer) and one.name == (RETRY, 1))
    return timer.at_ms - situation.now_ms


def refused(situation: Situation) -> int:
    """Broker 1 refuses the partitions of its LeaderAndIsr or StopReplica; how long they wait."""
    time = back_off(situation.answer(1, REFUSED))
    assert 1 not in situation.requests
    situation.now_ms += time
    situation.report(into.TimerExpired((RETRY, 1)))
    return time


def test_refused_partitions_wait_twice_as_long_each_time_up_to_a_limit() -> None:
    situation = Situation({"a": nodes(stored(1))}).answer_until(1, out.SendLeaderAndIsr)
    assert [refused(situation) for _ in TIMES] == TIMES
    situation.answer(1)
    assert not [one for one in situation.effects if isinstance(one, SetTimer)]


def test_accepted_partitions_end_the_doubling() -> None:
    situation = Situation({"a": nodes(stored(1))}).answer_until(1, out.SendLeaderAndIsr)
    assert [refused(situation), refused(situation)] == [100, 200]
    situation.quiet().report(into.LogDirsFailed({"event": 1}))  # all partitions are sent again
    assert refused(situation) == 100


def test_refused_deletions_wait_twice_as_long_each_time() -> None:
    situation = Situation({"a": nodes(stored(1))}).quiet().requested("a").read(nodes(stored(1)))
    situation.answer_until(1, out.SendStopReplica)
    assert [refused(situation) for _ in TIMES] == TIMES


def test_requests_that_fail_wait_twice_as_long_each_time_up_to_a_limit() -> None:
    situation = Situation({"a": nodes(stored(1))}).answer_until(1, out.SendLeaderAndIsr)
    times = []
    for _ in TIMES:
        situation.report(into.RequestFailed(situation.requests[1].request_id, "no response"))
        times.append(back_off(situation))
        situation.now_ms += times[-1]
        situation.report(into.TimerExpired((RETRY, 1)))
    assert times == TIMES
