"""Runs several brokers of this machine as processes of one command: `kafkalite cluster up`.

1. The brokers share a coordination directory, so no ZooKeeper is needed. They are `kafkalite serve` with broker ids
   from 1 on; each has a log directory and a log file in the directory of the cluster.
2. If one of them ends, the others continue. It is started again by SIGUSR1, or by itself if the user wants that. A
   broker that fails at the start of the cluster ends the command.
3. The brokers are in sessions of their own: Ctrl-C reaches only this command, which stops them all.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Self

import click

from kafkalite.cli.cluster.broker_process import BrokerProcess
from kafkalite.cli.failure import Failure, fail
from kafkalite.config.replication import replication_settings
from kafkalite.storage.checkpoints import META_PROPERTIES

STOP_S = 30.0  # then a broker is killed
RESTART_MIN_S, RESTART_MAX_S = 1.0, 30.0  # before a broker is started again; doubled while it fails to start


def require_no_log_directory(directory: str) -> None:
    """End the command if a directory is that of a broker: the log directories would be among its partitions."""
    if os.path.exists(os.path.join(directory, META_PROPERTIES)):
        fail(f"{directory} is the log directory of a broker ({META_PROPERTIES}); give another one with --data")


class ClusterProcesses:
    """The brokers of a cluster, an async context manager that stops them at the end.

    Arguments:
        brokers: their number.
        directory: of the cluster; created if it is missing.
        port: of the first broker; the others have the next ones. 0 = free ports.
        settings: KEY=VALUE of all brokers.
        restart: a broker that has ended is started again.

    Attributes:
        brokers: the brokers.
        incomplete: one of them has ended since all were ready.
    """

    def __init__(
        self, brokers: int, directory: str, port: int, settings: Sequence[str], *, restart: bool = False
    ) -> None:
        self._directory = os.path.abspath(directory)
        replication = [f"{key}={value}" for key, value in replication_settings(brokers).items()]
        shared = [*replication, *settings, f"kafkalite.coordination.directory={self._directory}/coordination"]
        self.brokers = [
            BrokerProcess(number + 1, self._directory, port and port + number, shared) for number in range(brokers)
        ]
        self.incomplete = False
        self._restart = restart
        self._requests = {each.broker_id: asyncio.Event() for each in self.brokers}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as failing:
            failing.push_async_callback(self._stop)
            require_no_log_directory(self._directory)
            os.makedirs(self._directory, exist_ok=True)
            for each in self.brokers:
                await each.start()
            for each in self.brokers:
                await each.ready()
            failing.pop_all()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stop()

    async def run(self) -> None:
        """Watch the brokers. Ends the command if all have ended, and none is started again."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._restart_ended)
        watching = [asyncio.ensure_future(self._watch(each)) for each in self.brokers]
        try:
            await asyncio.gather(*watching)
        finally:
            for each in watching:
                each.cancel()

    def kill(self) -> str:
        """Kill all brokers; return what was done."""
        for each in self.brokers:
            each.signal(signal.SIGKILL)
        return "kafkalite: all brokers were killed; their next start recovers their logs"

    async def _watch(self, broker: BrokerProcess) -> None:
        """Report each end of a broker, and start it again when that is wanted."""
        pause_s = RESTART_MIN_S
        while True:
            await broker.ended()
            self.incomplete = True
            self._report_end(broker)
            await (asyncio.sleep(pause_s) if self._restart else self._requests[broker.broker_id].wait())
            self._requests[broker.broker_id].clear()
            await broker.start()
            try:
                await broker.ready()
            except Failure:
                pause_s = min(2 * pause_s, RESTART_MAX_S)
                continue  # its end is reported above
            pause_s = RESTART_MIN_S
            text = f"broker {broker.broker_id} is ready again on {broker.address}, process {broker.pid}"
            click.echo(f"kafkalite: {text}", err=True)

    def _report_end(self, broker: BrokerProcess) -> None:
        others = [str(each.broker_id) for each in self.brokers if each.running]
        if not others and not self._restart:
            fail(f"{broker.end_text()}; no broker is left")
        step = "it is started again" if self._restart else f"`kill -USR1 {os.getpid()}` starts it again"
        left = f"broker{'' if len(others) == 1 else 's'} {', '.join(others) or 'none'}"
        click.echo(f"kafkalite: {broker.end_text()}; {step}; still running: {left}", err=True)

    def _restart_ended(self) -> None:
        for each in self.brokers:
            if not each.running:
                self._requests[each.broker_id].set()

    async def _stop(self) -> None:
        """Stop all brokers cleanly, and kill those that take too long."""
        running = [each for each in self.brokers if each.running]
        for each in running:
            each.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*(each.ended() for each in running))
        except TimeoutError:
            for each in running:
                each.signal(signal.SIGKILL)
                await each.ended()
