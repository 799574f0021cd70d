"""The Unix socket in a coordination directory, over which the brokers of one machine and its commands use the tree.

1. The kernel admits processes that may search the directory (mode 0700): no other user can connect, or replace the
   socket of a process that has ended. So no secret is sent, and there is no handshake that a relay could pass on.
   A dial validates owner and mode itself: in a directory that others can change, another process may listen.
2. The socket of a killed process stays in the directory, and refuses connections until the next process replaces it.
3. An address of a Unix socket has at most 107 bytes; a path through a descriptor of the directory always fits.
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kafkalite.coordination.errors import ConnectionLossError

SOCKET = "coordination.socket"
BACKLOG = 1024

Factory = Callable[[], asyncio.BaseProtocol]


async def listen(directory: str, factory: Factory) -> asyncio.Server:
    """Listen instead of an earlier process; only with the lock of the directory. Raises OSError.

    Arguments:
        directory: the path of the coordination directory.
        factory: returns the protocol of each connection.
    """
    listening = socket.socket(socket.AF_UNIX)
    try:
        with _address(directory) as path:
            with suppress(FileNotFoundError):
                os.unlink(path)  # first: on a full disk the new one needs its space
            listening.bind(path)
            return await asyncio.get_running_loop().create_unix_server(factory, sock=listening, backlog=BACKLOG)
    except BaseException:
        listening.close()
        raise


async def dial_directory(directory: str, factory: Factory, *_server: object) -> None:
    """Connect to the process that serves a directory; with the directory bound, it is a `Dial`.

    Arguments:
        directory: the path of the coordination directory.
        factory: returns the protocol of the connection.
        _server: host, port and TLS context of a `Dial`, which have no meaning here.

    Raises:
        OSError: the directory cannot be used, or too many connections wait; PermissionError if other users have access.
        ConnectionLossError: no process serves the directory.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    try:
        with _address(directory) as path:
            connection.connect(path)  # ends at once, unlike that of TCP
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise ConnectionLossError(detail=f"{directory}: no process serves the directory") from None
    except BaseException:
        connection.close()
        raise
    await asyncio.get_running_loop().create_unix_connection(factory, sock=connection)


@contextmanager
def _address(directory: str) -> Iterator[str]:
    """The address of the socket, while the block runs."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        _check_access(os.fstat(descriptor), directory)
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def _check_access(status: os.stat_result, directory: str) -> None:
    """Raise PermissionError if a user other than this one and root can change the directory; root trusts its owner."""
    user, mode = os.geteuid(), stat.S_IMODE(status.st_mode)
    if user not in (0, status.st_uid):
        text = f"it belongs to the user with id {status.st_uid}: run this as that user, or as root"
        raise PermissionError(errno.EPERM, text, directory)
    if mode & 0o077:
        text = f"its mode is {mode:04o}, other users have access: stop its brokers, then `chmod 700` it"
        raise PermissionError(errno.EPERM, text, directory)
