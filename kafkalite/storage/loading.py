"""One log directory at start: which partitions are there, and their recovery in parallel.

Laws:
1. Whether the last end was clean is read once, and its mark removed, before any log is opened.
2. A checkpoint that does not read means an unclean start, with a log line; it never stops the broker.
3. Directories with foreign names are left alone, with a log line; `-delete` ones are finished.
"""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kafkalite._speedups.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import checkpoints, names
from kafkalite.storage.log import Log
from kafkalite.storage.recovery import Place, Progress, RecoveryError, recover

Outcome = tuple[Log, Progress, bytes | None] | OSError | RecoveryError | checkpoints.BadCheckpoint
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Loaded:
    """What was found in one log directory; `error` ended it early."""

    path: str
    clean: bool
    logs: list[Log] = field(default_factory=list)
    topic_ids: dict[str, bytes | None] = field(default_factory=dict)
    to_delete: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    bytes_dropped: int = 0
    error: OSError | None = None


def load_directory(disk: Disk, path: str, config_of: Callable[[str], TopicConfig], threads: int) -> Loaded:
    """Recover every partition in a log directory; blocks. Raises nothing but bugs: see `Loaded.error`."""
    try:
        loaded = Loaded(path, checkpoints.take_clean_shutdown(disk, path))
        places = _places(disk, loaded, config_of)
    except OSError as error:
        return Loaded(path, False, error=error)
    with ThreadPoolExecutor(threads, thread_name_prefix="recovery") as pool:
        for place, outcome in zip(places, pool.map(_try_recover, places), strict=True):
            _take(loaded, place, outcome)
    return loaded


def _offsets(disk: Disk, loaded: Loaded, name: str) -> checkpoints.Offsets:
    try:
        return checkpoints.read_offsets(disk, os.path.join(loaded.path, name))
    except checkpoints.BadCheckpoint as error:
        logger.warning("%s; every batch is checked", error)
        loaded.clean = False
        return {}


def _places(disk: Disk, loaded: Loaded, config_of: Callable[[str], TopicConfig]) -> list[Place]:
    points = _offsets(disk, loaded, checkpoints.RECOVERY_POINTS)
    starts = _offsets(disk, loaded, checkpoints.LOG_STARTS)
    places = []
    for name in disk.list(loaded.path):
        directory = os.path.join(loaded.path, name)
        if not disk.is_dir(directory):
            continue
        if names.is_deleted_directory(name):
            loaded.to_delete.append(directory)
        elif (found := names.parse_directory_name(name)) is None:
            logger.warning("%s: not a partition's directory, left alone", directory)
        else:
            topic, partition = found
            places.append(
                Place(
                    disk, directory, topic, partition, config_of(topic), loaded.clean and found in points,
                    points.get(found, 0), starts.get(found, 0),
                )
            )  # fmt: skip
    return places


def _try_recover(place: Place) -> Outcome:
    try:
        topic_id = checkpoints.read_topic_id(place.disk, place.directory)
        return *recover(place), topic_id
    except (OSError, RecoveryError, checkpoints.BadCheckpoint) as error:
        return error


def _take(loaded: Loaded, place: Place, outcome: Outcome) -> None:
    if isinstance(outcome, OSError):
        loaded.error = loaded.error or outcome
    elif isinstance(outcome, ValueError):
        logger.error("%s-%d is offline: %s", place.topic, place.partition, outcome)
        loaded.refused.append(place.directory)
    else:
        log, progress, topic_id = outcome
        loaded.logs.append(log)
        loaded.topic_ids[place.directory] = topic_id
        loaded.bytes_dropped += progress.bytes_dropped
