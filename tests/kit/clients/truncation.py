"""Consumers of partition t-0, which a test watches while the end of its log is lost.

Each reads from offset 0 on and says `read OFFSET VALUE` for a record and `truncated OFFSET` when it learns that the log
was truncated there. Those of Java and Go are processes of their own, which end when their input gets a line or ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import queue
import subprocess
import threading
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.kit import jvm
from tests.kit.isolated import Isolated

DEADLINE_S = 60.0
FRANZ = Path(__file__).with_name("franz")
JAVA = str(jvm.KIT / "TruncationConsumer.java")


class Watcher(ABC):
    """A consumer; a context manager."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def next(self) -> tuple[str, int, str]:
        """Its next message: read or truncated, the offset, the value."""


class Process(Watcher):
    """A consumer in a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="consumer", daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line)

    def next(self) -> tuple[str, int, str]:
        what, offset, *value = self._said.get(timeout=DEADLINE_S).split()
        return what, int(offset), "".join(value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.communicate("end\n", timeout=DEADLINE_S)
        finally:
            self._process.kill()
            self._process.wait()


class Librdkafka(Watcher):
    """confluent-kafka, in a process that can be killed."""

    def __init__(self, address: str, reset: str) -> None:
        self._watching = Isolated(TruncationReader, address, reset)

    def next(self) -> tuple[str, int, str]:
        said: tuple[str, int, str] = self._watching.next()
        return said

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.close()


class TruncationReader:
    """librdkafka's consumer of one partition, for `Isolated`."""

    def __init__(self, address: str, reset: str) -> None:
        settings = {"bootstrap.servers": address, "group.id": "watch", "auto.offset.reset": reset}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 500})
        self._consumer.assign([TopicPartition("t", 0, 0)])

    def next(self) -> tuple[str, int, str]:
        """As `Watcher.next`."""
        while True:
            message = self._consumer.poll(DEADLINE_S)
            assert message is not None, "nothing in time"
            error = message.error()
            if error is None:
                value, offset = message.value(), message.offset()
                assert isinstance(value, bytes) and offset is not None
                return "read", offset, value.decode()
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                assert "truncation" in error.str(), error
                return "truncated", -1, ""

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


@cache
def franz() -> str:
    """The program of franz-go. It is built once per content; other processes wait for it."""
    text = b"".join(each.read_bytes() for each in sorted(FRANZ.iterdir()))
    program = jvm.cache_directory().resolve() / f"franz-{hashlib.sha256(text).hexdigest()[:12]}"
    program.parent.mkdir(parents=True, exist_ok=True)
    with open(program.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            partial = str(program.with_suffix(".partial"))
            subprocess.run(["go", "build", "-o", partial, "."], cwd=FRANZ, check=True, timeout=600)
            os.rename(partial, program)
    return str(program)


def java(address: str, reset: str) -> Watcher:
    """Apache Kafka's consumer."""
    command = jvm.java_command(jvm.CURRENT, JAVA, log="OFF")
    return Process([*command, address, reset])
