"""Runs a broker in its own thread, for synchronous tests; clients connect to its `address`."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from kafkalite.cluster.topics import NewTopic, Refusal
from kafkalite.config.keys import SettingValue, setting_texts
from kafkalite.server.broker import Broker

T = TypeVar("T")

DEADLINE_S = 30.0


class BrokerThread:
    """Runs a `Broker` between `__enter__` and `__exit__`.

    Arguments:
        data_dir: log directory; None = a temporary directory, removed at the end.
        settings: configs under Kafka's names, such as {"num.partitions": 3}.
    """

    def __init__(self, data_dir: str | None = None, settings: Mapping[str, SettingValue] | None = None) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready: Future[Broker] = Future()
        self._thread = threading.Thread(target=self._run, name="kafkalite-broker", daemon=True)

    def __enter__(self) -> "BrokerThread":
        self._thread.start()
        self.broker = self._ready.result(DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the broker cleanly and wait for its thread."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {DEADLINE_S:.0f} s")

    @property
    def address(self) -> str:
        """HOST:PORT, the bootstrap server of clients."""
        if not self._ready.done():
            raise RuntimeError("the broker runs between __enter__ and __exit__: `with BrokerThread() as broker:`")
        return self.broker.address

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, SettingValue] | None = None,
    ) -> None:
        """Create a topic; raises ValueError with the broker's reason if it cannot be created.

        Arguments:
            name: of the topic.
            partitions: number of partitions.
            configs: of the topic, under Kafka's names.
        """
        new = NewTopic(name, partitions=partitions, configs=setting_texts(configs or {}))
        (refusal,) = self._call(lambda then: self.broker.running.topics.create([new], validate_only=False, then=then))
        if refusal is not None:
            raise ValueError(f"topic {name!r} was not created: {refusal.message or refusal.error}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic; raises ValueError with the broker's reason if it cannot be deleted."""
        (refusal,) = self._call(lambda then: self.broker.running.topics.delete([name], then=then))
        if refusal is not None:
            raise ValueError(f"topic {name!r} was not deleted: {refusal.message or refusal.error}")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop and wait for its result."""
        assert self._loop is not None, "the broker runs between __enter__ and __exit__"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def _call(self, start: Callable[[Callable[[list[Refusal | None]], None]], None]) -> list[Refusal | None]:
        assert self._loop is not None, "the broker runs between __enter__ and __exit__"
        outcome: Future[list[Refusal | None]] = Future()
        self._loop.call_soon_threadsafe(start, outcome.set_result)
        return outcome.result(DEADLINE_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # handed to the thread that waits for the broker
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        broker = self._create()
        await broker.start()
        try:
            self._ready.set_result(broker)
            await self._stop.wait()
        finally:
            await self._end(broker)

    def _create(self) -> Broker:
        return Broker(self._data_dir, self._settings)

    async def _end(self, broker: Broker) -> None:
        await broker.stop()
