"""Runs several brokers of this machine as processes of one command: `kafkalite cluster up`.

1. The brokers share a coordination directory, so no ZooKeeper is needed. They are `kafkalite serve` with broker ids
   from 1 on; each has a log directory and a log file in the directory of the cluster.
2. If one of them ends, the others are stopped, and the command fails with the last line of its log.
3. The brokers are in sessions of their own: Ctrl-C reaches only this command, which stops them all.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple, Self

from kafkalite.cli.failure import fail

HOST = "127.0.0.1"
READY = b"kafkalite ready on "
STOP_S = 30.0  # then a broker is killed
LOG_TAIL_BYTES = 4_096


class Member(NamedTuple):
    """A broker: its id, its process, the file with its log, and its address, HOST:PORT."""

    broker_id: int
    process: asyncio.subprocess.Process
    log: str
    address: str


class ClusterProcesses:
    """The brokers of a cluster, an async context manager that stops them at the end.

    Arguments:
        brokers: their number.
        directory: of the cluster; created if it is missing.
        port: of the first broker; the others have the next ones. 0 = free ports.
        settings: KEY=VALUE of all brokers.
    """

    def __init__(self, brokers: int, directory: str, port: int, settings: Sequence[str]) -> None:
        self.members: list[Member] = []
        self._brokers = brokers
        self._directory = os.path.abspath(directory)
        self._port = port
        self._settings = [*settings, f"kafkalite.coordination.directory={self._directory}/coordination"]
        self._started: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as failing:
            failing.push_async_callback(self._stop)
            os.makedirs(self._directory, exist_ok=True)
            started = [await self._start(broker_id) for broker_id in range(1, self._brokers + 1)]
            self.members = [await self._ready(*each) for each in started]
            failing.pop_all()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stop()

    async def run(self) -> None:
        """Wait until a broker ends, and end the command with the reason."""
        waiting = [asyncio.ensure_future(each.process.wait()) for each in self.members]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        ended = next(each for each in self.members if each.process.returncode is not None)
        fail(self._end_of(ended.broker_id, ended.process, ended.log))

    async def _start(self, broker_id: int) -> tuple[int, asyncio.subprocess.Process, str]:
        port = self._port + broker_id - 1 if self._port else 0
        log = os.path.join(self._directory, f"broker-{broker_id}.log")
        settings = [*self._settings, f"broker.id={broker_id}"]
        command = [sys.executable, "-m", "kafkalite", "serve", "--listen", f"{HOST}:{port}"]
        command += ["--data", os.path.join(self._directory, f"broker-{broker_id}")]
        command += [part for setting in settings for part in ("--set", setting)]
        with open(log, "ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._started.append(process)
        return broker_id, process, log

    async def _ready(self, broker_id: int, process: asyncio.subprocess.Process, log: str) -> Member:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line.startswith(READY):
            await process.wait()
            fail(self._end_of(broker_id, process, log))
        return Member(broker_id, process, log, line.removeprefix(READY).decode().strip())

    @staticmethod
    def _end_of(broker_id: int, process: asyncio.subprocess.Process, log: str) -> str:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        reason = lines[-1] if lines else "it has logged nothing"
        return f"broker {broker_id} has ended with exit code {process.returncode}: {reason} ({log})"

    async def _stop(self) -> None:
        """Stop all brokers cleanly, and kill those that take too long."""
        running = [each for each in self._started if each.returncode is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*(each.wait() for each in running))
        except TimeoutError:
            for process in running:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
