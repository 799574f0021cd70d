"""Puts an error code into a response of a scripted broker, where Kafka has it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.protocol.schema import Response, Struct
from tests.kit.scripted_cluster import ScriptedCluster

Partition = tuple[str, int]


def set_errors(response: Response, code: int, only: Collection[Partition] | None, cluster: ScriptedCluster) -> None:
    """Set the error code of each element of a response, or of the response if it has none.

    Arguments:
        response: changed in place.
        code: the error code.
        only: the topics and partitions that get it; None = all.
        cluster: for the names of topic ids.
    """
    if isinstance(response, MetadataResponse):
        for topic in response.topics:
            if only is None or any(topic.name == name for name, _ in only):
                topic.error_code = code
                topic.partitions = []
        return
    elements = list(_elements(response, None, cluster))
    for element, partition in elements:
        if only is None or partition in only:
            element.error_code = code
            for name in ("base_offset", "offset", "committed_offset"):
                if hasattr(element, name):
                    setattr(element, name, -1)
            if hasattr(element, "records"):
                element.records = b""
    if not elements:
        response.error_code = code  # type: ignore[attr-defined]


def _elements(struct: Any, topic: str | None, cluster: ScriptedCluster) -> Iterator[tuple[Any, Partition]]:
    """The innermost structs below `struct` that have an error code, with their partitions."""
    topic = _topic_of(struct, cluster) or topic
    for each in type(struct).__fields__:
        value = getattr(struct, each.name)
        for inner in value if isinstance(value, list) else ():
            if not isinstance(inner, Struct):
                continue
            below = list(_elements(inner, topic, cluster))
            yield from below
            if not below and hasattr(inner, "error_code"):
                yield inner, (topic or "", _index_of(inner))


def _topic_of(struct: Any, cluster: ScriptedCluster) -> str | None:
    for name in ("name", "topic"):
        if isinstance(found := getattr(struct, name, None), str) and found:
            return found
    return cluster.name_of(getattr(struct, "topic_id", b""))


def _index_of(struct: Any) -> int:
    for name in ("index", "partition_index", "partition"):
        if isinstance(found := getattr(struct, name, None), int):
            return found
    return -1
