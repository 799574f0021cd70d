"""Starts a broker: `start_broker` takes it from configuration and ports to a `RunningBroker` that accepts connections.

Order: log directories are locked, the coordination service is opened, the identity is agreed on, logs are recovered,
partitions are hosted, listeners are opened. A failure of any step closes what the steps before it opened.
"""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.gc_pause import PAUSE
from kafkalite.server.process.ports import Ports
from kafkalite.server.process.resources import BrokerResources, StartError
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.server.startup.start_alone import open_metadata, recover
from kafkalite.storage.dirs.log_directory import DirectoryError


async def start_broker(
    config: BrokerConfig,
    ports: Ports,
    temporary: str | None,
    failed: Callable[[str], None],
    inherited: Sequence[tuple[str, socket.socket]],
) -> RunningBroker:
    """Recover the logs and accept connections.

    Arguments:
        config: the static configuration.
        ports: what the broker uses from outside.
        temporary: path of the temporary log directory, which is created here and removed at the end; None = there is
            none.
        failed: called with one line when the broker cannot serve anything any more.
        inherited: listening sockets of a service manager, with their names.

    Raises OSError, StartError.
    """
    with ExitStack() as opened:
        if temporary is not None:
            os.mkdir(temporary, 0o700)
            opened.callback(remove_directory, temporary)
        resources = BrokerResources(config, ports, temporary is not None, failed)
        opened.callback(resources.close)
        try:
            resources.logs.lock()
            broker = await prepare_broker(resources, config)
            await broker.open(inherited)
        except (DirectoryError, JournalError, ZnodeError) as error:
            raise StartError(str(error)) from error
        broker.closing = opened.pop_all()
        return broker


async def prepare_broker(resources: BrokerResources, config: BrokerConfig) -> RunningBroker:
    """Take a broker to the point where it accepts connections; raises as `start_broker`, without its conversion."""
    if config.coordination is not None:
        # A broker that is alone does not need this module.
        from kafkalite.server.startup.start_in_cluster import start_in_cluster

        return await start_in_cluster(resources, config)
    metadata = await open_metadata(resources, config)
    PAUSE.begin()
    try:
        return await recover(resources, metadata)
    finally:
        PAUSE.end()


def remove_directory(path: str) -> None:
    """Remove a temporary directory with its files."""
    import shutil

    shutil.rmtree(path)
