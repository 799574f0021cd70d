"""Counts the truncations of logs of followers in a run, and checks what they remove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kafkalite.clock import Then
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager
from tests.story.replication.observer import Observer
from tests.story.replication.world import ReplicatedWorld


@contextmanager
def observed_truncations(world: ReplicatedWorld, observer: Observer) -> Iterator[None]:
    """Count as events of the world the logs that lose records, and those that restart at an offset of their leader.

    The observer learns what a truncation removes.
    """
    truncate, restart_at = LogManager.truncate, LogManager.restart_at

    def truncating(self: LogManager, end_offsets: Mapping[Log, int], done: Then) -> None:
        for log, end_offset in end_offsets.items():
            if end_offset < log.log_end_offset:
                world.count("truncations")
                observer.truncated(log, end_offset)
        truncate(self, end_offsets, done)

    def restarting(self: LogManager, log: Log, offset: int, done: Then, *, log_start_offset: int | None = None) -> None:
        world.count("restarts of logs")
        restart_at(self, log, offset, done, log_start_offset=log_start_offset)

    LogManager.truncate = truncating  # type: ignore[method-assign]
    LogManager.restart_at = restarting  # type: ignore[method-assign]
    try:
        yield
    finally:
        LogManager.truncate = truncate  # type: ignore[method-assign]
        LogManager.restart_at = restart_at  # type: ignore[method-assign]
