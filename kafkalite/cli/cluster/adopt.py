"""`kafkalite cluster adopt`: writes the embedded tree of a broker that was alone into the tree of a cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.zk_reader import IN_CONFIG, access_of, opened_session
from kafkalite.clock import LoopClock, SystemRandom, ThreadOffload, await_outcome
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.served.coordination import SERVERS, ServedCoordination
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.coordination.zookeeper.access import Access
from kafkalite.coordination.zookeeper.access_files import explain
from kafkalite.net.client.connection import dial
from kafkalite.server.adoption.tree_adoption import AdoptedTree, TreeAdoption, TreeAdoptionError, journal_of
from kafkalite.storage.dirs.log_directory import DirectoryError, LogDirectory


async def adopt_tree(
    data: str, zookeeper: str | None, coordination: str | None, config: str | None, timeout_s: float
) -> AdoptedTree:
    """Adopt the tree of a log directory; ends the command with the reason if that is not possible.

    Arguments:
        data: the first log directory of the broker.
        zookeeper: as in zookeeper.connect; None = the next one.
        coordination: the directory that the brokers of this machine share.
        config: a file with the settings that secure the session with ZooKeeper, None = none.
        timeout_s: how long the servers are tried.
    """
    access = access_of(config)
    disk, directory = Disk(), LogDirectory(Disk(), data)
    clock = LoopClock(asyncio.get_running_loop())
    try:
        directory.lock()
        journal_of(disk, data)  # before a session is opened
        async with _session(disk, zookeeper, coordination, access, timeout_s) as session:
            return await TreeAdoption(disk, clock, data, session).run()
    except CoordinationError as error:
        text = explain(error, access.identity_settings, IN_CONFIG)
        fail(f"{zookeeper or coordination}: {text}; repeat the command, it continues")
    except (TreeAdoptionError, DirectoryError, JournalError, ZnodeError) as error:
        fail(str(error))
    finally:
        directory.unlock()
        clock.close()


@asynccontextmanager
async def _session(
    disk: Disk, zookeeper: str | None, coordination: str | None, access: Access, timeout_s: float
) -> AsyncIterator[Coordination]:
    """Open a session with ZooKeeper, or with the process that serves the directory, which may be this one."""
    if zookeeper is not None:
        async with opened_session(zookeeper, timeout_s, dial, access) as session:
            (await await_outcome(session.create_chroot)).result()
            yield session
        return
    assert coordination is not None
    loop = asyncio.get_running_loop()
    clock, jobs = LoopClock(loop), ThreadOffload(loop, 1)
    served = ServedCoordination(coordination, disk, clock, SystemRandom(), jobs, dial)
    try:
        await served.open()
        async with opened_session(SERVERS, timeout_s, served.dial) as session:
            yield session
    finally:
        await served.close()
        jobs.close()
        clock.close()
