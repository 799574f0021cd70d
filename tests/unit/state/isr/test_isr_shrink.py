"""Which members of an ISR lag, and which checks may remove them."""

from kafkalite.state.isr.isr_shrink import LagChecks, members_in_sync
from kafkalite.state.isr.replica_progress import ReplicaProgress

LAG_MS = 30_000


def test_members_that_lag_or_have_never_fetched_leave() -> None:
    """The leader is 1; 2 is behind for too long, 3 has every record, 4 has not fetched from this leader."""
    behind, complete = ReplicaProgress(), ReplicaProgress()
    behind.record_fetch(5, 9, 0, 10, 0)
    complete.record_fetch(5, 10, 0, 10, 0)
    followers = {2: behind, 3: complete}
    assert members_in_sync((4, 3, 2, 1), 1, followers, 10, LAG_MS + 1, LAG_MS) == (3, 1)


def test_late_check_removes_no_follower() -> None:
    checks = LagChecks(0)
    assert checks.next_ms(LAG_MS) == 15_000
    assert checks.begin(15_000, LAG_MS)
    assert checks.begin(45_000, LAG_MS), "late by 15 s"
    assert not checks.begin(75_001, LAG_MS), "the process was stopped"
    assert checks.begin(90_001, LAG_MS), "the followers had time to fetch"
