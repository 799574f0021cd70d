"""What ZooKeeper has of a group, read by kazoo: a client that is not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupNodes:
    """The nodes of a group.

    Attributes:
        consumers: the text of each registration, by consumer id.
        owners: the stream id that owns each partition.
        sessions: the session of each registration and each owner node, by path.
        offsets: the text of each offset node.
    """

    consumers: dict[str, str]
    owners: dict[TopicPartition, str]
    sessions: dict[str, int]
    offsets: dict[TopicPartition, str]

    def same_members(self, other: GroupNodes) -> bool:
        """Whether registrations, owners and their sessions are equal; offsets may differ."""
        return (self.consumers, self.owners, self.sessions) == (other.consumers, other.owners, other.sessions)

    def registrations(self) -> dict[str, dict[str, Any]]:
        """The registrations as JSON, without the time."""
        parsed = {each: json.loads(text) for each, text in self.consumers.items()}
        return {
            each: {key: value for key, value in fields.items() if key != "timestamp"} for each, fields in parsed.items()
        }


class Tree:
    """A connection to ZooKeeper."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        found = {}
        for topic in self._children("/brokers/topics"):
            text = self._get(f"/brokers/topics/{topic}")
            if text is not None:
                found[topic] = len(json.loads(text[0])["partitions"])
        return found

    def group(self, group: str) -> GroupNodes:
        """The nodes of a group; those that vanish meanwhile are left out."""
        root = f"/consumers/{group}"
        sessions: dict[str, int] = {}
        consumers = {}
        for consumer in self._children(f"{root}/ids"):
            if (node := self._get(f"{root}/ids/{consumer}")) is not None:
                consumers[consumer], sessions[f"{root}/ids/{consumer}"] = node
        owners = self._partitions(f"{root}/owners", sessions)
        return GroupNodes(consumers, owners, sessions, self._partitions(f"{root}/offsets", {}))

    def set_offset(self, group: str, topic: str, partition: int, text: str) -> None:
        """Write an offset node."""
        path = f"/consumers/{group}/offsets/{topic}/{partition}"
        self.client.ensure_path(path)
        self.client.set(path, text.encode())

    def _partitions(self, root: str, sessions: dict[str, int]) -> dict[TopicPartition, str]:
        found = {}
        for topic in self._children(root):
            for partition in self._children(f"{root}/{topic}"):
                path = f"{root}/{topic}/{partition}"
                if (node := self._get(path)) is not None:
                    found[topic, int(partition)], sessions[path] = node
        return found

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def _get(self, path: str) -> tuple[str, int] | None:
        try:
            data, stat = self.client.get(path)
        except NoNodeError:
            return None
        return (data or b"").decode(), stat.ephemeralOwner


@contextmanager
def connected_tree(servers: str) -> Iterator[Tree]:
    """A connection to these servers, closed after the block."""
    client = KazooClient(servers, timeout=4.0)
    client.start(timeout=30)
    try:
        yield Tree(client)
    finally:
        client.stop()
        client.close()
