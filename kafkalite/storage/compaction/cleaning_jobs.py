"""The jobs of a cleaner thread; they use only the contents of their plan: closed segments, and files that they create.

1. The dirty segments were flushed before the first job begins (`cleaning_run`).
2. The files of a job are complete and synced when it returns. A failed job removes its files.

Sources: LogCleaner.scala (Cleaner).
"""

from typing import NamedTuple

from kafkalite._speedups.compaction.compactor import Worker
from kafkalite._speedups.compaction.input import Transactions, UncleanableSegmentError
from kafkalite._speedups.compaction.tombstone_retention import RetentionRules
from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names
from kafkalite.storage.compaction.log_to_clean import groups
from kafkalite.storage.log import segment_swap
from kafkalite.storage.log.flush_job import sync_and_close
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.log.transaction_index import AbortedTransaction, BadTransactionIndex, check, pack, parse


class CleaningPlan(NamedTuple):
    """The input of the jobs of one cleaning.

    `segments`: the closed ones below `upper_offset`. `transaction_indexes`: (base offset, path) of every segment of the
    log that may have one. `last_records`: see `RetentionRules`.
    """

    disk: Disk
    directory: str
    config: TopicConfig
    segments: tuple[Segment, ...]
    first_dirty: int
    upper_offset: int
    now_ms: int
    transaction_indexes: tuple[tuple[int, str], ...]
    last_records: tuple[tuple[int, int, int], ...]


class OffsetMapResult(NamedTuple):
    """Result of the first pass: the offset up to which the map is complete, and the groups of segments to rewrite."""

    end_offset: int
    whole: bool
    groups: list[list[Segment]]
    aborted: list[AbortedTransaction]


def build_map(worker: Worker, plan: CleaningPlan) -> OffsetMapResult:
    """Job: map each key to its last offset.

    Raises OSError, UncleanableSegmentError, CleaningAbortedError, MemoryError.
    """
    aborted = _aborted(plan)
    ends = [*(segment.base_offset for segment in plan.segments[1:]), plan.upper_offset]
    dirty = [segment for segment, end in zip(plan.segments, ends, strict=True) if end > plan.first_dirty]
    worker.offsets.clear(plan.upper_offset - plan.first_dirty)
    transactions = Transactions([each for each in aborted if each.last_offset >= dirty[0].base_offset])
    whole = all(_map_segment(worker, plan, segment, transactions) for segment in dirty)
    end_offset = plan.upper_offset if whole else max(worker.offsets.latest_offset + 1, plan.first_dirty)
    worker.offsets.latest_offset = end_offset - 1
    cleaned = [segment for segment in plan.segments if segment.base_offset < end_offset]
    grouped = groups(cleaned, plan.upper_offset, plan.config) if end_offset > plan.first_dirty else []
    return OffsetMapResult(end_offset, whole, grouped, aborted)


def _aborted(plan: CleaningPlan) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for base_offset, path in plan.transaction_indexes:
        try:
            data = plan.disk.read_bytes(path)
        except FileNotFoundError:
            continue
        try:
            entries = parse(data)  # the active segment's may end within an entry that is being written
            check(pack(entries), base_offset, path)
        except BadTransactionIndex as error:
            raise UncleanableSegmentError(str(error)) from error
        found += (entry for entry in entries if entry.first_offset < plan.upper_offset)
    return [entry for entry in found if entry.last_offset >= plan.segments[0].base_offset]


def _map_segment(worker: Worker, plan: CleaningPlan, segment: Segment, transactions: Transactions) -> bool:
    file = plan.disk.open(segment.path(names.LOG), read_only=True)
    try:
        return worker.map_segment(file, 0, segment.size, segment.base_offset, plan.first_dirty, transactions)
    finally:
        file.close()


def rules_of(plan: CleaningPlan) -> RetentionRules:
    """Return the rules for records that are kept besides the last record of each key."""
    return RetentionRules(plan.now_ms, plan.config.delete_retention_ms, plan.upper_offset, plan.last_records)


def clean_group(
    worker: Worker, plan: CleaningPlan, group: list[Segment], rules: RetentionRules, transactions: Transactions
) -> Segment:
    """Job: create the segment that replaces a group, complete and synced as `.cleaned`.

    Arguments:
        worker: its buffers, and whether the cleaning is aborted.
        plan: of the cleaning.
        group: adjacent segments, oldest first.
        rules: decide which records are kept.
        transactions: open and aborted ones at the start of the group; advanced by it.

    Raises OSError, UncleanableSegmentError, CleaningAbortedError, MemoryError.
    """
    target = Segment(group[0].base_offset, plan.directory, plan.disk, plan.config)
    target.suffix = names.CLEANED
    segment_swap.remove(target)
    try:
        target.create()
        for segment in group:
            _clean_segment(worker, plan, segment, target, rules, transactions, last=segment is group[-1])
        _seal(plan, target, transactions.take_kept())
    except OverflowError as error:
        segment_swap.remove(target)
        raise UncleanableSegmentError(f"{target.path(names.LOG)}: {error}") from error
    except BaseException:
        segment_swap.remove(target)
        raise
    return target


def _clean_segment(
    worker: Worker,
    plan: CleaningPlan,
    segment: Segment,
    target: Segment,
    rules: RetentionRules,
    transactions: Transactions,
    *,
    last: bool,
) -> None:
    file = plan.disk.open(segment.path(names.LOG), read_only=True)
    try:
        interval = plan.config.index_interval_bytes
        worker.clean_segment(file, segment.size, segment.base_offset, target, rules, transactions, interval, last)
    finally:
        file.close()


def _seal(plan: CleaningPlan, target: Segment, kept: list[tuple[int, int, int, int]]) -> None:
    """Write the indexes, and bring all files and their names to the disk."""
    target.closed = True
    target.finish()
    if kept:
        target.transactions.append(AbortedTransaction(*entry) for entry in kept)
    for path in target.files():
        sync_and_close(plan.disk.open(path))
    plan.disk.sync_dir(plan.directory)
