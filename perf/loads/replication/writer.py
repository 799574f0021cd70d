"""A thread that produces one record after another to one partition, whichever broker leads it."""

import struct
import threading
import time
from collections.abc import Iterable
from socket import socket

from perf.brokers.base import Running
from perf.errors import VerificationError
from perf.images import METADATA_OF_ALL
from perf.loads.replication.load_thread import LoadThread
from perf.loads.requests import BATCH
from perf.wire import call, connect, produce, produce_error
from tests.kit.metadata_v1 import parse

PAUSE_S = 0.001
CLOSED = (OSError, VerificationError, struct.error)  # the broker has ended, or ends: no response, or not all of it
RETRIABLE = frozenset({3, 5, 6, 7, 9, 19, 20, 56, 74, 75, 76})
WAIT_S = 60.0


class Writer(LoadThread):
    """Within the `with` block records are produced, acks=all, the next after the acknowledgement of the one before.

    Arguments:
        brokers: those that may lead; brokers that have ended are passed over.
        topic, partition: of the records.

    Attributes:
        acknowledged: values of time.monotonic() at the acknowledgements.
    """

    def __init__(self, brokers: Iterable[Running], topic: str, partition: int) -> None:
        super().__init__()
        self._ports = {each.port: each.host for each in brokers}
        self._topic, self._partition = topic, partition
        self._request = produce(topic, partition, BATCH)
        self._changed = threading.Condition()
        self._last_error: Exception | None = None
        self.acknowledged: list[float] = []

    def started(self) -> None:
        """As `LoadThread.started`: wait for the first acknowledgement."""
        self.wait_for_next(time.monotonic())

    def wait_for_next(self, after: float) -> None:
        """Wait for an acknowledgement after a value of time.monotonic(). Raises VerificationError after 60 s."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.failure or self.acknowledged[-1:] > [after], WAIT_S):
                raise VerificationError(f"no record was acknowledged within {WAIT_S} s: {self._last_error}")
        if self.failure is not None:
            raise self.failure

    def longest_pause_s(self, since: float) -> float:
        """Return the longest time between two acknowledgements, the second of which came after `since`."""
        pairs = zip(self.acknowledged, self.acknowledged[1:], strict=False)
        return max(second - first for first, second in pairs if second > since)

    def run(self) -> None:
        """As `LoadThread.run`."""
        while not self.ended.is_set():
            for port, host in self._ports.items():
                try:
                    with connect(host, port) as connection:
                        if self._leads(connection, port):
                            self._produce(connection)
                except CLOSED as error:
                    self._last_error = error  # another broker takes over, or it starts again: metadata will show it
            time.sleep(PAUSE_S)  # leaders change by no event that a client can wait for

    def _leads(self, connection: socket, port: int) -> bool:
        """Whether the broker believes that it leads; the ids of brokers are not needed for that."""
        found = parse(call(connection, METADATA_OF_ALL))
        leader = found.leaders.get((self._topic, self._partition), -1)
        return found.ports.get(leader) == port

    def _produce(self, connection: socket) -> None:
        while not self.ended.is_set():
            error = produce_error(call(connection, self._request))
            if error in RETRIABLE:
                return
            with self._changed:
                if error:
                    self.failure = VerificationError(f"a record was refused with error {error}")
                    self.ended.set()
                else:
                    self.acknowledged.append(time.monotonic())
                self._changed.notify_all()
