"""The clients of this process: one for each set of options, kept between micro-batches and tasks.

Spark's workers are forked from one process and used for many tasks. A client belongs to the process that has started
it; after a fork the child starts its own. A client that was not used for a while is closed when another is needed.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kafkalite_sdk.blocking import Admin, ColumnReader, Producer

from pyspark_kafkalite.client_options import admin_options, reader_options

IDLE_S = 300.0
FETCHES = 3

Client = Admin | ColumnReader | Producer[Any, Any]
C = TypeVar("C", Admin, ColumnReader, Producer[Any, Any])


class Clients:
    """The started clients of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[tuple[object, ...], tuple[Client, float]] = {}

    def get(self, create: Callable[..., C], options: Mapping[str, Any]) -> C:
        """Return a started client.

        Arguments:
            create: the class.
            options: its arguments.

        Raises:
            KafkaError: no broker is reachable.
        """
        key = (os.getpid(), create, tuple(sorted(options.items())))
        with self._lock:
            now = time.monotonic()
            self._close_idle(now, key)
            found = self._clients.get(key)
            if found is None:
                client: Any = create(**options)
                client.start()
            else:
                client = found[0]
            self._clients[key] = (client, now)
        return client  # type: ignore[no-any-return]

    def _close_idle(self, now: float, wanted: tuple[object, ...]) -> None:
        for key, (client, used) in list(self._clients.items()):
            if key[0] != os.getpid():
                del self._clients[key]  # of the parent process, which uses it
            elif key != wanted and now - used > IDLE_S:
                del self._clients[key]
                client.close()

    def close(self) -> None:
        """Close all clients of this process."""
        with self._lock:
            for key, (client, _) in list(self._clients.items()):
                del self._clients[key]
                if key[0] == os.getpid():
                    client.close()


_clients = Clients()


def _after_fork() -> None:
    global _clients
    _clients = Clients()  # another thread of the parent may have held the lock


os.register_at_fork(after_in_child=_after_fork)


def admin(client: Mapping[str, Any]) -> Admin:
    """Return the administration client of this process.

    Arguments:
        client: `SourceOptions.client`.
    """
    return _clients.get(Admin, admin_options(dict(client)))


def reader(client: Mapping[str, Any], isolation: str) -> ColumnReader:
    """Return the reader of ranges of this process.

    Arguments:
        client: `SourceOptions.client`.
        isolation: "read_uncommitted" or "read_committed".
    """
    options = reader_options(dict(client), os.environ)
    return _clients.get(ColumnReader, {**options, "isolation_level": isolation, "fetches": FETCHES})


def producer(client: Mapping[str, Any]) -> "Producer[bytes, bytes]":
    """Return the producer of this process.

    Arguments:
        client: `SinkOptions.shared`.
    """
    return _clients.get(Producer, admin_options(dict(client)))


def close_clients() -> None:
    """Close the clients of this process."""
    _clients.close()
