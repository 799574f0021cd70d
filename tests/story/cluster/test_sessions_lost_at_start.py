"""The session of a broker ends during its start: it continues in another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.coordination.znodes import GROUP_CONFIGS, IP_CONFIGS, USER_CONFIGS
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import run_virtually

RESTARTED = 1


def expire_at_read(cluster: SimulatedCluster, path: str) -> Callable[[], bool]:
    """End the session of a broker when it lists the children of `path` next; returns whether it has done so."""
    tree, ended = cluster.zookeeper.tree, []
    children = tree.children

    def list_children(asked: str, *arguments: Any) -> Any:
        found = children(asked, *arguments)
        if asked == path and not ended:
            ended.append(asked)
            cluster.expire(RESTARTED)
        return found

    tree.children = list_children  # type: ignore[method-assign]
    return lambda: bool(ended)


@pytest.mark.parametrize("path", [GROUP_CONFIGS, USER_CONFIGS, IP_CONFIGS])
def test_a_start_continues_in_another_session(tmp_path: Path, path: str) -> None:
    async def main() -> None:
        async with SimulatedCluster(str(tmp_path), MemoryNetwork(), 2) as cluster:
            await cluster.brokers[RESTARTED].stop()
            ended = expire_at_read(cluster, path)
            await cluster.start(RESTARTED)
            assert ended()
            assert RESTARTED in cluster.brokers[2].running.image.brokers.ids

    run_virtually(main)
