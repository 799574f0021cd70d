"""For which replicas the high watermark waits, and when it moves."""

from collections.abc import Iterable

import pytest

from kafkalite.state.isr.high_watermark import is_awaited, lowest_end_offset, next_high_watermark
from kafkalite.state.isr.replica_progress import ReplicaProgress

LAG_MS = 1_000


@pytest.mark.parametrize(
    ("own_end", "ends", "required", "awaited", "lowest"),
    [
        (9, {}, (), (), 9),
        (9, {2: 7, 3: 8}, (1, 2, 3), (), 7),
        (9, {2: 7, 3: 8}, (1, 3), (), 8),
        (9, {2: 7, 3: 8}, (1,), (), 9),
        (9, {2: 7, 3: 8}, (1,), (2,), 7),
        (6, {2: 7, 3: 8}, (1, 2, 3), (), 6),
        (9, {2: -1, 3: 8}, (1, 2, 3), (), -1),
        (9, {2: -1, 3: 8}, (1, 3), (3,), 8),
    ],
)
def test_lowest_end_of_the_leader_the_isr_and_awaited_replicas(
    own_end: int, ends: dict[int, int], required: tuple[int, ...], awaited: Iterable[int], lowest: int
) -> None:
    followers = {}
    for replica_id, end in ends.items():
        followers[replica_id] = ReplicaProgress()
        followers[replica_id].end_offset = end
    found = lowest_end_offset(own_end, followers, required, lambda replica_id, _: replica_id in awaited)
    assert found == lowest


@pytest.mark.parametrize(
    ("lowest_end", "in_sync", "found"),
    [(8, 2, 8), (7, 2, 7), (6, 2, 7), (8, 1, 7), (8, 3, 8)],
)
def test_high_watermark_never_decreases_and_stops_below_the_minimum(lowest_end: int, in_sync: int, found: int) -> None:
    assert next_high_watermark(7, lowest_end, in_sync, 2) == found


@pytest.mark.parametrize(
    ("now_ms", "live", "rejected", "found"),
    [(6_000, True, False, True), (6_001, True, False, False), (6_000, False, False, False), (6_000, True, True, False)],
)
def test_replica_outside_isr_is_awaited_if_it_may_join(now_ms: int, live: bool, rejected: bool, found: bool) -> None:
    progress = ReplicaProgress()
    assert progress.record_fetch(5, 10, 0, 10, 5_000)
    assert is_awaited(progress, 11, now_ms, LAG_MS, live=live, rejected=rejected) is found
