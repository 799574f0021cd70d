"""Ranges are divided between a table and its topic: each offset is in one of them, or named."""

import random

import pytest
from kafkalite_sdk import TopicPartition
from pyspark_kafkalite import history
from pyspark_kafkalite.history import divide, first_offsets
from pyspark_kafkalite.options import EARLIEST, Position
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.tables import Commit, CommittedRange, DataFile, Gap
from pyspark_kafkalite.tables.model import Span
from pyspark_kafkalite.tables.state import StateBuilder, TableState

NAME = TopicPartition("orders", 0)


def state_of(start: int, end: int, *gaps: tuple[int, int], files: tuple[DataFile, ...] = ()) -> TableState:
    """A table with the offsets [start, end) without gaps."""
    lost = tuple(Gap(*NAME, *each) for each in gaps)
    builder = StateBuilder(TableState())
    builder.apply(Commit(0, "A", 0, (CommittedRange(*NAME, start, end, 0, None, None),), files, {NAME: end}, lost))
    return builder.frozen()


def divided(state: TableState, start: int, end: int, log_start: int) -> history.Division:
    return divide(state, "T", {NAME: start}, {NAME: end}, {NAME: log_start})


@pytest.mark.parametrize(
    ("start", "end", "log_start", "table", "before", "after", "loss"),
    [
        (10, 50, 0, [(10, 30)], None, (30, 50), None),
        (0, 50, 0, [(10, 30)], (0, 10), (30, 50), None),
        (12, 20, 0, [(12, 20)], None, (20, 20), None),
        (35, 50, 32, [], None, (35, 50), None),
        (10, 50, 30, [(10, 30)], None, (30, 50), None),
        (10, 50, 33, [(10, 30)], None, (33, 50), "orders-0: the table T ends at offset 30, but the log begins at 33: "),
        (10, 50, 60, [(10, 30)], None, (50, 50), "offsets 30 to 49 are in neither"),
    ],
)
def test_range_is_divided(
    start: int,
    end: int,
    log_start: int,
    table: list[tuple[int, int]],
    before: tuple[int, int] | None,
    after: tuple[int, int],
    loss: str | None,
) -> None:
    found = divided(state_of(10, 30), start, end, log_start)
    assert [each[2:] for each in found.table] == table
    assert (found.before, found.after) == ({NAME: before} if before else {}, {NAME: after})
    assert len(found.losses) == (loss is not None) and (loss or "") in "".join(found.losses)


def test_gap_of_the_table_is_named() -> None:
    found = divided(state_of(10, 30, (12, 15), (20, 21)), 13, 40, 30)
    assert [each[2:] for each in found.table] == [(15, 20), (21, 30)]
    assert [each.split(": ")[1][:20] for each in found.losses] == ["offsets 13 to 14 wer", "offsets 20 to 20 wer"]


def test_partition_that_the_table_does_not_have_is_read_from_the_topic() -> None:
    other = TopicPartition("orders", 1)
    found = divide(state_of(0, 9), "T", {other: 3}, {other: 8}, {other: 0})
    assert (found.table, found.after, found.losses) == ([], {other: (3, 8)}, [])


def test_each_offset_is_in_one_part_or_named() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        start, first, log_start = (rng.randrange(40) for _ in range(3))
        last, end = first + rng.randrange(1, 40), start + rng.randrange(40)
        found = divided(state_of(first, last), start, end, log_start)
        parts = [each[2:] for each in found.table] + [pair for part in found[1:3] for pair in part.values()]
        offsets = [at for low, high in parts for at in range(low, high)]
        assert len(offsets) == len(set(offsets)) and set(offsets) <= set(range(start, end))
        missing = set(range(start, end)) - set(offsets)
        assert not missing or (len(found.losses) == 1 and all(last <= at < log_start for at in missing))


def test_earliest_includes_the_table() -> None:
    state, start = state_of(10, 30), {NAME: 25}
    positions = {
        10: Position("x", everywhere=EARLIEST),
        25: Position("x", everywhere=-1),
    }
    for expected, position in positions.items():
        assert first_offsets(state, position, start, [NAME]) == {NAME: expected}
    assert first_offsets(state, Position("x", offsets={NAME: EARLIEST}), start, [NAME]) == {NAME: 10}
    assert first_offsets(state, Position("x", offsets={NAME: 25}), start, [NAME]) == {NAME: 25}
    assert first_offsets(state, Position("x", everywhere=EARLIEST), {NAME: 3}, [NAME]) == {NAME: 3}


def test_files_are_selected_by_their_offsets_and_packed() -> None:
    files = [DataFile(str(number), 40, 10, (Span(*NAME, number * 10, number * 10 + 10),)) for number in range(6)]
    state = state_of(0, 60, files=(*files, DataFile("unknown", 40, 1)))
    wanted = [OffsetRange(*NAME, 15, 18), OffsetRange(*NAME, 25, 41)]
    found = list(history.tasks(state, "T", wanted, 100))
    assert [each.files for each in found] == [("1", "2"), ("3", "4"), ("unknown",)]
    assert [each.ranges for each in found] == [tuple(wanted), (wanted[1],), tuple(wanted)]
