"""The dry run of a job: what it would read and write, without a JVM and without a change."""

from math import ceil
from typing import NamedTuple

from kafkalite.model import TopicPartition
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.tables import existing_table
from pyspark_kafkalite.losses import available, find_recreated, recreated_text
from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.planner import OffsetRange, Split, SplitLimits, limit_ends, plan
from pyspark_kafkalite.stream_offsets import StreamOffset


class PlannedPartition(NamedTuple):
    """What a job would read of a partition.

    Attributes:
        name: the partition.
        start, end: offsets; `end` does not belong to them.
        bytes: of the log, estimated.
        splits: tasks of the next micro-batch that read it.
    """

    name: TopicPartition
    start: int
    end: int
    bytes: int
    splits: int


class JobPlan(NamedTuple):
    """What a job would do.

    Attributes:
        partitions: sorted.
        splits: of the next micro-batch.
        batches: micro-batches until the end of the log.
        losses: sentences about offsets that the log does not have any more.
    """

    partitions: tuple[PlannedPartition, ...]
    splits: tuple[Split, ...]
    batches: int
    losses: tuple[str, ...]

    @property
    def offsets(self) -> int:
        """Number of offsets to read."""
        return sum(each.end - each.start for each in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes of the log to read, estimated."""
        return sum(each.bytes for each in self.partitions)


def plan_job(job: JobFile) -> JobPlan:
    """Plan a job from the end of its table, or from its option `starting*` if there is no table yet.

    Arguments:
        job: with a source.

    Raises:
        KafkaError: the cluster cannot be reached, or a topic does not exist. OptionError, TableError.
    """
    options = job.source_options()
    try:
        return _plan(options, _copied(job))
    finally:
        close_clients()


def _copied(job: JobFile) -> StreamOffset:
    """Return the offsets where the table ends, with the ids of their topics."""
    table = None if job.table is None else existing_table(job.table)
    last = None if table is None else table.last_commit()
    return StreamOffset({}) if last is None else StreamOffset(last.ends, last.topic_ids)


def _plan(options: SourceOptions, copied: StreamOffset) -> JobPlan:
    cluster = Cluster(options)
    described = cluster.partitions()
    found = described.partitions
    again = find_recreated(copied.topic_ids, described.topic_ids)
    table_ends = {name: end for name, end in copied.offsets.items() if name.topic not in again}
    earliest, latest = cluster.earliest(found), cluster.latest(found)
    start = dict(cluster.resolve(options.starting, found, options.unmatched_start)) if not copied.offsets else earliest
    start = {each: table_ends.get(each, start[each]) for each in found}
    ranges, losses = available(start, latest, earliest, latest)
    layouts = cluster.layouts(ranges)
    begin = {TopicPartition(each.topic, each.partition): each.start for each in ranges}
    end = {TopicPartition(each.topic, each.partition): each.end for each in ranges}
    ends = limit_ends(begin, end, layouts, options.max_offsets, options.max_bytes)
    limits = SplitLimits(options.target_split_bytes, options.min_partitions, options.max_records)
    splits = plan([OffsetRange(*each, begin[each], ends[each]) for each in ends], layouts, limits)
    partitions = []
    for each in sorted(begin):
        tasks = sum(any(one[:2] == each for one in split.ranges) for split in splits)
        size = round(layouts[each].size(begin[each], end[each]))
        partitions.append(PlannedPartition(each, begin[each], end[each], size, tasks))
    lost = (*(recreated_text(topic, copied.offsets) for topic in again), *losses)
    return JobPlan(tuple(partitions), tuple(splits), _batches(options, partitions), lost)


def _batches(options: SourceOptions, partitions: list[PlannedPartition]) -> int:
    offsets, size = sum(each.end - each.start for each in partitions), sum(each.bytes for each in partitions)
    by_offsets = ceil(offsets / options.max_offsets) if options.max_offsets else 1
    by_bytes = ceil(size / options.max_bytes) if options.max_bytes else 1
    return max(by_offsets, by_bytes) if offsets else 0
