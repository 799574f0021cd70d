"""A process that asks several servers at a fixed rate and measures every wait from the planned moment of the request.

Requests leave at their planned moments whether or not earlier ones are answered, so a stall of 500 ms counts as
hundreds of long waits and not as one (no coordinated omission). Started by `Probe`: it reads the
streams as a line of JSON, prints `ready`, probes until its standard input ends, and prints the waits of each stream.
"""

import gc
import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import astuple
from typing import Any, NamedTuple

from perf.loads.fairness.waits import Delay, ProcessDelay, ProcessTimes, Wait
from perf.wire import connect

DRAIN_S = 120.0


class Asked(NamedTuple):
    """A request without a response: its planned moment, how long this process queued for a core before it was sent, and
    the broker's times then."""

    planned: float
    queued_s: float
    broker: ProcessTimes


class Stream:
    """The requests to one server on one connection.

    Arguments:
        host, port: of the server.
        request: the bytes sent each time; responses have any size.
        interval_s: between two planned moments.
        broker: the times of the broker's process, or None if it does not answer in its main thread.

    A subclass may send other bytes each time (`request`) and read responses (`took`).
    """

    def __init__(self, host: str, port: int, request: bytes, interval_s: float, broker: ProcessDelay | None) -> None:
        self.socket = connect(host, port)
        self.waits: list[Wait] = []
        self._port = port
        self._request, self._interval_s = request, interval_s
        self._broker = broker
        self._asked = deque[Asked]()
        self._tail = bytearray()
        self._now = self._queued_s = 0.0
        self._broker_now = ProcessTimes()
        self.next_at = time.monotonic() + interval_s

    def ask(self, now: float, queued_s: float) -> None:
        """Send the requests whose moments have come; `queued_s`: how long this process queued for a core just now."""
        while self.next_at <= now:
            self.ask_one(self.next_at, min(queued_s, now - self.next_at))
            self.next_at += self._interval_s

    def ask_one(self, planned: float, queued_s: float) -> Asked:
        """Send a request now that was planned for another moment."""
        asked = Asked(planned, queued_s, self._broker_times())
        self._asked.append(asked)
        self.socket.sendall(self.request())
        return asked

    def request(self) -> bytes:
        """The next request."""
        return self._request

    def took(self, response: bytes, asked: Asked) -> None:
        """The response to a request came, given without its size."""
        self.waits.append(self.wait_since(asked))

    def wait_since(self, asked: Asked) -> Wait:
        """From a request, of any stream to the same broker, to the responses that are being taken now."""
        wall_s = self._now - asked.planned
        own_s = asked.queued_s + self._queued_s
        broker_s = self._broker_now.machine_s(asked.broker, max(0.0, wall_s - own_s))
        return Wait(wall_s, max(0.0, wall_s - own_s - broker_s), asked.planned)

    def receive(self, queued_s: float) -> None:
        """Take what has come; `queued_s` as for `ask`. Raises ConnectionError when the server closed the connection."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError(f"the server on port {self._port} closed the connection")
        self._tail += data
        self._now, self._broker_now, self._queued_s = time.monotonic(), self._broker_times(), queued_s
        while len(self._tail) >= 4 and len(self._tail) - 4 >= (size := struct.unpack_from(">i", self._tail)[0]):
            response = bytes(self._tail[4 : 4 + size])
            del self._tail[: 4 + size]
            self.took(response, self._asked.popleft())

    @property
    def under_way(self) -> bool:
        return bool(self._asked)

    def _broker_times(self) -> ProcessTimes:
        return self._broker.times() if self._broker is not None else ProcessTimes()


def probe(streams: list[Stream], own: Delay) -> None:
    """Ask until standard input ends, then wait for the responses that are under way. Raises TimeoutError.

    own: of this thread; what it grows by from one event to the next is the time that this process saw the event late.
    """
    last_s = own.seconds()
    of_socket: dict[socket.socket, Stream] = {stream.socket: stream for stream in streams}
    while True:
        pause = max(0.0, min(stream.next_at for stream in streams) - time.monotonic())
        ready = select.select((*of_socket, sys.stdin), (), (), pause)[0]
        now_s = own.seconds()
        queued_s, last_s = now_s - last_s, now_s
        if sys.stdin in ready:
            break
        for each in ready:
            of_socket[each].receive(queued_s)
        now = time.monotonic()
        for stream in streams:
            stream.ask(now, queued_s)
    _drain(of_socket)


def _drain(of_socket: dict[socket.socket, Stream]) -> None:
    while left := [each for each, stream in of_socket.items() if stream.under_way]:
        ready = select.select(left, (), (), DRAIN_S)[0]
        if not ready:
            raise TimeoutError(f"no response for {DRAIN_S} s")
        for each in ready:
            of_socket[each].receive(0.0)


def main(streams: list[dict[str, Any]]) -> None:
    gc.disable()  # a collection would look like a wait; nothing here is cyclic
    with ExitStack() as stack:
        own = stack.enter_context(Delay(os.getpid()))
        made = [
            Stream(
                each["host"],
                each["port"],
                bytes.fromhex(each["request"]),
                each["interval_s"],
                stack.enter_context(ProcessDelay(each["pid"])) if each["pid"] else None,
            )
            for each in streams
        ]
        print("ready", flush=True)
        probe(made, own)
    print(json.dumps([[astuple(wait) for wait in stream.waits] for stream in made]))


if __name__ == "__main__":
    main(json.loads(sys.stdin.buffer.raw.readline()))
