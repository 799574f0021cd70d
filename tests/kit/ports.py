"""TCP ports for brokers whose port must be known before they start."""

import fcntl
import random
import socket
import tempfile
from pathlib import Path

FIRST = 20_000
COUNTER = Path(tempfile.gettempdir()) / "kafkalite-tests-last-port"


def free_port() -> int:
    """A free TCP port of 127.0.0.1, another one for each call on this machine with the same temporary directory.

    The kernel gives ports of a higher range to outgoing connections and to listeners on port 0: none of them takes the
    port before a broker uses it, or between its stop and its next start.
    """
    limit = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with COUNTER.open("a+") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        port = int(counter.read() or random.randrange(FIRST, limit))  # runs with other directories begin elsewhere
        while True:
            port = port + 1 if port + 1 < limit else FIRST
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)):
                    break
        counter.truncate(0)
        counter.write(str(port))
    return port


def two_free_ports() -> int:
    """The first one of two ports that follow each other, as `free_port`."""
    port = free_port()
    while (following := free_port()) != port + 1:
        port = following
    return port
