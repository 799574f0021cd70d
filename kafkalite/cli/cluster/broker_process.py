"""One broker of `cluster up`: a process of `kafkalite serve` with a log file, and the reason why it has ended."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence

from kafkalite.cli.failure import Failure

HOST = "127.0.0.1"
READY = b"kafkalite ready on "
LOG_TAIL_BYTES = 16_384
LAST_WORDS = "kafkalite: "  # of an error that ends `serve`
ERRORS = (" ERROR ", " CRITICAL ")
LOGGED = re.compile(r"\d{4}-\d{2}-\d{2}T")


class BrokerProcess:
    """A broker of a cluster of this machine.

    Arguments:
        broker_id: its id.
        directory: of the cluster.
        port: 0 = a free one, which the broker keeps when it is started again.
        settings: KEY=VALUE.

    Attributes:
        broker_id: the argument.
        log: the path of its log.
        address: HOST:PORT, once it was ready.
        process: the running or the last one; None = never started.
    """

    def __init__(self, broker_id: int, directory: str, port: int, settings: Sequence[str]) -> None:
        self.broker_id = broker_id
        self.log = os.path.join(directory, f"broker-{broker_id}.log")
        self.address = f"{HOST}:{port}"
        self.process: asyncio.subprocess.Process | None = None
        self._data = os.path.join(directory, f"broker-{broker_id}")
        self._settings = [*settings, f"broker.id={broker_id}"]
        self._log_begin = 0

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        """The id of the running or the last process."""
        assert self.process is not None
        return self.process.pid

    async def start(self) -> None:
        """Start the process; `ready` waits for it. It is in a session of its own: Ctrl-C does not reach it."""
        command = [sys.executable, "-m", "kafkalite", "serve", "--listen", self.address, "--data", self._data]
        command += [part for setting in self._settings for part in ("--set", setting)]
        with open(self.log, "ab") as errors:
            self._log_begin = errors.tell()
            self.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Wait until the broker accepts connections. Raises Failure with the reason if it has ended."""
        assert self.process is not None and self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line.startswith(READY):
            await self.process.wait()
            raise Failure(self.end_text())
        self.address = line.removeprefix(READY).decode().strip()

    async def ended(self) -> None:
        """Wait for the end of the process."""
        assert self.process is not None
        await self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Signal the process if it runs."""
        if self.running and self.process is not None:
            self.process.send_signal(number)

    def end_text(self) -> str:
        """Return how the process has ended: by which signal, or its exit code and the last error of its log."""
        assert self.process is not None and self.process.returncode is not None
        code = self.process.returncode
        if code < 0:
            return f"broker {self.broker_id} was killed by {signal.Signals(-code).name} ({self.log})"
        return f"broker {self.broker_id} has ended with exit code {code}: {self._last_error()} ({self.log})"

    def _last_error(self) -> str:
        """Return the last error that this process has logged."""
        with open(self.log, "rb") as file:
            file.seek(max(self._log_begin, os.path.getsize(self.log) - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        last = [line for line in lines if line.startswith(LAST_WORDS)]
        errors = last or [line for line in lines if any(level in line for level in ERRORS)]
        if not errors and lines and not LOGGED.match(lines[-1]):
            errors = lines[-1:]  # of a traceback
        return errors[-1].removeprefix(LAST_WORDS) if errors else "it has logged no error"
