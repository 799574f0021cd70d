"""Deletions of records that wait for followers."""

from pathlib import Path

import pytest

from kafkalite.cluster.partition.log_start_wait import LogStartWait
from tests.unit.cluster.partition.test_flush import Rig
from tests.unit.cluster.partition.test_roles import Led

DELETIONS = 10_000


def test_many_deletions_of_one_partition_wait_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may name a partition as often as it has space for: no wait copies those before it."""
    monkeypatch.setattr(Rig, "is_live", lambda *_: True)
    led = Led(tmp_path)
    led.append("one")
    led.written()
    assert led.partition.log is not None and led.partition.log.delete_records_before(1) == 0
    results: list[tuple[int, int]] = []
    waits = led.leader.progress_waits
    for _ in range(DELETIONS):
        LogStartWait(led.leader, 1, lambda error, low: results.append((error, low))).start(led.rig.clock, 1_000)
    for replica_id in (2, 3):
        assert results == []
        assert led.leader.follower_fetched(replica_id, 5, 1, 1, 0) == 0
    assert results == [(0, 1)] * DELETIONS
    assert led.leader.progress_waits is waits and not waits
