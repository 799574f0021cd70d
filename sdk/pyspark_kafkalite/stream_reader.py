"""The reader of a stream: offsets of micro-batches, their limits and their tasks.

One object of it lives in a process of the driver as long as its query; tasks receive copies that only read.
Invariants:
1. A micro-batch has the ranges between its start and its end, also after a restart: the end of the first one contains
   its start, as `latest` would be other offsets then.
2. Without new records `latestOffset` returns its start unchanged: Spark compares the text.
3. Offsets that the log does not have any more, and a topic that was created again, are reported, never skipped.
4. The group of the option `progressGroup` has the offsets of complete micro-batches only, also at the end of a query
   with `Trigger.AvailableNow`, which asks once more whether there is anything to read.
"""

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kafkalite.model import TopicPartition
from pyspark_kafkalite.cluster import Cluster, Found
from pyspark_kafkalite.losses import find_recreated, recreated_text, report
from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.planner import Layout, OffsetRange, Trigger, limit_ends
from pyspark_kafkalite.progress.group import ProgressGroup
from pyspark_kafkalite.reading import Reading
from pyspark_kafkalite.stream_offsets import BYTES, Offsets, StreamOffset


class StreamReader(Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics in micro-batches.

    Arguments:
        options: of the source.
        schema: of the user, or that of the source.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._cluster = Cluster(options)
        self._trigger = Trigger(options.min_offsets, options.max_delay_s)
        self._target: StreamOffset | None = None
        self._reported: dict[str, Any] | None = None
        self._layouts: Mapping[TopicPartition, Layout] = {}  # of what the next micro-batch reads
        self._progress: ProgressGroup | None = None

    # offsets

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets of the option `starting*`; Spark asks only a query without a checkpoint."""
        found = self._cluster.partitions()
        options = self._options
        offsets = self._cluster.resolve(options.starting, found.partitions, options.unmatched_start)
        offsets = self._begin(offsets, found.topic_ids)
        return StreamOffset(offsets, found.topic_ids, initial=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the first limit of the options; `latestOffset` applies all of them."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends when it has read what is in the log now."""
        found = self._cluster.partitions()
        self._target = StreamOffset(self._cluster.latest(found.partitions), found.topic_ids)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; `start` = there is none.

        Arguments:
            start: the end of the last micro-batch, or the initial offset.
            limit: of Spark; `ReadAllAvailable` overrides the options.

        Raises:
            DataLossError: a partition or a topic that was read does not exist any more, or its log is shorter.
        """
        begin, found = StreamOffset.from_json(start), self._cluster.partitions()
        self._show_progress(begin.offsets)
        self._layouts = {}
        offsets = self._known(begin, found)
        latest = self._cluster.latest(found.partitions)
        self._reported = StreamOffset(latest, found.topic_ids).to_json()
        report(
            [
                f"{name}: the log ends at offset {latest[name]}, but it was read up to {offset}; it was truncated"
                for name, offset in sorted(offsets.items())
                if name in latest and latest[name] < offset
            ],
            fail=self._options.fail_on_data_loss,
        )
        if self._target is not None:
            self._target = self._retargeted(self._target, latest, found)
            latest = {each: max(self._target.offsets.get(each, 0), offsets.get(each, 0)) for each in latest}
        new = [each for each in found.partitions if each not in offsets]
        offsets |= self._cluster.earliest(new)
        latest = {each: max(end, offsets[each]) if each in new else end for each, end in latest.items()}
        ends = self._limited(offsets, latest, limit)
        sizes = (layout.size(offsets[each], ends[each]) for each, layout in self._layouts.items())
        self._reported[BYTES] = round(sum(sizes))
        if ends == begin.offsets and dict(found.topic_ids) == dict(begin.topic_ids or found.topic_ids):
            return start
        return StreamOffset(ends, found.topic_ids, begin.offsets if begin.initial else None).to_json()

    def _retargeted(self, target: StreamOffset, latest: Offsets, found: Found) -> StreamOffset:
        """Return where the query ends; a topic that was created again since then ends where its log ends now."""
        again = find_recreated(target.topic_ids, found.topic_ids)
        others = {each: end for each, end in target.offsets.items() if each.topic not in again}
        new = {each: end for each, end in latest.items() if each.topic in again}
        return StreamOffset({**others, **new}, {**target.topic_ids, **found.topic_ids})

    def _known(self, begin: StreamOffset, found: Found) -> dict[TopicPartition, int]:
        """Return the offsets of the partitions that still exist; report the others."""
        again = find_recreated(begin.topic_ids, found.topic_ids)
        losses = [recreated_text(topic, begin.offsets) for topic in again]
        offsets = {each: offset for each, offset in begin.offsets.items() if each.topic not in again}
        for each in sorted(set(offsets) - set(found.partitions)):
            losses.append(f"{each}: the partition was deleted after it was read up to offset {offsets.pop(each)}")
        report(losses, fail=self._options.fail_on_data_loss)
        return offsets

    def _limited(self, start: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        options, everything = self._options, isinstance(limit, ReadAllAvailable)
        count = sum(max(end - start[each], 0) for each, end in latest.items())
        if not everything and self._target is None and not self._trigger.begins(count, time.monotonic()):
            return {each: start[each] for each in latest}
        ranges = [OffsetRange(*each, start[each], end) for each, end in latest.items() if start[each] < end]
        self._layouts = self._cluster.layouts(ranges)
        if everything:
            return latest
        return limit_ends(start, latest, self._layouts, options.max_offsets, options.max_bytes)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the log ends, for the progress of the query."""
        return self._reported

    # micro-batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a micro-batch.

        Arguments:
            start, end: of the micro-batch.

        Raises:
            DataLossError: a range is not in the log any more.
        """
        begin, until = StreamOffset.from_json(start), StreamOffset.from_json(end)
        found = self._cluster.partitions()
        first = dict(begin.offsets if until.start is None else until.start)
        read = {each: first.get(each, 0) for each in until.offsets}
        losses = [recreated_text(topic, read) for topic in find_recreated(until.topic_ids, found.topic_ids)]
        for topic in find_recreated(begin.topic_ids, until.topic_ids):
            first = {each: offset for each, offset in first.items() if each.topic != topic}
        existing = [each for each in until.offsets if each in found.partitions]
        earliest, latest = self._cluster.earliest(existing), self._cluster.latest(existing)
        for each in until.offsets:
            first.setdefault(each, 0)  # the partition has appeared since: nothing of it was read
        ranges, lost, tasks = self._divided(first, until.offsets, earliest, latest, found.topic_ids)
        report(losses + lost, fail=self._options.fail_on_data_loss)
        layouts = self._layouts
        if not all(each[:2] in layouts for each in ranges):
            layouts = self._cluster.layouts(ranges)  # after a restart
        return tasks + self._tasks(self._splits(ranges, layouts), dict(found.topic_ids))

    # progress

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint of the query has the offsets, and `latestOffset` is called with them earlier."""

    def _show_progress(self, offsets: Offsets) -> None:
        """Commit offsets to the consumer group of the option `progressGroup`.

        Arguments:
            offsets: the start of the next micro-batch. Spark asks for its end when all earlier ones are complete.
        """
        if self._options.progress_group is None:
            return
        if self._progress is None:
            self._progress = ProgressGroup(self._options.progress_group, self._options.client)
        self._progress.commit(offsets)

    def stop(self) -> None:
        """Close the clients of the planner."""
        from pyspark_kafkalite.clients import close_clients

        close_clients()
