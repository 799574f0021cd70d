"""The hand-written requests against independent decoders, and the generators against a broker of a few lines."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from aiokafka.record.memory_records import MemoryRecords
from kio.schema.produce.v9 import request as produce_v9
from kio.serial import entity_reader

from perf.checks import VerificationError
from perf.wire import (
    Pipe,
    api_versions,
    batch_of_one,
    metadata_of_all,
    paced,
    produce,
    produce_error,
    produce_error_at,
    varint,
)


def answer(correlation_id: int, error: int = 0) -> bytes:
    """What a broker says to Produce v9 for topic `t`, partition 0."""
    partition = struct.pack(">ihqqq", 0, error, 7, -1, 0) + b"\1\0\0"
    body = b"\0\2\2t\2" + partition + b"\0" + struct.pack(">i", 0) + b"\0"
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


@contextmanager
def broker(errors: Callable[[int], int]) -> Iterator[int]:
    """A listener that answers request number n with `errors(n)`; yields its port."""

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            number = 0
            try:
                while head := stream.read(4):
                    stream.read(struct.unpack(">i", head)[0])
                    connection.sendall(answer(0, errors(number)))
                    number += 1
            except ConnectionError:  # a client that met an error hangs up with requests under way
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            workers.append(threading.Thread(target=serve, args=(connection,)))
            workers[-1].start()

    workers: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    for thread in (acceptor, *workers):
        thread.join(60)
        assert not thread.is_alive()


REQUEST = produce("t", 0, batch_of_one(b"value", 1_700_000_000_000))


def test_the_batch_is_one_that_aiokafka_reads() -> None:
    records = MemoryRecords(batch_of_one(b"x" * 300, 1_700_000_000_000))
    batch = records.next_batch()
    assert batch.validate_crc()
    (record,) = batch
    assert (record.key, record.value, record.timestamp) == (None, b"x" * 300, 1_700_000_000_000)
    assert records.next_batch() is None


def test_the_produce_request_is_one_that_kio_reads() -> None:
    head = struct.calcsize(">ihhih") + len(b"perf") + 1
    assert struct.unpack_from(">i", REQUEST)[0] == len(REQUEST) - 4
    entity, read = entity_reader(produce_v9.ProduceRequest)(REQUEST, head)
    assert read == len(REQUEST) - head
    (topic,) = entity.topic_data
    assert (topic.name, entity.acks, topic.partition_data[0].index) == ("t", -1, 0)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2"), (1 << 14, b"\x80\x80\1")]
)
def test_varint(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded


def test_sizes_are_what_follows() -> None:
    for request in (api_versions(1), metadata_of_all(2)):
        assert struct.unpack_from(">i", request)[0] == len(request) - 4


def test_the_error_code_is_found_from_the_front_and_from_the_end() -> None:
    body = answer(0, 6)[4:]
    assert struct.unpack_from(">h", body, produce_error_at("t"))[0] == produce_error(body) == 6


def test_an_error_in_one_answer_ends_the_run() -> None:
    with broker(lambda number: 3 if number == 50 else 0) as port:
        pipes = [Pipe("127.0.0.1", port, [REQUEST])]
        with pytest.raises(VerificationError, match="a request was answered with"):
            paced(pipes, 5_000.0, 100)
        close(pipes)


def test_an_error_in_the_first_answer_ends_the_run() -> None:
    with broker(lambda number: 6) as port, pytest.raises(VerificationError, match="with error 6"):
        Pipe("127.0.0.1", port, [REQUEST])


def test_paced_requests_are_all_answered_and_not_sent_early() -> None:
    with broker(lambda number: 0) as port:
        pipes = [Pipe("127.0.0.1", port, [REQUEST]) for _ in range(4)]
        latencies = paced(pipes, 2_000.0, 200)
        assert len(latencies) == 200
        assert min(latencies) > 0
        close(pipes)


def close(pipes: list[Pipe]) -> None:
    for pipe in pipes:
        pipe.socket.close()
