"""Storms of clients against the security of a broker: each is a process that works until its standard input ends.

    python -m tests.kit.fairness.storms NAME PORT TOPIC

prints `ready` once it has begun, and at its end how much it did per second as JSON.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from perf.loads.fairness import wire
from perf.wire import frame

ROOT = Path(__file__).parents[3]
END_S = 60.0
HANDSHAKERS = 32
LOGINS_PER_S = 1_000
TICK_S = 0.01
HALF_OPEN = 1_000
OPEN_MAX = 4_000  # connections that wait for the end of their login
SLOW_CLIENTS = 100
SLOW_REQUESTS = 50
SLOW_ID = b"slow"  # the client id whose quotas are small
WRONG_LOGIN = b"\0alice\0wrong"


def handshakes(port: int, topic: str, over: Event) -> int:
    """Full TLS handshakes one after the other by some threads, on one core; number of handshakes."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    done = [0] * HANDSHAKERS

    def shake(number: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        while not over.is_set():
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as plain:
                context.wrap_socket(plain).close()
                done[number] += 1

    run_threads(HANDSHAKERS, shake)
    return sum(done)


def run_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work in threads until all have returned."""
    threads = [Thread(target=work, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def wrong_logins(port: int, topic: str, over: Event) -> int:
    """Logins by PLAIN with a wrong password at a fixed rate, whether or not earlier ones are answered."""
    handshake = frame(17, 1, 1, struct.pack(">h", 5) + b"PLAIN", flexible=False)
    login = frame(36, 1, 2, struct.pack(">i", len(WRONG_LOGIN)) + WRONG_LOGIN, flexible=False)
    done, next_at = 0, time.monotonic()
    with selectors.EpollSelector() as selector:
        while not over.is_set():
            for _ in range(min(int(LOGINS_PER_S * TICK_S), OPEN_MAX - len(selector.get_map()))):
                selector.register(connected(port, handshake + login), selectors.EVENT_READ)
            next_at += TICK_S
            done += closed_until(selector, next_at)
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return done


def connected(port: int, sent: bytes) -> socket.socket:
    """A new connection with bytes that were sent."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(sent)
    connection.setblocking(False)
    return connection


def closed_until(selector: selectors.BaseSelector, end: float) -> int:
    """Read connections until a moment, at least once; close and count those that the broker has closed."""
    count, pause = 0, 0.0
    while pause >= 0:
        for key, _ in selector.select(pause):
            connection: socket.socket = key.fileobj  # type: ignore[assignment]
            with suppress(ConnectionResetError):
                if connection.recv(1 << 16):
                    continue
            selector.unregister(connection)
            connection.close()
            count += 1
        pause = end - time.monotonic()
    return count


def half_open(port: int, topic: str, over: Event) -> int:
    """Connections that send the first record of a handshake and nothing more; each is replaced when it is closed."""
    hello, count = first_record(), 0
    with selectors.EpollSelector() as selector:
        while not over.is_set():
            for _ in range(min(100, HALF_OPEN - len(selector.get_map()))):
                selector.register(connected(port, hello), selectors.EVENT_READ)
                count += 1
            closed_until(selector, time.monotonic() + TICK_S)
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return count


def first_record() -> bytes:
    """The first record of a TLS handshake."""
    sent = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


def never_reading(port: int, topic: str, over: Event) -> int:
    """Clients with a small quota that send many produce and fetch requests, and read nothing."""
    record = wire.gzip_batch(os.urandom(10_000))
    requests = (wire.produce(topic, {0: record}) + wire.fetch({topic: [0]})) * SLOW_REQUESTS
    sent = deque[socket.socket]()
    while not over.is_set():
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.sendall(requests.replace(b"\0\x04perf", b"\0\x04" + SLOW_ID))
        sent.append(connection)
        if len(sent) > SLOW_CLIENTS:
            sent.popleft().close()
        over.wait(TICK_S)
    return len(sent)


STORMS: dict[str, Callable[[int, str, Event], int]] = {
    each.__name__: each for each in (handshakes, wrong_logins, half_open, never_reading)
}


@contextmanager
def storm(name: str, port: int, topic: str, rates: dict[str, float]) -> Iterator[None]:
    """Run a storm beside a block.

    Arguments:
        name: of STORMS.
        port: of the listener.
        topic: with one partition, for clients of the storm.
        rates: gets how much the storm did per second.
    """
    command = [sys.executable, "-m", "tests.kit.fairness.storms", name, str(port), topic]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n", f"{name} did not start"
        yield
        output, _ = process.communicate(timeout=END_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, f"{name} failed; its error output is above"
    rates[name] = json.loads(output)


def main(name: str, port: int, topic: str) -> None:
    over, results, began = Event(), list[int](), time.monotonic()
    worker = Thread(target=lambda: results.append(STORMS[name](port, topic, over)))
    worker.start()
    print("ready", flush=True)
    sys.stdin.read()
    over.set()
    worker.join()
    print(json.dumps(results[0] / (time.monotonic() - began)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
