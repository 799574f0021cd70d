"""Logs the topics that a client created or deleted, with its address and client id."""

import logging
from collections.abc import Iterable
from itertools import islice

from kafkalite.server.requests.call import ClusterCall

LOGGER = logging.getLogger("kafkalite.server")
NAMES_PER_LINE = 100  # a request may name 10,000 topics


def log_created(call: ClusterCall, names: Iterable[str]) -> None:
    """Log the topics that a request has created."""
    topics = call.context.image.topics
    shown = (f"{name} ({_count(len(topics[name].partitions))})" if name in topics else name for name in names)
    _log(call, "created", shown)


def _count(partitions: int) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"


def log_deleted(call: ClusterCall, names: Iterable[str]) -> None:
    """Log the topics that a request has deleted."""
    _log(call, "deleted", names)


def _log(call: ClusterCall, done: str, names: Iterable[str]) -> None:
    rest = iter(names)
    while some := list(islice(rest, NAMES_PER_LINE)):
        LOGGER.info("client %r at %s %s topics: %s", call.client_id, call.connection.peer_host, done, ", ".join(some))
