"""The comparison of replicas in `topic verify`: batches, and last values of keys."""

from kafkalite.cli.verify.batch_comparison import BatchComparison, Difference, StoredBatch
from kafkalite.cli.verify.key_comparison import KeyTable, compare_tables


def batch(offset: int, count: int = 10, crc: int = 7, *, valid: bool = True) -> StoredBatch:
    return StoredBatch(offset, offset + count - 1, 0, 100, crc, valid)


def compare(
    start: int, end: int, logs: dict[int, list[StoredBatch]], starts: dict[int, int] | None = None
) -> tuple[list[tuple[int, int]], BatchComparison]:
    """Give each replica's batches one by one; returns (offset, broker) of the differences."""
    comparison = BatchComparison(list(logs), start, end)
    found: list[Difference] = []
    while wanted := comparison.next_reads():
        for replica, offset in wanted.items():
            log_start = (starts or {}).get(replica, 0)
            if offset < log_start:
                comparison.raise_start(replica, log_start)
            else:
                comparison.add(
                    replica, [each for each in logs[replica] if each.last_offset >= offset][:1], 99, log_start
                )
        found += comparison.differences()
    found += comparison.differences()
    return [(each.offset, each.broker) for each in found], comparison


def test_equal_replicas_have_no_difference() -> None:
    log = [batch(0), batch(10), batch(20)]
    found, comparison = compare(0, 30, {1: log, 2: log, 3: log})
    assert found == [] and comparison.compared == 3


def test_batches_above_the_high_watermark_do_not_count() -> None:
    found, _ = compare(0, 20, {1: [batch(0), batch(10), batch(20)], 2: [batch(0), batch(10)]})
    assert found == []


def test_another_batch_a_missing_one_and_a_wrong_crc_are_differences() -> None:
    right = [batch(0), batch(10), batch(20), batch(30)]
    wrong = [batch(0), batch(10, crc=8), batch(30, valid=False)]
    found, _ = compare(0, 40, {1: right, 2: wrong, 3: right})
    assert found == [(10, 2), (20, 2), (30, 2)]


def test_a_wrong_crc_on_the_leader_is_the_difference_of_the_leader() -> None:
    found, _ = compare(0, 10, {1: [batch(0, crc=8, valid=False)], 2: [batch(0)]})
    assert found == [(0, 1)]


def test_a_log_that_ends_early_lacks_batches() -> None:
    found, _ = compare(0, 30, {1: [batch(0)], 2: [batch(0), batch(10), batch(20)]})
    assert found == [(10, 1), (20, 1)]


def test_records_below_the_highest_log_start_are_not_compared() -> None:
    found, comparison = compare(0, 30, {1: [batch(0), batch(10), batch(20)], 2: [batch(10), batch(20)]}, {2: 15})
    assert found == [] and comparison.start == 15


def test_batches_of_different_sizes_are_found_and_the_comparison_goes_on() -> None:
    found, _ = compare(0, 30, {1: [batch(0, 20), batch(20)], 2: [batch(0), batch(10), batch(20)]})
    assert found == [(0, 2), (10, 1)]


def table(end: int, *records: tuple[int, bytes, bytes | None]) -> KeyTable:
    made = KeyTable(end)
    for offset, key, value in records:
        made.add(offset, key, value, ())
    return made


def test_compaction_of_one_replica_is_no_difference() -> None:
    full = table(9, (0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2"), (3, b"b", None))
    compacted = table(9, (2, b"a", b"2"))
    assert list(compare_tables({1: full, 2: compacted}, 0)) == []


def test_another_last_value_is_a_difference() -> None:
    one = table(9, (0, b"a", b"1"), (1, b"b", b"1"), (4, b"c", b"1"))
    two = table(9, (0, b"a", b"x"), (4, b"c", b"1"))
    assert [(each.offset, each.broker) for each in compare_tables({1: one, 2: two}, 0)] == [(0, 2), (1, 2)]


def test_keys_with_later_records_and_records_below_the_log_start_are_not_compared() -> None:
    one = table(5, (0, b"old", b"1"), (3, b"a", b"1"), (6, b"a", b"2"))
    two = table(5, (6, b"a", b"2"))
    assert list(compare_tables({1: one, 2: two}, 1)) == []
