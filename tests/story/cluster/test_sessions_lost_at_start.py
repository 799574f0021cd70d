"""The session of a broker ends during its start: it continues in another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.coordination.znodes import GROUP_CONFIGS, IP_CONFIGS, PRODUCER_ID_BLOCK, SCRAM_SECRET, USER_CONFIGS
from kafkalite.coordination.znodes.acls import LITERAL_ACLS
from kafkalite.coordination.znodes.tokens import TOKENS
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import SimulatedCluster, host_of
from kafkalite.testing.virtual_loop import run_virtually

RESTARTED = 1
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


def expire_at_read(cluster: SimulatedCluster, path: str) -> Callable[[], bool]:
    """End the session of a broker when it reads `path`, or its children, next; returns whether it has done so."""
    tree, ended = cluster.zookeeper.tree, []

    def expiring(read: Callable[..., Any]) -> Callable[..., Any]:
        def read_and_expire(asked: str, *arguments: Any) -> Any:
            try:
                return read(asked, *arguments)
            finally:  # also if the node does not exist
                if asked == path and not ended:
                    ended.append(asked)
                    cluster.expire(RESTARTED)

        return read_and_expire

    tree.children = expiring(tree.children)  # type: ignore[method-assign]
    tree.get = expiring(tree.get)  # type: ignore[method-assign]
    return lambda: bool(ended)


@pytest.mark.parametrize(
    "path",
    [
        GROUP_CONFIGS,
        f"{LITERAL_ACLS}/Topic",
        pytest.param(SCRAM_SECRET, id="users"),
        TOKENS,
        USER_CONFIGS,
        IP_CONFIGS,
        pytest.param(PRODUCER_ID_BLOCK, id="counters"),
    ],
)
def test_a_start_continues_in_another_session(tmp_path: Path, path: str) -> None:
    async def main() -> None:
        async with SimulatedCluster(str(tmp_path), MemoryNetwork(), 2, settings=SETTINGS) as cluster:
            await cluster.brokers[RESTARTED].stop()
            host = host_of(RESTARTED)
            cluster.brokers[RESTARTED].settings["listeners"] = f"PLAINTEXT://{host}:9092,SASL_PLAINTEXT://{host}:9093"
            ended = expire_at_read(cluster, path)
            await cluster.start(RESTARTED)
            assert ended()
            assert RESTARTED in cluster.brokers[2].running.image.brokers.ids

    run_virtually(main)
