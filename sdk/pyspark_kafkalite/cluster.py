"""The questions of the planner to the cluster: topics, offsets, and where the bytes of partitions are."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from kafkalite_sdk.admin import Outcomes, TopicDescription

from kafkalite.errors import BrokerResponseError, KafkaError, UnsupportedVersionError, error_for
from kafkalite.model import ZERO_UUID, TopicPartition, uuid_text
from pyspark_kafkalite import clients
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.options import EARLIEST, LATEST, Position, SourceOptions, compiled_pattern
from pyspark_kafkalite.planner import Layout, OffsetRange
from pyspark_kafkalite.stream_offsets import Offsets, partitions_text

T = TypeVar("T")
LOGGER = logging.getLogger("pyspark_kafkalite")

NO_ID = uuid_text(ZERO_UUID)


class Found(NamedTuple):
    """The partitions that are read.

    Attributes:
        partitions: sorted.
        topic_ids: by topic; without those of a broker that has no ids of topics (Apache Kafka before 2.8).
    """

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]


class Cluster:
    """The cluster of a source.

    Arguments:
        options: of the source.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def _repeated(self, ask: Callable[[], T]) -> T:
        """Return what a function returns; repeat it after errors that may pass."""
        for left in range(self._options.retries, -1, -1):
            try:
                return ask()
            except KafkaError as error:
                if not left or not error.retriable:
                    raise
                LOGGER.warning("the request is repeated, at most %d times more: %s", left, error)
                time.sleep(self._options.retry_interval_s)
        raise AssertionError("unreachable")

    # topics

    def partitions(self) -> Found:
        """Return the partitions that the options select.

        Raises:
            KafkaError: a topic does not exist, or cannot be described. OptionError: a partition does not exist.
        """
        return self._repeated(self._partitions)

    def _partitions(self) -> Found:
        topics = self._options.topics
        if topics.assigned is not None:
            described = self._described({each.topic for each in topics.assigned})
            existing = {TopicPartition(each.name, one.partition) for each in described for one in each.partitions}
            missing = set(topics.assigned) - existing
            if missing:
                raise OptionError("assign", f"{partitions_text(missing)} do not exist")
            return Found(topics.assigned, _ids(described))
        if topics.subscribed is not None:
            described = self._described(topics.subscribed)
        else:
            pattern = compiled_pattern(topics.pattern or "")
            listed = clients.admin(self._options.client).topics.list(internal=False)
            described = [each for each in listed if pattern.search(each.name)]  # a part of the name, as in Java
        partitions = (TopicPartition(each.name, one.partition) for each in described for one in each.partitions)
        return Found(tuple(sorted(partitions)), _ids(described))

    def _described(self, names: Iterable[str]) -> list[TopicDescription]:
        outcomes: Outcomes[str, TopicDescription] = clients.admin(self._options.client).topics.describe(*sorted(names))
        for name, error in outcomes.errors.items():
            if isinstance(error, BrokerResponseError):
                raise error_for(error.code, f"topic {name}: {error.code.message}") from error
        return list(outcomes.check().values())

    # offsets

    def offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets at times; -1 = no record is that late.

        Arguments:
            times: for each partition EARLIEST, LATEST or ms since 1970.
        """
        if not times:
            return {}

        def ask() -> dict[TopicPartition, int]:
            partitions = clients.admin(self._options.client).partitions
            found = partitions.offsets(times, isolation_level=self._options.isolation).check()
            return {each: listed.offset for each, listed in found.items()}

        return self._repeated(ask)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks, or the last stable offsets with `read_committed`."""
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def resolve(self, position: Position, partitions: Iterable[TopicPartition], unmatched: int | None) -> Offsets:
        """Return the offsets of a position.

        Arguments:
            position: where to begin or to end.
            partitions: all that are read.
            unmatched: LATEST = the end of a partition without a record at that time or later; None = an error.

        Raises:
            OptionError: the position names other partitions, or no record is that late.
        """
        wanted = tuple(partitions)
        if position.everywhere is not None:
            return self.offsets(dict.fromkeys(wanted, position.everywhere))
        if position.offsets is not None:
            _check_named(position.option, position.offsets, wanted)
            open_ended = {each: offset for each, offset in position.offsets.items() if offset < 0}
            return {**position.offsets, **self.offsets(open_ended)}
        times = position.timestamps_ms
        if times is None:
            times = dict.fromkeys(wanted, position.timestamp_ms or 0)
        else:
            _check_named(position.option, times, wanted)
        found = self.offsets(times)
        late = [each for each, offset in found.items() if offset < 0]
        if late and unmatched is None:
            raise OptionError(
                position.option,
                f"{partitions_text(late)} have no record at that time or later; "
                "startingOffsetsByTimestampStrategy latest begins at their end",
            )
        return {**found, **self.latest(late)}

    # sizes

    def layouts(self, ranges: Iterable[OffsetRange]) -> dict[TopicPartition, Layout]:
        """Return where the bytes of partitions are: by segment on kafkalite, by partition on Apache Kafka.

        Arguments:
            ranges: of different partitions.
        """
        wanted = {TopicPartition(each.topic, each.partition): each for each in ranges}
        if not wanted:
            return {}
        partitions = clients.admin(self._options.client).partitions
        starts = {each: max(found.start, 0) for each, found in wanted.items()}
        outcomes = self._repeated(lambda: partitions.segments(starts))
        if any(isinstance(error, UnsupportedVersionError) for error in outcomes.errors.values()):
            return self._by_partition(wanted)
        found = {}
        for each, segments in outcomes.check().items():
            pairs = [(one.base_offset, one.size) for one in segments.segments]
            found[each] = layout_of(pairs, segments.log_end_offset)
        return found

    def _by_partition(self, wanted: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, Layout]:
        sizes: dict[TopicPartition, int] = {}
        found = clients.admin(self._options.client).cluster.log_directories(partitions=tuple(wanted))
        for directories in found.check().values():
            for directory in directories.values():
                for each, replica in directory.replicas.items():
                    if not replica.future:
                        sizes[each] = max(sizes.get(each, 0), replica.size)
        earliest, latest = self.earliest(wanted), self.latest(wanted)
        return {each: layout_of([(earliest[each], sizes.get(each, 0))], latest[each]) for each in wanted}


def _ids(described: Iterable[TopicDescription]) -> dict[str, str]:
    return {each.name: each.topic_id for each in described if each.topic_id != NO_ID}


def layout_of(segments: Iterable[tuple[int, int]], end: int) -> Layout:
    """Return the layout of segments.

    Arguments:
        segments: base offset and size, ascending.
        end: of the last one. An empty segment there is left out.
    """
    found = [each for each in segments if each[0] < end]
    return Layout([*(base for base, _ in found), end], [size for _, size in found]) if found else Layout()


def _check_named(option: str, named: Iterable[TopicPartition], wanted: Iterable[TopicPartition]) -> None:
    """Raise OptionError unless an option names exactly the partitions that are read."""
    missing, extra = set(wanted) - set(named), set(named) - set(wanted)
    if missing:
        raise OptionError(option, f"{partitions_text(missing)} are missing; use -1 for latest, -2 for earliest")
    if extra:
        raise OptionError(option, f"{partitions_text(extra)} are not read by this source")
