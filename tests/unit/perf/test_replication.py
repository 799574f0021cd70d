"""The loads of replication: a partition counts with all its replicas, and the writer follows the leader."""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import MSG_PEEK, create_server, socket
from typing import Any, cast

import pytest

from perf.brokers.base import Running
from perf.errors import VerificationError
from perf.images import in_sync
from perf.loads.replication.writer import Writer
from tests.kit.metadata_v1 import Image, parse

TOPIC, METADATA = b"t", 3
NOT_LEADER, MESSAGE_TOO_LARGE = 6, 10


class Leaders:
    """Two brokers of one partition. leader: index of the leader; error: of records that it receives."""

    def __init__(self, listening: list[socket]) -> None:
        self.ports = [each.getsockname()[1] for each in listening]
        self.leader, self.error = 0, 0
        self.received: list[int] = []  # index of the broker, for each record that was acknowledged

    def metadata(self) -> bytes:
        """Return a response to Metadata v1 without its size."""
        host = b"127.0.0.1"
        brokers = [struct.pack(">ih9sih", number, 9, host, port, -1) for number, port in enumerate(self.ports)]
        partition = struct.pack(">hii3i2i", 0, 0, self.leader, 2, 0, 1, 1, self.leader)
        topic = struct.pack(">hh1sbi", 0, 1, TOPIC, 0, 1) + partition
        return struct.pack(">ii", 1, 2) + b"".join(brokers) + struct.pack(">ii", 0, 1) + topic

    def produced(self, number: int) -> bytes:
        """Return a response to Produce v9 without its size."""
        error = self.error if number == self.leader else NOT_LEADER
        if not error:
            self.received.append(number)
        return struct.pack(">ih33x", 0, error)

    def serve(self, connection: socket, number: int) -> None:
        """Serve one connection until its client closes it."""
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                (api_key,) = struct.unpack_from(">h", stream.read(*struct.unpack(">i", size)))
                body = self.metadata() if api_key == METADATA else self.produced(number)
                connection.sendall(struct.pack(">i", len(body)) + body)


@contextmanager
def leaders() -> Iterator[tuple[Leaders, list[Running]]]:
    """Two listening brokers."""
    listening = [create_server(("127.0.0.1", 0)) for _ in range(2)]
    brokers = Leaders(listening)

    def accept(number: int) -> None:
        while True:
            connection, _ = listening[number].accept()
            with connection:
                if connection.recv(1, MSG_PEEK) == b"":  # the test has ended
                    return
                brokers.serve(connection, number)

    threads = [threading.Thread(target=accept, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    process = cast("Any", None)
    yield brokers, [Running("b", process, port, Path(), 0.0) for port in brokers.ports]
    for port in brokers.ports:
        with socket() as last:
            last.connect(("127.0.0.1", port))
    for thread, each in zip(threads, listening, strict=True):
        thread.join()
        each.close()


def test_writer_follows_the_leader_and_measures_the_pause() -> None:
    with leaders() as (brokers, running):
        with Writer(running, "t", 0) as writer:
            assert set(brokers.received) == {0}
            moved = time.monotonic()
            brokers.leader = 1
            writer.wait_for_next(time.monotonic())
            while brokers.received[-1] != 1:
                writer.wait_for_next(time.monotonic())
        assert brokers.received == sorted(brokers.received)  # none was acknowledged by the former leader
        pauses = [second - first for first, second in zip(writer.acknowledged, writer.acknowledged[1:], strict=False)]
        assert writer.longest_pause_s(0.0) == max(pauses)
        assert writer.longest_pause_s(moved) <= max(pauses)


def test_refused_record_fails_the_load() -> None:
    with leaders() as (brokers, running):
        brokers.error = MESSAGE_TOO_LARGE
        with pytest.raises(VerificationError, match="error 10"), Writer(running, "t", 0):
            pass


def test_partitions_in_sync_have_a_leader_and_all_replicas() -> None:
    members = {("t", 0): (1, 2), ("t", 1): (2,), ("t", 2): (1, 2)}
    image = Image(1, {1: 9001, 2: 9002}, {("t", 0): 1, ("t", 1): 2, ("t", 2): -1}, members)
    assert [in_sync(image, "t", replicas) for replicas in (1, 2)] == [1, 1]
    assert in_sync(image, "other", 2) == 0


def test_metadata_has_ports_and_in_sync_replicas() -> None:
    with leaders() as (brokers, _):
        found = parse(brokers.metadata())
    assert found.ports == dict(enumerate(brokers.ports))
    assert found.brokers == {0, 1}
    assert (found.leaders, found.in_sync) == ({("t", 0): 0}, {("t", 0): (0,)})
