"""How a partition's directory becomes a Log again. Runs as a job: it touches nothing but the directory it is given.

Laws:
1. After a clean end only checkpoints and file ends are read; the batches are believed.
2. Otherwise every batch from the recovery point's segment on is checked; the log ends before the first bad one.
3. Nothing below the recovery point is cut; an index that is missing or insane is built again from the batches.
4. What was dropped is told, never silent.

Sources: LogLoader.java, LogSegment.recover.
"""

import logging
import os
from dataclasses import dataclass, field

from kafkalite._speedups.file import Disk
from kafkalite._speedups.index import InsaneIndex
from kafkalite._speedups.logscan import Scanned, scan
from kafkalite._speedups.producers import ProducerState
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names, swap
from kafkalite.storage.checkpoints import BadCheckpoint
from kafkalite.storage.epochs import LeaderEpochCache
from kafkalite.storage.log import Log
from kafkalite.storage.segment import Segment
from kafkalite.storage.snapshots import BadSnapshot, read_snapshot, snapshot_offsets

WORK_SUFFIXES = (names.DELETED, names.CLEANED, ".tmp")
SEGMENT_SUFFIXES = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
logger = logging.getLogger(__name__)


class RecoveryError(ValueError):
    """The directory cannot be taken as a log; the text names the file and the reason."""


@dataclass(slots=True)
class Place:
    """One partition's directory and what the checkpoints of its log directory say of it."""

    disk: Disk
    directory: str
    topic: str
    partition: int
    config: TopicConfig
    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0


@dataclass(slots=True)
class Progress:
    """What recovery found, for the log line and the tests."""

    batches_checked: int = 0
    bytes_dropped: int = 0
    segments_dropped: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)


def recover(place: Place) -> tuple[Log, Progress]:
    """Open the log of a partition. Raises RecoveryError, OSError."""
    progress = Progress()
    producers = ProducerState()
    segments = _segments(place)
    if not segments:  # one is made with the directory: this was never finished, or its files are gone
        raise RecoveryError(f"{place.directory}: has no segment")
    read_from = max((s.base_offset for s in segments if s.base_offset <= place.recovery_point), default=0)
    producers_from = _load_snapshot(place, producers, read_from)
    epochs = _epochs(place, segments, progress)
    kept = _check(place, segments, producers, producers_from, progress)
    log = Log(
        place.disk, place.directory, place.topic, place.partition, place.config, kept, epochs,
        place.log_start_offset, place.recovery_point,
    )  # fmt: skip
    _settle(log, producers, progress)
    return log, progress


def _segments(place: Place) -> list[Segment]:
    """The segments in the directory, after removing what unfinished work left behind."""
    disk, directory = place.disk, place.directory
    try:
        swap.finish(disk, directory, place.config)
    except swap.SwapError as error:
        raise RecoveryError(str(error)) from error
    bases: list[tuple[int, str]] = []
    others: list[tuple[int, str]] = []
    for name in disk.list(directory):
        if name.endswith(WORK_SUFFIXES):
            disk.remove(os.path.join(directory, name))
        elif (found := names.parse_file_name(name)) is not None:
            (bases if found[1] == names.LOG else others).append(found)
    known = {base for base, _ in bases}
    for base, suffix in others:
        if suffix in SEGMENT_SUFFIXES and base not in known:
            disk.remove(os.path.join(directory, names.file_name(base, suffix)))
    return [_found(Segment(base, directory, disk, place.config)) for base in sorted(known)]


def _found(segment: Segment) -> Segment:
    segment.size = segment.disk.size(segment.path(names.LOG))
    return segment


def _epochs(place: Place, segments: list[Segment], progress: Progress) -> LeaderEpochCache:
    path = os.path.join(place.directory, names.LEADER_EPOCH_CHECKPOINT)
    try:
        return LeaderEpochCache.load(place.disk, path)
    except BadCheckpoint as error:
        logger.warning("%s; the epochs are read from the batches", error)
    for segment in segments:
        progress.epochs += _rebuild(segment, place.config.index_interval_bytes).epochs
        segment.unload()
    return LeaderEpochCache(place.disk, path)


def _check(
    place: Place, segments: list[Segment], producers: ProducerState, producers_from: int, progress: Progress
) -> list[Segment]:
    """Make every segment usable; answer those that stay."""
    kept: list[Segment] = []
    next_offset = -1
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        segment.closed = not last
        end = None if last else segments[index + 1].base_offset
        if not place.clean and (end is None or end > place.recovery_point):
            if segment.base_offset < next_offset:
                raise RecoveryError(f"{segment.path(names.LOG)}: the segment before it ends at {next_offset}")
            whole = _scan(place, segment, producers, producers_from, progress)
            next_offset = segment.next_offset()
        else:
            whole = _believe(segment, last) or _scan(place, segment, producers, producers_from, progress, synced=True)
        kept.append(segment)
        if not whole:
            _drop(segments[index + 1 :], progress)
            segment.closed = False
            break
        if not last:
            segment.unload()
    return kept


def _believe(segment: Segment, last: bool) -> bool:
    """Take a segment by its indexes; False when they or the end of the file do not allow it."""
    try:
        if not last:
            segment.max_timestamp, segment.max_timestamp_offset = _last_time(segment)
            return segment.disk.exists(segment.path(names.INDEX))
        segment.file = segment.disk.open(segment.path(names.LOG))
        segment.read_indexes(segment.size)
    except (InsaneIndex, FileNotFoundError):
        segment.unload()
        return False
    segment.resume()
    begin = segment.indexes[0].look_up(segment.base_offset + 2**31)
    tail = segment.batches(begin)
    return (tail[-1][0] + tail[-1][1] if tail else begin) == segment.size


def _last_time(segment: Segment) -> tuple[int, int]:
    """The last entry of a time index file. Raises InsaneIndex, OSError."""
    file = segment.disk.open(segment.path(names.TIME_INDEX), read_only=True)
    entry = file.pread(12, file.size() - 12) if file.size() >= 12 else b""
    if file.size() % 12 or (not entry and segment.size):
        raise InsaneIndex("no whole entries")
    if not entry:
        return -1, segment.base_offset
    timestamp = int.from_bytes(entry[:8], "big", signed=True)
    return timestamp, segment.base_offset + int.from_bytes(entry[8:], "big")


def _rebuild(
    segment: Segment, interval: int, producers: ProducerState | None = None, producers_from: int = 0
) -> Scanned:
    """Check all batches of a segment and index them anew."""
    segment.file = segment.disk.open(segment.path(names.LOG))
    size = segment.file.size()
    segment.empty_indexes()
    return scan(segment, 0, size, interval, producers, producers_from)


def _scan(
    place: Place,
    segment: Segment,
    producers: ProducerState,
    producers_from: int,
    progress: Progress,
    *,
    synced: bool = False,
) -> bool:
    """Check a segment and cut off what is bad; tell whether it was whole. RecoveryError where all was `synced`."""
    size = segment.disk.size(segment.path(names.LOG))
    found = _rebuild(segment, place.config.index_interval_bytes, producers, producers_from)
    progress.batches_checked += found.batches
    progress.epochs += found.epochs
    if not found.whole and synced:
        raise RecoveryError(f"{segment.path(names.LOG)}: damaged at byte {found.end}, which was synced; nothing is cut")
    if not found.whole:
        progress.bytes_dropped += size - found.end
        segment.opened.truncate(found.end)
    if found.whole and segment.closed:
        segment.finish()
    else:
        segment.write_indexes()
    return found.whole


def _drop(segments: list[Segment], progress: Progress) -> None:
    for segment in segments:
        progress.segments_dropped += 1
        progress.bytes_dropped += segment.size
        for path in segment.files():
            segment.disk.remove(path)


def _load_snapshot(place: Place, producers: ProducerState, read_from: int) -> int:
    """Take the newest snapshot that can be believed; answer from which offset batches are to be noted on top.

    After a crash batches are read from `read_from` on: an older snapshot would leave out what came in between, and a
    producer of that time would be refused for its next sequence. One that is not known may begin at any.
    """
    newest = 0
    for offset in reversed(snapshot_offsets(place.disk, place.directory)):
        path = os.path.join(place.directory, names.file_name(offset, names.SNAPSHOT))
        try:
            if newest == 0 and (place.clean or read_from <= offset <= place.recovery_point):
                for producer in read_snapshot(place.disk, path):
                    producers.put(producer)
                newest = offset
                continue
        except BadSnapshot as error:
            logger.warning("%s; the producers are read from the batches", error)
        place.disk.remove(path)
    return newest


def _settle(log: Log, producers: ProducerState, progress: Progress) -> None:
    """Bring epochs and producers to the ends that were found."""
    for epoch, offset in progress.epochs:
        if epoch > log.epochs.latest:
            log.epochs.assign(epoch, offset)
    log.epochs.truncate_from_end(log.log_end_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    log.set_epoch(log.epochs.latest)
    producers.truncate(log.log_end_offset)
    log.producers = producers
    if progress.bytes_dropped:
        logger.warning(
            "%s-%d: dropped %d bytes and %d segments behind offset %d",
            log.topic, log.partition, progress.bytes_dropped, progress.segments_dropped, log.log_end_offset,
        )  # fmt: skip
