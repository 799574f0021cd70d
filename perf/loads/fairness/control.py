"""The control of a fairness measurement: a process that answers ApiVersions at once and does nothing else.

Its waits show what the machine itself costs: scheduling, the loopback device, the probe. It prints its port, and ends
with its standard input.
"""

import select
import socket
import sys

from perf.wire import api_versions, read_exactly

RESPONSE = (6).to_bytes(4, "big") + bytes(6)  # correlation id and error code: the probe counts bytes


def serve(listening: socket.socket) -> None:
    """Answer one connection until it ends or standard input does."""
    size = len(api_versions(0))
    connection, _ = listening.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while sys.stdin not in (ready := select.select((connection, sys.stdin), (), ())[0]) and ready:
            if not connection.recv(1, socket.MSG_PEEK):
                return
            read_exactly(connection, size)
            connection.sendall(RESPONSE)


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        serve(listening)


if __name__ == "__main__":
    main()
