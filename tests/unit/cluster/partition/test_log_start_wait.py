"""Deletions of records that wait for followers."""

import time
from pathlib import Path

import pytest

from kafkalite.cluster.partition.log_start_wait import LogStartWait
from tests.unit.cluster.partition.test_flush import Rig
from tests.unit.cluster.partition.test_roles import Led

DELETIONS, LINEAR_S = 10_000, 1.0


def test_deletions_of_one_partition_wait_and_end_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may name a partition as often as it has space for."""
    monkeypatch.setattr(Rig, "is_live", lambda *_: True)
    led = Led(tmp_path)
    led.append("one")
    led.written()
    assert led.partition.log is not None and led.partition.log.delete_records_before(1) == 0
    results: list[tuple[int, int]] = []
    began = time.process_time()
    for _ in range(DELETIONS):
        LogStartWait(led.leader, 1, lambda error, low: results.append((error, low))).start(led.rig.clock, 1_000)
    for replica_id in (2, 3):
        assert results == []
        assert led.leader.follower_fetched(replica_id, 5, 1, 1, 0) == 0
    assert results == [(0, 1)] * DELETIONS and led.leader.progress_waits == {}
    assert time.process_time() - began < LINEAR_S
