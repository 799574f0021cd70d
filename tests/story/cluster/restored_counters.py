"""Faults of operators: a copy of a log directory is started, and the counters of the tree are those of an older one.

An older tree would also lack topics, which the administrator of the simulation has created, and leader epochs that
clients have seen and that a power failure has removed from the logs. So only the producer ids are restored;
`test_older_tree` restores whole trees.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kafkalite.coordination import znodes
from kafkalite.server.broker import StartError
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.simulated_cluster import MEMBER_SETTINGS, PORT, host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.world import SETTINGS, ClusterWorld

CLIENT = "client"


def restore_counters(world: ClusterWorld) -> None:
    """No producer ids are assigned, and all sessions have ended."""
    world.zookeeper.tree.node(znodes.PRODUCER_ID_BLOCK).data = b""
    for session_id in list(world.zookeeper.sessions):
        world.zookeeper.expire(session_id)


async def start_copy(world: ClusterWorld, directory: Path, broker_id: int, number: int) -> None:
    """Start a copy of the log directory of a broker that runs; it reaches the tree only.

    The copy is refused while the broker is alive. If its session has ended, the copy registers, and is stopped.
    """
    host, data = f"copy{number}", directory / f"copy{number}"
    shutil.copytree(directory / str(broker_id), data)
    others = CLIENT, *map(host_of, world.brokers)
    for other in others:
        world.network.disconnect(host, other)
    copy = SimulatedBroker(
        str(data), world.network, seed=number, host=host, port=PORT,
        settings={**MEMBER_SETTINGS, **SETTINGS, "broker.id": broker_id}, machine=world.brokers[broker_id].machine,
    )  # fmt: skip
    try:
        await copy.start()
    except StartError as error:
        assert "is alive" in str(error), error
        world.count("copies that are refused")
    else:
        await pass_time(0.1)
        await copy.stop()
        world.count("copies that start")
    finally:
        for other in others:
            world.network.reconnect(host, other)


async def start_after_copies(broker: SimulatedBroker) -> None:
    """Start a broker; a copy of its log directory may have its id until the copy is stopped."""
    while True:
        try:
            await broker.start()
        except StartError as error:
            assert "alive, at PLAINTEXT://copy" in str(error), error
        else:
            return
