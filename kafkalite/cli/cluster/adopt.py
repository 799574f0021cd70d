"""`kafkalite cluster adopt`: writes the embedded tree of a broker that was alone into the tree of a cluster."""

import asyncio

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.cluster.tree_session import tree_session
from kafkalite.cli.failure import fail
from kafkalite.cli.zk_reader import IN_CONFIG, access_of
from kafkalite.clock import LoopClock
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.coordination.zookeeper.access_files import explain
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
        async with tree_session(zookeeper, coordination, timeout_s, access) as session:
            return await TreeAdoption(disk, clock, data, session).run()
    except CoordinationError as error:
        text = explain(error, access.identity_settings, IN_CONFIG)
        fail(f"{zookeeper or coordination}: {text}; repeat the command, it continues")
    except (TreeAdoptionError, DirectoryError, JournalError, ZnodeError) as error:
        fail(str(error))
    finally:
        directory.unlock()
        clock.close()
