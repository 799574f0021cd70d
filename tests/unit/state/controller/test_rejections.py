"""A request that a broker rejects as a whole is not repeated unchanged: the topic that causes it is left out."""

from __future__ import annotations

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.channel import RETRY
from kafkalite.state.effects import SetTimer
from tests.unit.state.controller.kit import Send, Situation, nodes, stored

NAMES = [f"t{number}" for number in range(20)]
KINDS = (out.SendUpdateMetadata, out.SendLeaderAndIsr)
STEPS_MAX = 60


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


class PickyBroker:
    """Broker 1, which rejects requests of a type as a whole when they have one of some topics."""

    def __init__(self, kind: type, *bad: str, encoded: bool = True) -> None:
        self.situation = Situation({name: nodes(stored(1), topic_id(name)) for name in NAMES})
        self.kind, self.bad, self.encoded = kind, bad, encoded
        self.rejected: list[list[str]] = []
        self.accepted: set[str] = set()
        self.lines: list[str] = []
        self.full: list[bool] = []

    def run(self) -> PickyBroker:
        """Respond until nothing is sent any more."""
        for _ in range(STEPS_MAX):
            self._note()
            if 2 in self.situation.requests:
                self.situation.answer(2)
            elif 1 in self.situation.requests:
                self._respond(self.situation.requests[1])
            elif not self._retry():
                return self
        raise AssertionError(f"it does not end: {self.rejected}")

    def _retry(self) -> bool:
        due = [each for each in self.situation.effects if isinstance(each, SetTimer) and each.name == (RETRY, 1)]
        if due:
            self.situation.now_ms = due[0].at_ms
            self.situation.report(into.TimerExpired((RETRY, 1)))
        return bool(due)

    def _respond(self, send: Send) -> None:
        names = [each.topic for each in send.topics]
        if not isinstance(send, self.kind) or not set(self.bad) & set(names):
            if isinstance(send, self.kind):
                self.accepted.update(names)
                self.full.append(getattr(send, "full", False))
            self.situation.answer(1)
            return
        self.rejected.append(names)
        self.situation.requests.pop(1)
        error = KafkaErrorCode.INVALID_REQUEST
        if not self.encoded:
            self.situation.report(into.RequestFailed(send.request_id, "a value does not fit", impossible=True))
        elif isinstance(send, out.SendUpdateMetadata):
            self.situation.report(into.UpdateMetadataAnswered(send.request_id, error))
        else:
            self.situation.report(into.LeaderAndIsrAnswered(send.request_id, error, {}))

    def _note(self) -> None:
        texts = [each.text for each in self.situation.effects if isinstance(each, out.Log)]
        self.lines += [text for text in texts if "rejected" in text or "failed" in text]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("bad", [("t0",), ("t19",), ("t7", "t8"), ("t0", "t11", "t19")])
def test_topics_that_a_broker_rejects_are_left_out_and_the_others_are_sent(
    kind: type, bad: tuple[str, ...], encoded: bool
) -> None:
    broker = PickyBroker(kind, *bad, encoded=encoded).run()
    assert broker.accepted == set(NAMES) - set(bad)
    assert all(earlier != later for earlier, later in zip(broker.rejected, broker.rejected[1:], strict=False))
    assert len(broker.lines) == len(bad), broker.lines
    assert all(f"topic '{name}'" in "".join(broker.lines) for name in bad)
    if kind is out.SendLeaderAndIsr:
        assert not any(broker.full), "the broker may host logs of the topics that are left out"


def test_topic_that_was_left_out_is_sent_again_when_its_state_changes() -> None:
    broker = PickyBroker(out.SendLeaderAndIsr, "t3").run()
    broker.bad = ()
    changed = nodes(stored(1, leader_epoch=1, version=1), topic_id("t3"))
    broker.situation.report(into.TopicRead("t3", changed))
    broker.run()
    assert "t3" in broker.accepted


def test_failures_of_a_broker_that_does_not_respond_are_logged_once_a_minute() -> None:
    situation = Situation({"a": nodes(stored(1))}).answer_until(1, out.SendLeaderAndIsr)
    lines = []
    while situation.now_ms < 300_000:
        situation.report(into.RequestFailed(situation.requests[1].request_id, "no connection"))
        lines += [situation.now_ms for each in situation.effects if isinstance(each, out.Log)]
        situation.now_ms += 1_000
        situation.report(into.TimerExpired((RETRY, 1)))
    assert lines == [0, 60_000, 120_000, 180_000, 240_000]
    assert situation.requests[1].topics[0].topic == TopicPartition("a", 0).topic, "it is still sent"
