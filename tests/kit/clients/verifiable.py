"""Apache Kafka's VerifiableConsumer as a member of a crowd: a Java process of its own, which may be killed.

It commits by itself after every poll and reports each event as a line of JSON.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.kit import jvm
from tests.kit.clients.java_members import ASSIGNORS
from tests.kit.clients.members import (
    HEARTBEAT_MS,
    POLL_S,
    REFRESH_MS,
    Crowd,
    Kind,
    Member,
    Seen,
    TopicPartition,
    Wish,
)
from tests.kit.clients.model import DEADLINE_S

PROGRAM = "org.apache.kafka.tools.VerifiableConsumer"
HOW = {
    "range": ["--assignment-strategy", f"{ASSIGNORS}RangeAssignor"],
    "cooperative-sticky": ["--assignment-strategy", f"{ASSIGNORS}CooperativeStickyAssignor"],
    "consumer": ["--group-protocol", "CONSUMER"],
}


def verifiable(how: str, directory: Path) -> Kind:
    """VerifiableConsumer of the current version by `range`, `cooperative-sticky` or `consumer`.

    directory: for its configuration.
    """
    return Kind(f"verifiable-{how}", partial(Verifiable, how=how, directory=directory))


class Verifiable(Member):
    """One process; its events are taken in by this thread."""

    def __init__(self, crowd: Crowd, wish: Wish, *, how: str, directory: Path) -> None:
        super().__init__(crowd, wish)
        config = {"metadata.max.age.ms": REFRESH_MS, "fetch.max.wait.ms": 100, "reconnect.backoff.max.ms": 500}
        options = ["--bootstrap-server", self.address, "--group-id", wish.group, "--topic", wish.topics[0], "--verbose"]
        if how != "consumer":
            config["heartbeat.interval.ms"] = HEARTBEAT_MS
            options += ["--session-timeout", str(wish.session_ms)]
        file = directory / f"{how}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        java = jvm.java_command(jvm.CURRENT, PROGRAM, log="OFF")
        self._command = [*java, *options, *HOW[how], "--command-config", str(file)]
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._owned: set[TopicPartition] = set()
        self._last_word = ""

    @contextmanager
    def _opened(self) -> Iterator[None]:
        with subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as self._process:
            assert self._process.stdout is not None
            ear = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
            ear.start()
            try:
                yield
                self._process.terminate()
                self._process.wait(DEADLINE_S)
            finally:
                self._process.kill()
                ear.join(DEADLINE_S)
            self._report(self._poll(), frozenset())

    def _listen(self, said: Iterable[str]) -> None:
        for line in said:
            self._events.put(json.loads(line))
        self._events.put(None)

    def kill(self) -> None:
        """It dies without a word to its broker."""
        self._ending.set()
        self._process.kill()
        self.join(DEADLINE_S)

    def leave(self) -> None:
        """SIGTERM: it closes its consumer and reports that."""
        super().leave()
        assert self._last_word == "shutdown_complete"

    def _poll(self) -> list[Seen]:
        fresh: list[Seen] = []
        try:
            event = self._events.get(timeout=POLL_S)
            while event is not None:
                fresh += self._take(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return fresh
        if not self._ending.is_set():
            raise RuntimeError(f"{self.name}: ended after {self._last_word}")
        return fresh

    def _take(self, event: dict[str, Any]) -> list[Seen]:
        self._last_word = event["name"]
        topic_partitions = {(each["topic"], each["partition"]) for each in event.get("partitions", ())}
        match event["name"]:
            case "partitions_assigned":
                self._owned |= topic_partitions
            case "partitions_revoked":
                self._owned -= topic_partitions
            case "record_data":
                return [Seen(event["topic"], event["partition"], event["offset"])]
        return []

    def _assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._owned)

    def _commit(self) -> None:
        """It has committed by itself."""
