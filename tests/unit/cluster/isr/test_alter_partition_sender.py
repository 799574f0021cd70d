"""The requests for ISR changes of a broker: one in flight, all changes that wait in the next, retries with pauses."""

import pytest

from kafkalite.cluster.isr.alter_partition_sender import AlterPartitionSender
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_partition import AlterPartitionResponse
from kafkalite.state.isr.partition_isr import CommittedIsr, IsrChange, IsrMember, Result
from kafkalite.testing.virtual_clock import VirtualClock
from tests.unit.cluster.isr.scripted_controller import ScriptedController

TOPIC_ID = bytes(range(16))
TOO_OFTEN = [KafkaErrorCode.NOT_CONTROLLER, KafkaErrorCode.STALE_BROKER_EPOCH, KafkaErrorCode.UNKNOWN_SERVER_ERROR, 999]


class Owner:
    """A partition that records its results."""

    def __init__(self, index: int, follows: Result = Result.REVERTED) -> None:
        self.topic, self.topic_id, self.index = "t", TOPIC_ID, index
        self.results: list[CommittedIsr | int] = []
        self.follows = follows
        self.failure: Exception | None = None

    def apply_state(self, change: IsrChange, state: CommittedIsr) -> None:
        self.results.append(state)
        if self.failure is not None:
            raise self.failure

    def apply_error(self, change: IsrChange, error: int) -> Result:
        self.results.append(error)
        return self.follows


class Sender:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.controller = ScriptedController()
        self.broker_epoch = 77
        self.changes = AlterPartitionSender(self.clock, self.controller, 1, lambda: self.broker_epoch)

    def submit(self, *owners: Owner) -> None:
        for owner in owners:
            self.changes.submit(owner, change())
        self.clock.advance(0)


def change(partition_epoch: int = 7) -> IsrChange:
    return IsrChange((IsrMember(1, 77), IsrMember(2, 5)), 4, partition_epoch, 2)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_changes_of_an_iteration_and_those_that_wait_leave_together(sender: Sender) -> None:
    owners = [Owner(index) for index in range(5)]
    sender.submit(*owners[:2])
    sender.submit(*owners[2:4])
    sender.submit(owners[4])
    assert list(sender.controller.asked) == [0, 1]
    sender.controller.apply()
    sender.clock.advance(0)
    assert list(sender.controller.asked) == [2, 3, 4]
    sender.controller.apply()
    assert [owner.results for owner in owners] == [[CommittedIsr((1, 2), 4, 8)]] * 5
    sender.clock.advance(10_000)
    assert len(sender.controller.requests) == 2


@pytest.mark.parametrize("error", [*TOO_OFTEN, None])
def test_request_without_a_result_is_repeated_with_growing_pauses(sender: Sender, error: int | None) -> None:
    first, second = Owner(0), Owner(1)
    sender.submit(first)
    sender.broker_epoch = 78
    for pause_ms in (50, 100, 200, 400, 800, 1_000, 1_000):
        if error is None:
            sender.controller.respond(None)
        else:
            sender.controller.reject(error)
        sender.clock.advance(pause_ms - 1)
        assert not sender.controller.in_flight
        sender.submit(second)
        sender.clock.advance(2)
        assert list(sender.controller.asked) == [0, 1]
    assert sender.controller.requests[-1].broker_epoch == 78, "the broker has registered again"
    sender.controller.apply()
    assert first.results == second.results == [CommittedIsr((1, 2), 4, 8)]
    sender.submit(first)
    sender.controller.respond(None)
    sender.clock.advance(50)
    assert sender.controller.in_flight, "the pause begins with 50 ms again"


def test_partition_that_the_response_does_not_name_is_repeated(sender: Sender) -> None:
    owner = Owner(0)
    sender.submit(owner)
    sender.controller.respond(AlterPartitionResponse(error_code=0, topics=[]))
    sender.clock.advance(50)
    sender.controller.apply()
    assert owner.results == [CommittedIsr((1, 2), 4, 8)]


def test_only_the_partition_that_says_so_is_repeated(sender: Sender) -> None:
    owners = Owner(0, Result.REPEATED), Owner(1), Owner(2)
    sender.submit(*owners)
    sender.controller.apply(p0=-1, p1=KafkaErrorCode.INELIGIBLE_REPLICA)
    sender.clock.advance(50)
    assert list(sender.controller.asked) == [0]
    sender.controller.apply()
    assert [owner.results for owner in owners] == [
        [-1, CommittedIsr((1, 2), 4, 8)],
        [KafkaErrorCode.INELIGIBLE_REPLICA],
        [CommittedIsr((1, 2), 4, 8)],
    ]


def test_change_that_waits_for_a_state_is_requested_again_after_a_second(sender: Sender) -> None:
    owner, withdrawn = Owner(0, Result.WAITING), Owner(1, Result.WAITING)
    sender.submit(owner, withdrawn)
    sender.controller.apply(p0=KafkaErrorCode.UNKNOWN_TOPIC_ID, p1=KafkaErrorCode.UNKNOWN_TOPIC_ID)
    sender.changes.withdraw(withdrawn)
    sender.clock.advance(999)
    assert not sender.controller.in_flight
    sender.clock.advance(1)
    assert list(sender.controller.asked) == [0]


def test_log_names_some_of_the_changed_partitions_and_reports_a_lost_controller_once(
    sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafkalite.cluster")
    sender.submit(*(Owner(index) for index in range(7)))
    for pause_ms in (50, 100):
        sender.controller.respond(None)
        sender.clock.advance(pause_ms + 1)
    assert len(sender.changes) == 7
    sender.controller.apply(p0=KafkaErrorCode.INELIGIBLE_REPLICA)
    again, changed = caplog.messages
    assert again == "ISR changes of 7 partitions are requested again: the controller did not respond"
    assert changed.startswith("in-sync replicas have changed: t-1 (1, 2), t-2") and changed.endswith(" and 1 more")
    assert len(sender.changes) == 0


def test_withdrawn_change_is_neither_sent_nor_repeated_nor_applied(sender: Sender) -> None:
    waiting, flying = Owner(0), Owner(1)
    sender.submit(flying)
    sender.submit(waiting)
    for owner in (waiting, flying):
        sender.changes.withdraw(owner)
    sender.controller.apply()
    sender.clock.advance(5_000)
    assert len(sender.controller.requests) == 1 and waiting.results == flying.results == []


def test_newer_change_of_a_partition_replaces_the_one_that_would_be_repeated(sender: Sender) -> None:
    owner = Owner(0)
    sender.submit(owner)
    sender.changes.submit(owner, change(partition_epoch=9))
    sender.controller.respond(None)
    sender.clock.advance(50)
    assert sender.controller.asked[0].partition_epoch == 9


def test_exception_of_a_partition_affects_no_other(sender: Sender) -> None:
    owners = Owner(0), Owner(1)
    owners[0].failure = ValueError("planted")
    sender.submit(*owners)
    sender.submit(later := Owner(2))
    with pytest.raises(ValueError, match="planted"):
        sender.controller.apply()
    sender.clock.advance(0)
    assert owners[1].results and list(sender.controller.asked) == [2]
    assert later.results == []


def test_request_that_cannot_be_sent_is_repeated(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("planted")

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="planted"):
        patch.setattr(sender.controller, "alter_partition", fails)
        sender.submit(Owner(0))
    sender.clock.advance(50)
    assert list(sender.controller.asked) == [0]


def test_nothing_is_sent_after_the_end(sender: Sender) -> None:
    owner = Owner(0)
    sender.submit(owner)
    sender.submit(Owner(1))
    sender.changes.close()
    sender.controller.respond(None)
    sender.submit(Owner(2))
    sender.clock.advance(5_000)
    assert len(sender.controller.requests) == 1 and owner.results == []
    assert sender.clock.timers == 0
