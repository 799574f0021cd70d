"""Markers: to which broker, when again, and when a transaction is complete."""

import pytest

from kafkalite.callbacks import Completion
from kafkalite.coordinators.transaction import sent_transactions
from kafkalite.coordinators.transaction.coordinator import awaits_markers
from kafkalite.coordinators.transaction.service import TransactionService
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.transactions.metadata import EPOCH_MAX, TransactionMetadata
from kafkalite.state.transactions.partitions import TransactionPartitions
from kafkalite.state.transactions.requests import SendMarkers
from kafkalite.state.transactions.states import TransactionState, TransactionVersion
from tests.unit.coordinators.transaction.marker_simulation import PAUSE_MS, MarkerSimulation
from tests.unit.coordinators.transaction.marker_world import OWN, World
from tests.unit.protocol.values import seed


def test_own_partitions_are_written_immediately() -> None:
    world = World({"t": [OWN, OWN]})
    world.prepare("7", ("t", 0), ("t", 1))
    ((marker, first), (_, second)) = world.written
    assert (first, second) == (("t", 0), ("t", 1))
    assert marker == (7, 5, True, 3, 2)
    assert world.completed == ["7"] and not world.calls and not len(world.sender)
    assert world.machine.transactions["7"].state is TransactionState.COMPLETE_COMMIT


def test_transaction_without_partitions_is_complete() -> None:
    world = World({})
    world.prepare("7", commit=False)
    assert world.machine.transactions["7"].state is TransactionState.COMPLETE_ABORT


def test_transaction_is_complete_after_the_last_broker() -> None:
    world = World({"t": [OWN, 2, 3]})
    world.prepare("7", ("t", 0), ("t", 1), ("t", 2))
    second, third = world.take(), world.take()
    assert (second.broker_id, third.broker_id, second.version_max) == (2, 3, None)
    third.answer()
    assert not world.completed
    assert not world.continued
    second.answer()
    assert world.completed == ["7"]
    assert world.continued == [("7", 7, 5)], "the next transaction has the epoch of the markers"


def test_prepared_transaction_is_described_with_the_partitions_without_a_marker() -> None:
    world, found = World({"t": [OWN, 2, 3]}), list[TransactionMetadata | None]()
    world.prepare("7", ("t", 0), ("t", 1), ("t", 2))
    service = TransactionService(world, world.sender.partitions_left)  # type: ignore[arg-type]

    def left() -> list[int]:
        service.describe("7", Completion(found.append, found.append))
        described = found.pop()
        assert described is not None
        return sorted(each.partition for each in described.partitions)

    assert left() == [1, 2]
    world.take().answer()
    assert left() == [2]
    world.take().answer()
    assert left() == [] and world.completed == ["7"]
    world.prepare("7", ("t", 0), ("t", 1), epoch=6)
    world.sender.forget(0)  # its shard is loaded again: the markers are not sent yet
    assert left() == [0, 1]


def test_one_request_per_broker_has_many_transactions() -> None:
    world = World({"t": [2]})
    for number in range(50):
        world.prepare(str(number), ("t", 0))
    (first,) = world.calls
    assert len(first.markers) == 1
    world.take().answer()
    (second,) = world.calls
    assert len(second.markers) == 49
    world.take().answer()
    assert len(world.completed) == 50 and not world.calls


def test_requests_have_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_transactions, "PARTITIONS_MAX", 10)
    world = World({"t": [2] * 25})
    world.prepare("7", *(("t", index) for index in range(25)))
    sizes = []
    while world.calls:
        call = world.take()
        sizes.append(sum(map(len, call.markers.values())))
        call.answer()
    assert sizes == [10, 10, 5] and world.completed == ["7"]


def test_transaction_with_many_partitions_is_sent_in_parts() -> None:
    world = World({"t": [OWN, 2] * 2_500})
    world.prepare("7", *(("t", index) for index in range(5_000)))
    assert 0 < len(world.written) < 2_500, "the first loop iteration"
    world.clock.advance(0)
    assert len(world.written) == 2_500 and not world.completed
    while world.calls:
        world.take().answer()
    assert world.completed == ["7"]


def test_level_0_limits_the_version() -> None:
    world = World({"t": [2]})
    world.level = 0
    world.prepare("7", ("t", 0))
    assert world.take().version_max == 1


def test_failed_request_is_repeated_after_a_growing_pause() -> None:
    world = World({"t": [2]})
    world.prepare("7", ("t", 0))
    pauses = []
    for _ in range(8):
        before = world.clock.monotonic()
        world.take().fail()
        assert not world.calls
        while not world.calls:
            world.clock.advance(1)
        pauses.append(world.clock.monotonic() - before)
    assert 0.04 <= pauses[0] <= 0.07 and 0.8 <= pauses[-1] <= 1.21
    world.take().answer()
    assert world.completed == ["7"]


def test_dead_leader_delays_only_its_own_transactions() -> None:
    world = World({"t": [2, 3]})
    world.prepare("1", ("t", 0))
    world.take().fail()
    world.prepare("2", ("t", 0))
    world.prepare("3", ("t", 1))
    (only,) = world.calls
    assert only.broker_id == 3
    world.take().answer()
    assert world.completed == ["3"]
    world.clock.advance(PAUSE_MS)
    assert sorted(each.producer_id for each in world.calls[0].markers) == [1, 2]


def test_partition_that_rejects_the_marker_delays_only_its_own_transaction() -> None:
    world = World({"t": [2, 2]})
    world.prepare("1", ("t", 0))
    world.take().answer((1, ("t", 0), Error.NOT_ENOUGH_REPLICAS))
    world.prepare("2", ("t", 1))
    world.take().answer()
    assert world.completed == ["2"] and not world.calls
    world.clock.advance(PAUSE_MS)
    world.take().answer()
    assert world.completed == ["2", "1"]


def test_repeated_partition_is_sent_to_its_new_leader() -> None:
    world = World({"t": [2]})
    world.prepare("7", ("t", 0))
    world.take().answer((7, ("t", 0), Error.NOT_LEADER_OR_FOLLOWER))
    world.leaders["t"] = [3]
    world.image_changed()
    assert world.take().broker_id == 3, "without the pause"


def test_partition_of_a_dead_broker_waits_for_another_leader() -> None:
    world = World({"t": [2, -1]})
    world.brokers.discard(2)
    world.prepare("7", ("t", 0), ("t", 1))
    world.clock.advance(10 * PAUSE_MS)
    assert not world.calls
    world.leaders["t"] = [3, OWN]
    world.image_changed()
    assert [each for _, each in world.written] == [("t", 1)]
    world.take().answer()
    assert world.completed == ["7"]


def test_paused_queue_follows_the_image() -> None:
    world = World({"t": [2]})
    world.prepare("7", ("t", 0))
    world.take().fail()
    world.leaders["t"] = [OWN]
    world.image_changed()
    assert world.completed == ["7"]
    world.clock.advance(PAUSE_MS)
    assert not world.calls


def test_deleted_partitions_are_dropped() -> None:
    world = World({"t": [OWN]})
    world.prepare("7", ("t", 0), ("t", 4), ("gone", 0))
    assert not world.completed
    world.clock.advance(0)
    assert world.completed == ["7"]


def test_partition_that_only_the_tree_has_is_no_deleted_one() -> None:
    world = World({})
    world.tree["t"] = 1
    world.prepare("7", ("t", 0))
    world.clock.advance(10 * PAUSE_MS)
    assert not world.completed
    world.leaders["t"] = [OWN]
    world.image_changed()
    assert world.completed == ["7"] and len(world.written) == 1


def test_partition_that_comes_while_the_tree_is_read_does_not_wait_for_another_image() -> None:
    world = World({})
    world.tree_reads = []
    world.tree["t"] = 2
    world.prepare("7", ("t", 0), ("t", 1))
    world.clock.advance(0)
    world.leaders["t"] = [OWN, 2]
    world.image_changed()
    (complete,) = world.tree_reads
    complete()
    world.take().answer()
    assert world.completed == ["7"]


def test_image_change_takes_the_partitions_of_many_transactions() -> None:
    """Each of them is copied once: copies of all for each took seconds with thousands of transactions."""
    world = World({"t": [OWN]})
    world.errors[TopicPartition("t", 0)] = Error.NOT_ENOUGH_REPLICAS
    for number in range(3_000):
        world.prepare(str(number), ("t", 0))
    world.errors.clear()
    world.image_changed()
    assert len(world.completed) == 3_000


def test_newer_epoch_in_a_partition_ends_the_transaction_there() -> None:
    world = World({"t": [2]})
    world.prepare("7", ("t", 0))
    world.take().answer((7, ("t", 0), Error.INVALID_PRODUCER_EPOCH))
    assert world.completed == ["7"]


def test_fenced_coordinator_sends_the_transaction_no_more() -> None:
    world = World({"t": [2, 3]})
    world.prepare("7", ("t", 0), ("t", 1))
    world.take().answer((7, ("t", 0), Error.TRANSACTION_COORDINATOR_FENCED))
    world.take().fail()
    world.clock.advance(PAUSE_MS)
    assert not world.calls and not world.completed and not len(world.sender)


def test_results_of_a_forgotten_shard_are_ignored() -> None:
    world = World({"t": [2]})
    world.prepare("7", ("t", 0))
    world.prepare("8", ("t", 0))
    world.sender.forget(0)
    world.take().answer()
    assert not world.completed and not world.calls, "what waited is not sent"


def test_transaction_that_is_sent_again_replaces_the_earlier_one() -> None:
    """Markers that one incarnation of the shard has sent do not complete the transaction in the next one."""
    world = World({"t": [2]})
    world.prepare("7", ("t", 0))
    world.prepare("7", ("t", 0))
    world.take().answer()
    assert not world.completed
    world.take().answer()
    assert world.completed == ["7"]


def test_shard_without_enough_replicas_completes_later() -> None:
    world = World({"t": [OWN]})
    world.refusal = Error.COORDINATOR_NOT_AVAILABLE
    world.prepare("7", ("t", 0))
    world.clock.advance(3 * PAUSE_MS)
    assert not world.completed and not world.continued
    world.refusal = 0
    world.clock.advance(PAUSE_MS)
    assert world.continued == [("7", 7, 5)]
    assert world.completed == ["7"] and len(world.written) == 1, "the marker is not written again"


def test_epoch_overflow_continues_the_next_producer_id() -> None:
    world = World({"t": [OWN]})
    world.prepare("7", ("t", 0), epoch=EPOCH_MAX, next_producer_id=8)
    assert world.completed == ["7"]
    assert world.continued == [("7", 8, 0)]


def test_shard_that_is_loaded_again_sends_again() -> None:
    world = World({"t": [OWN]})
    world.refusal = Error.COORDINATOR_LOAD_IN_PROGRESS
    world.prepare("7", ("t", 0))
    world.refusal = 0
    world.clock.advance(10 * PAUSE_MS)
    assert not world.completed and not world.continued and not len(world.sender)


def test_completed_transaction_awaits_no_markers() -> None:
    """A machine that was loaded sends in slices: late results for its predecessor may have completed a transaction."""
    world = World({"t": [2]})
    world.prepare("7", ("t", 0))
    request = SendMarkers("7", 7, 5, True, TransactionPartitions.of([TopicPartition("t", 0)]), TransactionVersion.TV1)
    assert awaits_markers(world.machine, request)
    assert not awaits_markers(None, request)
    assert not awaits_markers(world.machine, request._replace(epoch=4))
    assert not awaits_markers(world.machine, request._replace(transactional_id="8"))
    world.take().answer()
    assert not awaits_markers(world.machine, request)


def test_closed_sender_sends_nothing() -> None:
    world = World({"t": [2]})
    world.prepare("7", ("t", 0))
    world.take().fail()
    world.sender.close()
    world.clock.advance(PAUSE_MS)
    assert not world.calls and world.clock.timers == 0


@pytest.mark.parametrize("number", range(15))
def test_every_transaction_is_complete_once_all_partitions_have_its_marker(number: int) -> None:
    simulation = MarkerSimulation(f"{seed()} markers {number}")
    simulation.run(steps=300)
    assert simulation.world.completed, "something was completed under faults"
    simulation.end()
