"""Defines `Broker`, the embedding API: one broker in the caller's event loop.

`startup` has the order of the start, `running_broker` that of the stop.

A broker without a data directory keeps its files in a temporary one and its coordination in memory: for tests.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.definitions import check_known
from kafkalite.config.keys import SettingValue, check_directory, setting_texts
from kafkalite.model import Endpoint
from kafkalite.server.process.ports import Ports
from kafkalite.server.process.resources import StartError as StartError
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.server.startup.startup import start_broker

LOGGER = logging.getLogger("kafkalite.server")
EMBEDDED = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Broker:
    """One broker in one event loop: `async with Broker(...) as broker:` or `start` and `stop`.

    A broker starts once. Another `Broker` with the same directory continues with its data.

    Arguments:
        data_dir: log directory; None = a temporary directory that is removed at the end.
        settings: configs under Kafka's names, such as {"num.partitions": 3}; they override the defaults.
        config: a complete configuration, instead of the two above.
        ports: what the broker uses from outside: clock, disk, sockets; the real ones by default.

    Attributes:
        on_failed: called with one line when the broker cannot serve anything any more: the last log directory went
            offline, or the journal of the cluster metadata failed. Until it is stopped, clients get
            KAFKA_STORAGE_ERROR.

    Raises ConfigError for an unknown or wrong setting; from `start`: ConfigError, OSError, StartError.
    """

    def __init__(
        self,
        data_dir: str | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        config: BrokerConfig | None = None,
        ports: Ports | None = None,
    ) -> None:
        self._ports = ports or Ports()
        temporary = data_dir is None and config is None
        self._temporary = temporary_path(self._ports.random.bytes(8)) if temporary else None
        directory = self._temporary or data_dir
        check_directory(str(directory), "data_dir")
        check_known(settings or {})
        self._config = config or BrokerConfig({**EMBEDDED, "log.dirs": str(directory), **setting_texts(settings or {})})
        self.on_failed: Callable[[str], None] | None = None
        self._started = False
        self._running: RunningBroker | None = None

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def running(self) -> RunningBroker:
        """The parts of the broker. Raises RuntimeError before it has started."""
        if self._running is None:
            raise RuntimeError("the broker is not started: use `async with broker:` or `start()`")
        return self._running

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener."""
        return self.running.address

    @property
    def addresses(self) -> list[Endpoint]:
        """The address of each listener."""
        return self.running.addresses

    async def start(self, inherited: Sequence[tuple[str, socket.socket]] = ()) -> None:
        """Recover the logs and accept connections; `inherited`: listening sockets of a service manager."""
        if self._started:
            raise RuntimeError(
                "a broker starts only once: create another `Broker`, with the same directory to keep its data"
            )
        asyncio.get_running_loop()  # raises RuntimeError before anything is created
        self._started = True
        for name, near in self._config.unknown():
            origin = f" (in {self._config.origins[name]})" if name in self._config.origins else ""
            LOGGER.warning("unknown key %s%s is ignored%s", name, origin, f": did you mean {near}?" if near else "")
        self._running = await start_broker(self._config, self._ports, self._temporary, self._failed, inherited)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Send open responses for at most `grace_s` seconds, flush, close the logs cleanly and free the directories.

        The directories are free afterwards, whatever is raised. Does nothing where the broker does not run.
        """
        if self._running is not None:
            await self._running.stop(grace_s)

    def _failed(self, text: str) -> None:
        if self.on_failed is not None:
            self.on_failed(text)


def temporary_path(name: bytes) -> str:
    """Return the path of a temporary log directory; the start creates it."""
    import tempfile  # a broker with a data directory does not need it

    return os.path.join(tempfile.gettempdir(), f"kafkalite-{name.hex()}")
