"""A session of a command with the coordination service of a cluster: ZooKeeper, or the tree of one machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.zk_reader import opened_session
from kafkalite.clock import LoopClock, SystemRandom, ThreadOffload, await_outcome
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.served.coordination import SERVERS, ServedCoordination
from kafkalite.coordination.zookeeper.access import Access
from kafkalite.net.client.connection import dial


@asynccontextmanager
async def tree_session(
    zookeeper: str | None, coordination: str | None, timeout_s: float, access: Access
) -> AsyncIterator[Coordination]:
    """Open a session with ZooKeeper, or with the process that serves a directory, which may be this one. Ends the
    command with the reason if there is none.

    Arguments:
        zookeeper: as in zookeeper.connect; None = the next one.
        coordination: the directory that the brokers of this machine share.
        timeout_s: how long the servers are tried.
        access: TLS and identity for ZooKeeper.
    """
    if zookeeper is not None:
        async with opened_session(zookeeper, timeout_s, dial, access) as session:
            (await await_outcome(session.create_chroot)).result()
            yield session
        return
    assert coordination is not None
    loop = asyncio.get_running_loop()
    clock, jobs = LoopClock(loop), ThreadOffload(loop, 1)
    served = ServedCoordination(coordination, Disk(), clock, SystemRandom(), jobs)
    try:
        await served.open()
        async with opened_session(SERVERS, timeout_s, served.dial) as session:
            yield session
    finally:
        await served.close()
        jobs.close()
        clock.close()
