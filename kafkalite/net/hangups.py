"""Learn that a peer has closed its connection although nothing is read from it.

A transport whose reading is paused reports neither the end of the stream nor a reset. An epoll instance of our own,
which the loop sees as one readable descriptor, watches the sockets beside the loop.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable


class Hangups:
    """Calls back once per watched descriptor, when its peer has closed or reset the connection.

    On systems without epoll nothing is watched: there a paused connection ends at its next write or by its idle timer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._ready)

    def watch(self, fd: int, callback: Callable[[], object]) -> None:
        """Call `callback` once when the peer of the socket `fd` has closed."""
        if self._epoll is not None:
            self._callbacks[fd] = callback
            self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer; to be called before it is closed, as its number is used again."""
        if self._epoll is not None and self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Give the epoll descriptor back; a second call does nothing."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _ready(self) -> None:
        if self._epoll is not None:
            for fd, _events in self._epoll.poll(0):
                self._callbacks[fd]()
