"""`tests.kit.isolated`: what hangs in a foreign client is killed and reported; its answer counts."""

from __future__ import annotations

import ctypes
import os
import signal

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.kit import isolated
from tests.kit.isolated import HUNG, Isolated, closed_later, killable


def hang() -> None:
    """Wait for a mutex that this thread holds: no signal interrupts that."""
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)


class Thing:
    """Something that can be called in a process of its own."""

    def __init__(self, first: int) -> None:
        self.value = first

    def add(self, more: int, *, times: int = 1) -> int:
        self.value += more * times
        return self.value

    def fail(self) -> None:
        raise LookupError("no such thing")

    def refuse(self) -> None:
        raise ck.KafkaException(ck.KafkaError(113, "stale", False, True))

    def process(self) -> int:
        return os.getpid()

    def hang(self) -> None:
        hang()

    def close(self) -> None:
        if self.value < 0:
            hang()


@killable
def answer_and_hang_in_close(answer: int) -> int:
    closed_later(hang)
    return answer


@killable
def process_of(answer: int) -> tuple[int, int]:
    return answer, os.getpid()


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "ANSWER_S", 5.0)
    monkeypatch.setattr(isolated, "CLOSE_S", 2.0)


def test_methods_are_called_in_another_process() -> None:
    with Isolated(Thing, 3) as thing:
        assert thing.add(2, times=4) == 11 and thing.add(1) == 12
        assert thing.process() != os.getpid()
    assert not HUNG


def test_exceptions_are_raised_again_and_the_object_remains_usable() -> None:
    with Isolated(Thing, 3) as thing:
        with pytest.raises(LookupError, match="no such thing"):
            thing.fail()
        assert thing.add(1) == 4


def test_exception_of_librdkafka_keeps_its_code() -> None:
    with Isolated(Thing, 3) as thing, pytest.raises(ck.KafkaException) as raised:
        thing.refuse()
    error = raised.value.args[0]
    assert (error.code(), error.str(), error.retriable()) == (113, "stale", True)


def test_method_that_hangs_is_killed_and_raises_timeout() -> None:
    with Isolated(Thing, 3) as thing, pytest.raises(TimeoutError, match="Thing: hang did not return"):
        thing.hang()
    assert [each for each in HUNG if "its process was killed" in each]
    HUNG.clear()


def test_close_that_hangs_is_killed_and_reported() -> None:
    with Isolated(Thing, -1) as thing:
        process = thing.process()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert HUNG == ["Thing: close hung for 2 s; its process was killed"]
    HUNG.clear()


def test_answer_of_a_function_counts_when_its_client_hangs_in_close() -> None:
    assert answer_and_hang_in_close(7) == 7
    assert process_of(8)[0] == 8
    assert HUNG == ["Functions: close hung for 2 s; its process was killed"]
    HUNG.clear()


def test_functions_share_a_process_and_a_killed_one_is_replaced() -> None:
    first = process_of(1)[1]
    assert process_of(2)[1] == first
    os.kill(first, signal.SIGKILL)
    isolated._functions[0]._process.join()
    assert process_of(3)[1] != first


@killable
def consumer_closes() -> str:
    """Create a consumer in the isolated process."""
    consumer = ck.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 2})
    closed_later(consumer.close)
    return type(consumer).__name__


def test_librdkafka_clients_are_created_in_isolated_processes_only() -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    for cls in (ck.Producer, ck.Consumer, AdminClient):
        with pytest.raises(AssertionError, match="process that can be killed"):
            cls(settings)
    assert consumer_closes() == "Consumer"
