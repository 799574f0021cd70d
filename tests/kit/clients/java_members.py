"""Java consumers as members of a crowd, many in one Java process, which runs Kafka's tools too: a start costs seconds.

Rules: the process is one conversation of lines, see GroupConsumers.java; one thread reads what it says and gives each
member its own; it ends when its input ends.
"""

from __future__ import annotations

import itertools
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

from tests.kit import jvm
from tests.kit.clients.java import CLASSES
from tests.kit.clients.members import (
    HEARTBEAT_MS,
    POLL_S,
    REFRESH_MS,
    CommitRefused,
    Crowd,
    Kind,
    Member,
    Seen,
    TopicPartition,
    Wish,
)
from tests.kit.clients.model import DEADLINE_S
from tests.kit.secured.logins import java_login

PROGRAM = str(jvm.KIT / "GroupConsumers.java")
ASSIGNORS = "org.apache.kafka.clients.consumer."
HOW = {
    "range": {"partition.assignment.strategy": f"{ASSIGNORS}RangeAssignor"},
    "cooperative-sticky": {"partition.assignment.strategy": f"{ASSIGNORS}CooperativeStickyAssignor"},
    "consumer": {"group.protocol": "consumer"},
}
_numbers = itertools.count(1)


@dataclass
class Inbox:
    """The lines of the process about one consumer."""

    assigned: frozenset[TopicPartition] = frozenset()
    fresh: deque[Seen] = field(default_factory=deque)
    news: queue.SimpleQueue[list[str]] = field(default_factory=queue.SimpleQueue)


class JavaProcess:
    """One Java process against one broker; a context manager."""

    def __init__(self, version: str, address: str) -> None:
        self.version = version
        self.address = address
        self._inboxes: dict[str, Inbox] = {}
        self._tools: queue.SimpleQueue[str] = queue.SimpleQueue()
        command = jvm.java_command(version, PROGRAM, log="OFF")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._listen, name="java", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        self._tools.get(timeout=2 * DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._reader.join(DEADLINE_S)
            if self._process.poll() is None:
                self._process.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, *words = line.rstrip("\n").split("\t")
            if name in ("ready", "tool"):
                self._tools.put(words[0])
                continue
            inbox = self._inboxes[name]
            if words[0] == "assigned":
                inbox.assigned = frozenset(map(topic_partition_of, filter(None, words[1].split(","))))
            elif words[0] == "read":
                inbox.fresh.append(Seen(words[1], int(words[2]), int(words[3])))
            else:
                inbox.news.put(words)

    def send_command(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def open(self, name: str, *words: str) -> Inbox:
        """A new consumer; its messages are added to its inbox."""
        inbox = self._inboxes[name] = Inbox()
        self.send_command("open", name, *words)
        return inbox

    def groups(self, *args: str) -> str:
        """Run kafka-consumer-groups, and answer what it printed on both of its outputs."""
        return self.tool("consumer-groups", *args)

    def tool(self, name: str, *args: str) -> str:
        """Run one of Kafka's tools, and answer what it printed on both of its outputs; an exit is the last line."""
        self.send_command("tool", CLASSES[name], "--bootstrap-server", self.address, *args)
        return bytes.fromhex(self._tools.get(timeout=2 * DEADLINE_S)).decode()

    def kind(self, how: str) -> Kind:
        """A kind of member: `range`, `cooperative-sticky` or `consumer`."""
        return Kind(f"java-{how}", partial(JavaMember, java=self, **HOW[how]))


def topic_partition_of(text: str) -> TopicPartition:
    topic, partition = text.rsplit(":", 1)
    return topic, int(partition)


class JavaMember(Member):
    """A consumer in the Java process; this thread only sends commands and reads responses."""

    def __init__(self, crowd: Crowd, wish: Wish, java: JavaProcess, **more: Any) -> None:
        super().__init__(crowd, wish)
        if "group.protocol" not in more:
            more |= {"session.timeout.ms": wish.session_ms, "heartbeat.interval.ms": HEARTBEAT_MS}
        if wish.instance is not None:
            more["group.instance.id"] = wish.instance
        settings = {
            "bootstrap.servers": crowd.address,
            **java_login(crowd.address),
            "group.id": wish.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "metadata.max.age.ms": REFRESH_MS,
            "reconnect.backoff.max.ms": 500,
            "fetch.max.wait.ms": 100,
            **more,
        }
        what = ("topics", ",".join(wish.topics))
        if wish.pattern is not None:  # since 4.0 the broker of a KIP-848 group matches
            is_4 = not java.version.startswith("3.")
            what = ("re2" if "group.protocol" in more and is_4 else "pattern", wish.pattern)
        self._words = [*what, *(f"{key}={value}" for key, value in settings.items())]
        self._java = java
        self._id = f"member-{next(_numbers)}"

    @contextmanager
    def _opened(self) -> Iterator[None]:
        self._inbox = self._java.open(self._id, *self._words)
        yield
        self._java.send_command("close", self._id)
        self._expect("closed")

    def _expect(self, word: str) -> None:
        said = self._inbox.news.get(timeout=DEADLINE_S)
        if said[0] != word:
            raise RuntimeError(f"{self.name}: {' '.join(said)}")

    def _poll(self) -> list[Seen]:
        try:
            raise RuntimeError(f"{self.name}: {' '.join(self._inbox.news.get(timeout=POLL_S))}")
        except queue.Empty:
            return [self._inbox.fresh.popleft() for _ in range(len(self._inbox.fresh))]

    def _assignment(self) -> frozenset[TopicPartition]:
        return self._inbox.assigned

    def _commit(self) -> None:
        self._java.send_command("commit", self._id)
        said = self._inbox.news.get(timeout=DEADLINE_S)
        if said[0] == "refused":
            raise CommitRefused(f"{self.name}: {said[1]}")
        if said[0] != "committed":
            raise RuntimeError(f"{self.name}: {' '.join(said)}")

    def _set(self, offsets: Mapping[TopicPartition, int]) -> str | None:
        self._java.send_command(
            "set", self._id, ",".join(f"{topic}:{part}={offset}" for (topic, part), offset in offsets.items())
        )
        said = self._inbox.news.get(timeout=DEADLINE_S)
        assert said[0] in ("committed", "refused"), said
        return said[1] if said[0] == "refused" else None
