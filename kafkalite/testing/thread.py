"""Runs a broker in its own thread, for synchronous tests; clients connect to its `address`."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.topics.manager import NewTopic
from kafkalite.config.keys import SettingValue, setting_texts
from kafkalite.server.broker import Broker
from kafkalite.testing.loop_thread import DEADLINE_S, LoopThread


class BrokerThread(LoopThread[Broker]):
    """Runs a `Broker` between `__enter__` and `__exit__`.

    Arguments:
        data_dir: log directory; None = a temporary directory, removed at the end.
        settings: configs under Kafka's names, such as {"num.partitions": 3}.
    """

    def __init__(self, data_dir: str | None = None, settings: Mapping[str, SettingValue] | None = None) -> None:
        super().__init__("kafkalite-broker")
        self._data_dir = data_dir
        self._settings = settings

    @property
    def broker(self) -> Broker:
        """The broker. Raises RuntimeError before `__enter__`."""
        if not self._ready.done():
            raise RuntimeError("the broker runs between __enter__ and __exit__: `with BrokerThread() as broker:`")
        return self._ready.result()

    @property
    def address(self) -> str:
        """HOST:PORT, the bootstrap server of clients."""
        return self.broker.address

    def client_settings(self, user: str | None = None) -> dict[str, Any]:
        """Return the settings of a client of `kafkalite_sdk`: none, as the broker has no security.

        Raises ValueError: a user is given.
        """
        if user is not None:
            raise ValueError(f"the broker has no user {user!r}; a `SecuredBroker` with `users` has")
        return {}

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

    def _call(self, start: Callable[[Callable[[list[Refusal | None]], None]], None]) -> list[Refusal | None]:
        assert self._loop is not None, "the broker runs between __enter__ and __exit__"
        outcome: Future[list[Refusal | None]] = Future()
        self._loop.call_soon_threadsafe(start, outcome.set_result)
        return outcome.result(DEADLINE_S)

    async def _start(self) -> Broker:
        broker = self._create()
        await broker.start()
        return broker

    def _create(self) -> Broker:
        return Broker(self._data_dir, self._settings)

    async def _end(self, server: Broker) -> None:
        await server.stop()
