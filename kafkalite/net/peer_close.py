"""Learn that a peer has closed its connection although nothing is read from it.

A transport whose reading is paused reports neither the end of the stream nor a reset. An epoll instance of our own,
which the loop sees as one readable descriptor, watches the sockets beside the loop.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class PeerCloseWatch:
    """A watched socket, and the number of its descriptor as long as it was open."""

    socket: socket.socket
    fd: int
    callback: Callable[[bool], object]


class PeerCloseDetector:
    """Calls back once per watched socket, when its peer has closed or reset the connection.

    A watch ends with its socket, whose number another socket may have from then on: the kernel then has forgotten the
    watch, so only that of a socket that is still open is unregistered.
    On systems without epoll nothing is watched: there a paused connection ends at its next write or by its idle timer.
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
            connected: the socket, or asyncio's or uvloop's stand-in for it; its `fileno` is -1 from its end on.
            callback: called once when the peer has closed; with True when it has reset the connection.

        Returns what `forget` takes.
        """
        watch = PeerCloseWatch(connected, connected.fileno(), callback)
        if self._epoll is not None:
            self._watches[watch.fd] = watch
            self._epoll.register(watch.fd, select.EPOLLRDHUP | select.EPOLLONESHOT)
        return watch

    def forget(self, watch: PeerCloseWatch) -> None:
        """End a watch, whether its socket is still open or not."""
        if self._epoll is None or self._watches.get(watch.fd) is not watch:
            return
        del self._watches[watch.fd]
        if watch.socket.fileno() == watch.fd:
            self._epoll.unregister(watch.fd)

    def close(self) -> None:
        """Give the epoll descriptor back; a second call does nothing."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _ready(self) -> None:
        if self._epoll is not None:
            for fd, events in self._epoll.poll(0):
                watch = self._watches.get(fd)  # a callback may have ended others
                if watch is not None:
                    watch.callback(bool(events & (select.EPOLLERR | select.EPOLLHUP)))
