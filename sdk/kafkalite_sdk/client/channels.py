"""The connections of a client by broker and purpose, and the closing of idle ones.

Invariants:
1. A broker has one connection for each purpose: "" for data, others for requests that hold back later responses.
2. A connection whose broker has got another address is aborted; the next request uses the new address.
3. A connection without requests for `connections_max_idle_s` is closed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from math import inf

from kafkalite.backoff import Backoff
from kafkalite.callbacks import call_each
from kafkalite.errors import KafkaConnectionError, KafkaError
from kafkalite.model import Node
from kafkalite.net.client.connection import ClientConnection
from kafkalite_sdk.client.alarm import Alarm
from kafkalite_sdk.client.channel import Channel
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.settings import ClientSettings

DATA = ""
LOGGER = logging.getLogger("kafkalite_sdk.client.channels")


def bootstrap_node(index: int) -> int:
    """Return the broker id, negative, under which a bootstrap address is known before its broker's id is."""
    return -1 - index


class Channels:
    """The connections of a client.

    Arguments:
        loop: the event loop.
        settings, environment: of the client.
        changed: called with a channel as in `Channel`.
        failed: called with an unexpected exception of a timer or a callback.

    Attributes:
        addresses: host and port by broker id; bootstrap addresses have negative ids.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: ClientSettings,
        environment: Environment,
        changed: Callable[[Channel], object],
        failed: Callable[[Exception], object],
    ) -> None:
        self._bootstrap = {bootstrap_node(index): address for index, address in enumerate(settings.bootstrap)}
        self.addresses: dict[int, tuple[str, int]] = dict(self._bootstrap)
        self._loop = loop
        self._settings = settings
        self._environment = environment
        self._changed = changed
        self._failed = failed
        self._backoff = Backoff(
            settings.reconnect_backoff_s, settings.reconnect_backoff_max_s, environment.random.random
        )
        self._channels: dict[tuple[int, str], Channel] = {}
        self._unreachable: set[str] = set()  # addresses whose outage was logged
        self._proven = False
        self._ending: list[Channel] = []
        self._idle_alarm = Alarm(loop, self._close_idle, failed)

    @property
    def bootstrap_nodes(self) -> list[int]:
        """The broker ids, negative, of the bootstrap addresses."""
        return list(self._bootstrap)

    def set_bootstrap(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Replace the bootstrap addresses. Connections to others, which no metadata has identified, are aborted."""
        wanted = dict.fromkeys(addresses)
        kept = {node: address for node, address in self._bootstrap.items() if address in wanted}
        gone = self._bootstrap.keys() - kept.keys()
        dropped = [key for key in self._channels if key[0] in gone]
        free = (node for node in map(bootstrap_node, count()) if node not in kept)
        added = {next(free): address for address in wanted if address not in kept.values()}
        self._bootstrap = {**kept, **added}
        brokers = {node: address for node, address in self.addresses.items() if node >= 0}
        self.addresses = {**self._bootstrap, **brokers}
        call_each(partial(self._drop, "its broker is not registered any more"), dropped)

    def find(self, node: int, purpose: str = DATA) -> Channel | None:
        """Return the channel to a broker if a request has used it."""
        return self._channels.get((node, purpose))

    def get(self, node: int, purpose: str = DATA) -> Channel:
        """Return the channel to a broker.

        Raises:
            KafkaConnectionError: the broker is unknown.
        """
        channel = self._channels.get((node, purpose))
        if channel is None:
            address = self.addresses.get(node)
            if address is None:
                raise KafkaConnectionError(f"broker {node} is not in the metadata of the cluster")
            channel = self._channels[node, purpose] = self._create(*address)
            self._idle_alarm.set(self._loop.time() + self._settings.connections_max_idle_s)
        return channel

    def _create(self, host: str, port: int) -> Channel:
        settings, security = self._settings, self._settings.security

        def open_connection(on_end: Callable[[KafkaError], object]) -> ClientConnection:
            return ClientConnection(
                host,
                port,
                client_id=settings.client_id,
                timeout_s=settings.request_timeout_s,
                connect_timeout_s=settings.connect_timeout_s,
                ssl=None if security.tls is None else security.tls.get(),
                sasl=security.sasl,
                dial=self._environment.dial,
                on_end=on_end,
                on_error=self._failed,
                random=self._environment.random.random,
                proven=self._settings_proven(),
            )

        return Channel(
            open_connection, f"{host}:{port}", self._loop, self._backoff, self._channel_changed, self._failed
        )

    def _settings_proven(self) -> bool:
        """Whether a connection with the security settings of this client has worked."""
        self._proven = self._proven or any(each.worked for each in self._channels.values())
        return self._proven

    def _channel_changed(self, channel: Channel) -> None:
        if any(each is channel and node >= 0 for (node, _), each in self._channels.items()):
            # Else this client has closed it, or it belongs to a bootstrap address: `start` raises its error.
            self._log_outage(channel)
        self._changed(channel)

    def _log_outage(self, channel: Channel) -> None:
        """Log the begin and the end of an outage, once for all connections to a broker."""
        name = channel.name
        connected = any(each.name == name and each.connection is not None for each in self._channels.values())
        if channel.last_error is not None and name not in self._unreachable and not connected:
            self._unreachable.add(name)
            LOGGER.warning("lost a broker, which is connected again when it is reachable: %s", channel.last_error)
        elif connected and name in self._unreachable:
            self._unreachable.remove(name)
            LOGGER.info("connected again to %s", name)

    def data_channels(self) -> Iterator[Channel]:
        """Yield the channels for data that requests have used."""
        return (channel for (_, purpose), channel in self._channels.items() if purpose == DATA)

    def set_brokers(self, brokers: Iterable[Node]) -> None:
        """Apply the addresses of metadata. Brokers that it no longer has are forgotten, but for their connections."""
        addresses = {each.broker_id: (each.host, each.port) for each in brokers}
        moved = [
            key for key in self._channels if addresses.get(key[0], self.addresses[key[0]]) != self.addresses[key[0]]
        ]
        gone = {node: self.addresses[node] for node, _ in self._channels}
        self.addresses = {**gone, **self._bootstrap, **addresses}
        call_each(partial(self._drop, "its broker has another address"), moved)
        self._identify_bootstrap(addresses)

    def _identify_bootstrap(self, addresses: dict[int, tuple[str, int]]) -> None:
        """Use the connection to a bootstrap address as that of the broker that has this address."""
        for bootstrap, address in self._bootstrap.items():
            node = next((node for node, each in addresses.items() if each == address), None)
            if node is not None and (node, DATA) not in self._channels and (bootstrap, DATA) in self._channels:
                self._channels[node, DATA] = self._channels.pop((bootstrap, DATA))

    def forget_brokers(self) -> None:
        """Close all connections, and keep only the bootstrap addresses."""
        keys = list(self._channels)
        self.addresses = dict(self._bootstrap)
        call_each(partial(self._drop, "the client connects to its bootstrap servers again"), keys)

    def _drop(self, reason: str, key: tuple[int, str]) -> None:
        channel = self._channels.pop(key)
        self._end(channel, KafkaConnectionError(f"{channel.name}: connection closed, {reason}"))

    def _end(self, channel: Channel, error: KafkaError) -> None:
        self._ending = [each for each in self._ending if not each.ended]
        self._ending.append(channel)
        channel.abort(error)

    def _close_idle(self) -> None:
        now = self._loop.time()
        max_idle_s = self._settings.connections_max_idle_s
        wake_at = inf
        for key, channel in list(self._channels.items()):
            idle_at = (now if channel.open_calls or channel.connecting else channel.used_at) + max_idle_s
            if idle_at <= now:
                self._drop("it was idle", key)
            else:
                wake_at = min(wake_at, idle_at)
        self._idle_alarm.set(wake_at)

    async def close(self, error: KafkaError, timeout_s: float) -> None:
        """End all connections. Requests that are queued are written first, if their brokers read them.

        Arguments:
            error: of the requests that are open.
            timeout_s: then the connections are aborted, in seconds.
        """
        self._idle_alarm.cancel()
        channels = [*self._ending, *self._channels.values()]
        self._channels.clear()
        try:
            call_each(lambda channel: channel.begin_close(error), channels)
            async with asyncio.timeout(timeout_s):
                for channel in channels:
                    await channel.wait_closed()
        except BaseException as failure:
            call_each(lambda channel: channel.abort(error), channels)
            if not isinstance(failure, TimeoutError):
                raise
        for channel in channels:
            await channel.wait_closed()
