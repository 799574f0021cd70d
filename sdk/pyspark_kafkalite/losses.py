"""Finds the offsets of a planned read that the log does not have any more.

Pure.
"""

import logging
from collections.abc import Mapping

from pyspark_kafkalite.errors import DataLossError
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.stream_offsets import Offsets

LOGGER = logging.getLogger("pyspark_kafkalite")

HINT = (
    "to continue with what is left, set failOnDataLoss to false, or start an ingest with a new checkpoint, "
    "resume_from_table=True and allow_gaps=True"
)


def available(start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets) -> tuple[list[OffsetRange], list[str]]:
    """Return the ranges to read, and a sentence for each that is lost.

    Arguments:
        start, end: offsets of each partition.
        earliest, latest: the log start and log end offsets; a partition that is missing was deleted.
    """
    ranges, losses = [], []
    for name in sorted(end):
        first, last = start[name], end[name]
        if name not in earliest or name not in latest:
            if first < last:
                losses.append(f"{name}: offsets {first} to {last - 1} are lost, as the partition was deleted")
            continue
        if first > latest[name] or last > latest[name]:
            begin = max(first, latest[name])
            losses.append(
                f"{name}: the log ends at offset {latest[name]}, but {max(begin, last)} was expected; "
                "it was truncated, or the topic was created again"
            )
        elif first < earliest[name] and first < last:
            lost = min(earliest[name], last)
            losses.append(f"{name}: offsets {first} to {lost - 1} were deleted by retention before they were read")
        begin, stop = max(first, earliest[name]), min(last, latest[name])
        if begin < stop:
            ranges.append(OffsetRange(*name, begin, stop))
    return ranges, losses


def find_recreated(known: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return the topics that have another id than before: they were deleted and created again."""
    return sorted(topic for topic, topic_id in known.items() if found.get(topic, topic_id) != topic_id)


def recreated_text(topic: str, offsets: Offsets) -> str:
    """Return the sentence about a topic that was created again.

    Arguments:
        topic: its name.
        offsets: up to which partitions were read; those of other topics are left out.
    """
    of_topic = sorted((name.partition, offset) for name, offset in offsets.items() if name.topic == topic)
    read = ", ".join(f"partition {partition} up to offset {offset}" for partition, offset in of_topic)
    return f"topic {topic} was deleted and created again; of the former topic, records were read: {read}"


def report(losses: list[str], *, fail: bool) -> None:
    """Report losses.

    Arguments:
        losses: sentences.
        fail: raise an error, else log warnings.

    Raises:
        DataLossError: names all losses.
    """
    if losses and fail:
        raise DataLossError("; ".join([*losses, HINT]))
    for each in losses:
        LOGGER.warning("%s", each)
