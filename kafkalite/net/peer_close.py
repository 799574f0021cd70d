"""Detects that a peer has closed its connection while nothing is read from it.

A transport with paused reading reports neither the end of the stream nor a reset. A private epoll instance watches
these sockets; for the event loop it is one readable descriptor.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class PeerCloseWatch:
    """A watched socket, and its descriptor while it was open."""

    socket: socket.socket
    fd: int
    callback: Callable[[bool], object]


class PeerCloseDetector:
    """Calls back once per watched socket, when its peer has closed or reset the connection.

    A watch ends when its socket is closed: the kernel removes it, and another socket may get the same descriptor. So
    only watches of open sockets are unregistered. Systems without epoll have no watches: there a paused connection is
    closed by its next write or its idle timer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watches: dict[int, PeerCloseWatch] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._ready)

    def watch(self, connected: socket.socket, callback: Callable[[bool], object]) -> PeerCloseWatch:
        """Watch a connected socket.

        Arguments:
            connected: the socket, or the object of asyncio or uvloop for it; its `fileno` is -1 once it is closed.
            callback: called once when the peer has closed the connection; with True if it has reset it.

        Returns: the watch, for `forget`.
        """
        watch = PeerCloseWatch(connected, connected.fileno(), callback)
        if self._epoll is not None:
            self._watches[watch.fd] = watch
            self._epoll.register(watch.fd, select.EPOLLRDHUP | select.EPOLLONESHOT)
        return watch

    def forget(self, watch: PeerCloseWatch) -> None:
        """End a watch; its socket may be closed already."""
        if self._epoll is None or self._watches.get(watch.fd) is not watch:
            return
        del self._watches[watch.fd]
        if watch.socket.fileno() == watch.fd:
            self._epoll.unregister(watch.fd)

    def close(self) -> None:
        """Close the epoll descriptor; a second call does nothing."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _ready(self) -> None:
        if self._epoll is not None:
            for fd, events in self._epoll.poll(0):
                watch = self._watches.get(fd)  # a callback may have ended other watches
                if watch is not None:
                    watch.callback(bool(events & (select.EPOLLERR | select.EPOLLHUP)))
