"""Talks to systemd: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3).

1. Without a service manager every call does nothing.
2. A message that cannot be delivered is logged and never stops the broker.
3. The variables are removed from the environment, so that no child process uses them.
"""

import logging
import os
import socket
from collections.abc import MutableMapping

FIRST_INHERITED_FD = 3  # SD_LISTEN_FDS_START

LOGGER = logging.getLogger("kafkalite.server.sd_notify")


class ServiceManagerError(ValueError):
    """A variable of the service manager is invalid; the text names it."""


class Notifier:
    """The broker's side of `Type=notify`.

    Without a service manager `connected` is False and every call does nothing. `watchdog_interval_s` is how often
    `watchdog()` has to be called, None if the unit has no watchdog: half of `WatchdogSec=`, as sd_watchdog_enabled(3)
    advises.
    """

    def __init__(self, address: str | None, watchdog_interval_s: float | None = None) -> None:
        """Connect to `address`, a path or an abstract name that begins with `@`; raises OSError if no process listens
        there.
        """
        self.watchdog_interval_s = watchdog_interval_s if address else None
        self._socket: socket.socket | None = None
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
            try:
                self._socket.connect("\0" + address[1:] if address.startswith("@") else address)
            except OSError:
                self._socket.close()
                raise

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> "Notifier":
        """Read and remove NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; raises ServiceManagerError, OSError."""
        address = environ.pop("NOTIFY_SOCKET", None)
        if address is not None and not address.startswith(("/", "@")):
            raise ServiceManagerError(f"NOTIFY_SOCKET={address!r} is neither a path nor an abstract socket name")
        usec = _take_int(environ, "WATCHDOG_USEC")
        pid = _take_int(environ, "WATCHDOG_PID")
        for_us = usec is not None and (pid is None or pid == os.getpid())
        return cls(address, usec / 2_000_000 if usec and for_us else None)

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def ready(self, status: str = "") -> None:
        """Report that startup (or a reload) is finished, with a line for `systemctl status`."""
        self._send("READY=1", status)

    def stopping(self, status: str = "") -> None:
        self._send("STOPPING=1", status)

    def watchdog(self) -> None:
        """Report that the event loop runs; called by the loop itself, every `watchdog_interval_s`."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, state: str, status: str = "") -> None:
        if self._socket is None:
            return
        # One assignment per line: a line break in the status would begin a new one.
        lines = [state]
        if status:
            lines.append("STATUS=" + " ".join(status.split()))
        try:
            self._socket.send("\n".join(lines).encode())
        except OSError as error:
            LOGGER.warning("cannot notify the service manager of %r: %s", lines, error)


def inherited_sockets(environ: MutableMapping[str, str] = os.environ) -> list[tuple[str, socket.socket]]:
    """Take over the listening sockets of socket activation.

    Returns (name, socket) in the order of the unit; the name is that of `FileDescriptorName=`, "" if there is none.
    Returns [] if the variables are missing or meant for another process. Raises ServiceManagerError if a variable is no
    number or a descriptor is not a listening stream socket.
    """
    pid = _take_int(environ, "LISTEN_PID")
    count = _take_int(environ, "LISTEN_FDS")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != os.getpid() or not count:
        return []
    if names == [""]:
        names = [""] * count
    if len(names) != count:
        raise ServiceManagerError(f"LISTEN_FDNAMES names {len(names)} descriptors, LISTEN_FDS is {count}")
    return [(name, _adopt(FIRST_INHERITED_FD + i)) for i, name in enumerate(names)]


def _adopt(fd: int) -> socket.socket:
    try:
        taken = socket.socket(fileno=fd)
    except OSError as error:
        raise ServiceManagerError(f"descriptor {fd} of LISTEN_FDS is not a socket: {error}") from error
    if taken.type != socket.SOCK_STREAM or not taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        taken.detach()  # not ours to close
        raise ServiceManagerError(f"descriptor {fd} of LISTEN_FDS is not a listening stream socket")
    taken.set_inheritable(False)
    taken.setblocking(False)
    return taken


def _take_int(environ: MutableMapping[str, str], key: str) -> int | None:
    text = environ.pop(key, None)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ServiceManagerError(f"{key}={text!r} is not a number")
    return int(text)
