"""Responses to members and administrators while the coordinator of their group is loading: as in Kafka 3.9."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.coordinators.runtime.loader import CoordinatorLoader
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from tests.kit.members import beat_join, beat_plus, codes, commit, fetch, heartbeat, join, leave, sync
from tests.kit.server import running

LOADING = Error.COORDINATOR_LOAD_IN_PROGRESS


async def test_errors_while_groups_are_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's consumer raises KafkaException for LOADING in a response to SyncGroup: the member joins again instead."""
    async with running(str(tmp_path)) as client:
        await client.create("t")
        assert codes(await client.call(commit("g", "t", {0: 1}), 8)) == [0]
    monkeypatch.setattr(CoordinatorLoader, "start", lambda _loader: None)
    async with running(str(tmp_path)) as client:
        errors = {
            "SyncGroup": (await client.call(sync("g", "m", 1))).error_code,
            "Heartbeat": (await client.call(heartbeat("g", "m", 1))).error_code,
            "Heartbeat+": (await client.call(beat_plus("g", "m", 1))).error_code,
            "JoinGroup": (await client.call(join("g", "m"))).error_code,
            "LeaveGroup": (await client.call(leave("g", "m"))).error_code,
            "ConsumerGroupHeartbeat": (await client.call(beat_join("g", "m", "t"))).error_code,
            "OffsetCommit": codes(await client.call(commit("g", "t", {0: 1}), 8))[0],
            "OffsetFetch": (await client.call(fetch("g"), 8)).groups[0].error_code,
            "DescribeGroups": (await client.call(DescribeGroupsRequest(groups=["g"]))).groups[0].error_code,
            "ListGroups": (await client.call(ListGroupsRequest())).error_code,
        }
        assert errors == {
            **dict.fromkeys(errors, LOADING),
            "SyncGroup": Error.REBALANCE_IN_PROGRESS,
            "Heartbeat": 0,
            "Heartbeat+": 0,
        }
