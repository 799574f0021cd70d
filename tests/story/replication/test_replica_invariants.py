"""Each invariant of replication finds the violation that it is for, and nothing in what is right."""

from __future__ import annotations

from pathlib import Path

from tests.kit.replica_invariants import (
    Leadership,
    ObservedState,
    batches_of_decreasing_epochs,
    commits_that_go_back,
    different_batches_of_an_epoch,
    different_replicas,
    epochs_that_do_not_grow,
    epochs_with_two_leaders,
    high_watermark_above_members,
    incomplete,
    leaders_outside_the_isr,
    truncations_of_committed,
)
from tests.kit.replica_logs import ReplicaLog, StoredBatch, latest_values, read_log
from tests.kit.server import batch

ORDERS = "orders", 0


def placed(offset: int, *values: bytes, epoch: int = 0, key: bytes = b"k") -> StoredBatch:
    """A batch of a log."""
    data = batch(*values, key=key, base_offset=offset, leader_epoch=epoch)
    return StoredBatch(offset, offset + len(values) - 1, epoch, data)


def log(*batches: StoredBatch, start: int = 0, active: int = 0) -> ReplicaLog:
    return ReplicaLog(start, batches, max(start, active))


def state(leader: int, epoch: int, *isr: int, version: int = 0) -> ObservedState:
    return ObservedState(leader, epoch, isr, version)


class TestStates:
    def test_a_leader_outside_the_isr_is_found(self) -> None:
        assert leaders_outside_the_isr({ORDERS: state(3, 1, 1, 2)})
        assert not leaders_outside_the_isr({ORDERS: state(1, 1, 1, 2)})

    def test_an_isr_without_members_or_with_one_twice_is_found(self) -> None:
        assert leaders_outside_the_isr({ORDERS: state(-1, 1)})
        assert leaders_outside_the_isr({ORDERS: state(1, 1, 1, 1)})
        assert not leaders_outside_the_isr({ORDERS: state(-1, 1, 1)})

    def test_a_leader_epoch_that_decreases_is_found(self) -> None:
        assert epochs_that_do_not_grow(ORDERS, [state(1, 5, 1), state(1, 4, 1)])
        assert not epochs_that_do_not_grow(ORDERS, [state(1, 5, 1), state(1, 5, 1, 2), state(2, 6, 1, 2)])

    def test_another_leader_in_the_same_epoch_is_found(self) -> None:
        assert epochs_that_do_not_grow(ORDERS, [state(1, 5, 1, 2), state(2, 5, 1, 2)])

    def test_a_replica_outside_the_isr_and_a_partition_without_a_leader_are_found(self) -> None:
        replicas = {ORDERS: (1, 2, 3)}
        assert incomplete({ORDERS: state(1, 1, 1, 2)}, replicas)
        assert incomplete({ORDERS: state(-1, 1, 1, 2, 3)}, replicas)
        assert not incomplete({ORDERS: state(1, 1, 3, 2, 1)}, replicas)


class TestObservations:
    def test_two_brokers_that_accept_records_in_one_epoch_are_found(self) -> None:
        one, again = Leadership(ORDERS, 3, 1), Leadership(ORDERS, 4, 2)
        assert epochs_with_two_leaders([one, Leadership(ORDERS, 3, 2)])
        assert not epochs_with_two_leaders([one, again, one, Leadership(("orders", 1), 3, 2)])

    def test_a_high_watermark_that_a_member_lacks_is_found(self) -> None:
        assert high_watermark_above_members(ORDERS, 10, {1: 12, 2: 9})
        assert not high_watermark_above_members(ORDERS, 10, {1: 12, 2: 10})

    def test_a_truncation_of_committed_records_by_a_member_is_found(self) -> None:
        assert truncations_of_committed(ORDERS, 1, 4, 5, member=True)
        assert not truncations_of_committed(ORDERS, 1, 5, 5, member=True)
        assert not truncations_of_committed(ORDERS, 1, 4, 5, member=False)

    def test_a_commit_that_goes_back_is_found(self) -> None:
        assert commits_that_go_back("billing", [1, 2, 4, 3])
        assert not commits_that_go_back("billing", [1, 2, 2, 4])


class TestReplicas:
    def test_epochs_that_decrease_within_a_log_are_found(self) -> None:
        assert batches_of_decreasing_epochs(ORDERS, 1, log(placed(0, b"a", epoch=2), placed(1, b"b", epoch=1)))
        assert batches_of_decreasing_epochs(ORDERS, 1, log(placed(0, b"a", b"b"), placed(1, b"c")))
        assert not batches_of_decreasing_epochs(ORDERS, 1, log(placed(0, b"a"), placed(5, b"b", epoch=1)))

    def test_different_batches_at_one_offset_of_an_epoch_are_found_above_the_high_watermark_too(self) -> None:
        logs = {1: log(placed(0, b"a"), placed(1, b"b")), 2: log(placed(0, b"a"), placed(1, b"x"))}
        assert different_batches_of_an_epoch(ORDERS, logs)
        assert not different_replicas(ORDERS, logs, 1, compacted=False)

    def test_batches_of_different_epochs_may_differ_above_the_high_watermark(self) -> None:
        logs = {1: log(placed(0, b"a"), placed(1, b"b", epoch=1)), 2: log(placed(0, b"a"), placed(1, b"x", epoch=2))}
        assert not different_batches_of_an_epoch(ORDERS, logs)
        assert different_replicas(ORDERS, logs, 2, compacted=False)

    def test_a_replica_whose_log_ends_below_the_high_watermark_is_found(self) -> None:
        logs = {1: log(placed(0, b"a"), placed(1, b"b")), 2: log(placed(0, b"a"))}
        assert different_replicas(ORDERS, logs, 2, compacted=False)
        assert not different_replicas(ORDERS, logs, 1, compacted=False)

    def test_a_batch_that_is_missing_in_the_middle_is_found(self) -> None:
        logs = {1: log(placed(0, b"a"), placed(1, b"b"), placed(2, b"c")), 2: log(placed(0, b"a"), placed(2, b"c"))}
        assert different_replicas(ORDERS, logs, 3, compacted=False)

    def test_replicas_may_have_deleted_different_segments(self) -> None:
        logs = {1: log(placed(0, b"a"), placed(1, b"b")), 2: log(placed(1, b"b"), start=1)}
        assert not different_replicas(ORDERS, logs, 2, compacted=False)

    def test_compacted_replicas_have_equal_last_values(self) -> None:
        old, new, other = placed(0, b"old"), placed(1, b"new"), placed(1, b"other")
        assert not different_replicas(ORDERS, {1: log(old, new), 2: log(new)}, 2, compacted=True)
        assert different_replicas(ORDERS, {1: log(old, new), 2: log(old, other)}, 2, compacted=True)
        assert different_replicas(ORDERS, {1: log(new), 2: log(placed(1, b"new", key=b"j"))}, 2, compacted=True)

    def test_values_above_the_high_watermark_and_removed_keys_do_not_count(self) -> None:
        found = log(placed(0, b"a"), placed(1, b"b"), placed(2, b"above"))
        assert latest_values(found, 2) == {b"k": b"b"}
        removed = StoredBatch(1, 1, 0, batch(None, key=b"k", base_offset=1))
        assert latest_values(log(placed(0, b"a"), removed), 2) == {}


class TestFiles:
    def test_batches_of_all_segments_are_read(self, tmp_path: Path) -> None:
        batches = placed(0, b"a", b"b"), placed(2, b"c", epoch=1)
        for each in batches:
            (tmp_path / f"{each.base_offset:020}.log").write_bytes(each.data)
        found = read_log(tmp_path)
        assert found == log(*batches, active=2)
        assert found is not None and found.end_offset == 3

    def test_an_incomplete_batch_at_the_end_is_left_out(self, tmp_path: Path) -> None:
        first, second = placed(4, b"a"), placed(5, b"b")
        (tmp_path / f"{4:020}.log").write_bytes(first.data + second.data[:-1])
        assert read_log(tmp_path) == log(first, start=4)

    def test_an_empty_segment_says_where_the_log_ends(self, tmp_path: Path) -> None:
        assert read_log(tmp_path) is None
        (tmp_path / f"{7:020}.log").touch()
        found = read_log(tmp_path)
        assert found is not None and found.end_offset == 7
