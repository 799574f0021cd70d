"""Runs a command in a fork server, and ends as it does: `fork_client.py SOCKET ARGUMENT ...`.

The arguments are those of Python: `-m MODULE ...` or `FILE ...`. The command has this process's standard streams,
directory and environment, and receives its signals. It imports little, as it starts for each command.
"""

import array
import os
import signal
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
STATUS_BYTES = 4


def main(path: str, *arguments: str) -> None:
    """Exit with the code or the signal of the command."""
    server = socket(AF_UNIX, SOCK_STREAM)
    server.connect(path)
    ignored = [each for each in FORWARDED if signal.getsignal(each) == signal.SIG_IGN]
    fields = [os.getcwd(), " ".join(str(int(each)) for each in ignored), str(len(arguments)), *arguments]
    fields += [f"{name}={value}" for name, value in os.environ.items()]
    data = "\0".join(fields).encode(errors="surrogateescape")
    streams = array.array("i", (0, 1, 2))
    server.sendmsg([len(data).to_bytes(STATUS_BYTES, "big")], [(SOL_SOCKET, SCM_RIGHTS, streams)])
    server.sendall(data)

    def forward(number: int, _: object) -> None:
        server.send(bytes([number]))

    for each in FORWARDED:
        if each not in ignored:
            signal.signal(each, forward)
    end(server.recv(STATUS_BYTES))


def end(status: bytes) -> None:
    """End as the command did."""
    if len(status) != STATUS_BYTES:
        sys.exit("the fork server has ended")
    code = int.from_bytes(status, "big", signed=True)
    if code < 0:
        if -code in FORWARDED:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
