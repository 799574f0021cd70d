"""Lines of committed offsets: JSON, CSV of kafka-consumer-groups, and the lines of Kafka's ExportZkOffsets.

CSV is topic,partition,offset for one group, the group before them for several. JSON lines carry the metadata, too. The
third format is the path of a node of ZooKeeper and its content: /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET. What
is read may be of any of them: an object begins with a brace, a path with a slash, which no name of a topic has.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafkalite_sdk.admin import Committed

from kafkalite.cli.client_options import shorten_errors
from kafkalite.cli.failure import fail
from kafkalite.cli.positions import OFFSET_MAX
from kafkalite.model import TopicPartition

PARTITION_MAX = 2**31 - 1
FIELDS = ("group", "topic", "partition", "offset")
_WHOLE = re.compile(r"\s*(-?[0-9]{1,19})\s*", re.ASCII)
_ZNODE = re.compile(r"/consumers/([^/]+)/offsets/([^/:]+)/([^/:]+):(.*)", re.DOTALL)

Wanted = dict[str, dict[TopicPartition, Committed]]


class OffsetLine(NamedTuple):
    """One committed offset; the group is None if the line does not contain it."""

    group: str | None
    topic_partition: TopicPartition
    committed: Committed


def json_lines(found: Mapping[str, Mapping[TopicPartition, Committed]]) -> Iterator[str]:
    """An object per offset."""
    for group, offsets_of in found.items():
        for topic_partition, each in offsets_of.items():
            fields = dict(zip(FIELDS, (group, *topic_partition, each.offset), strict=True))
            yield json.dumps({**fields, "metadata": each.metadata}, ensure_ascii=False)


def csv_lines(found: Mapping[str, Mapping[TopicPartition, Committed]]) -> Iterator[str]:
    """A row per offset; the first column is the group if there are several."""
    for group, offsets_of in found.items():
        for topic_partition, each in offsets_of.items():
            text = io.StringIO()
            row = (*topic_partition, each.offset)
            csv.writer(text, lineterminator="").writerow(row if len(found) == 1 else (group, *row))
            yield text.getvalue()


def znode_lines(found: Mapping[str, Mapping[TopicPartition, Committed]]) -> Iterator[str]:
    """A line of ExportZkOffsets per offset. Ends the command for a group that ZooKeeper cannot have."""
    from kafkalite.coordination.znodes.consumers import check_group, offset_path  # other formats need no tree

    for group, offsets_of in found.items():
        try:
            check_group(group)
        except ValueError as error:
            fail(f"{error}; so this group has no lines of ExportZkOffsets")
        for (topic, partition), each in offsets_of.items():
            yield f"{offset_path(group, topic, partition)}:{each.offset}"


def read_lines(source: Iterable[str]) -> Iterator[OffsetLine]:
    """Parse lines; ends the command after the last one if some are invalid: their numbers, with the reasons."""
    wrong: list[str] = []
    try:
        for number, text in enumerate(source, 1):
            if text.strip():
                try:
                    yield read_line(text)
                except (ValueError, RecursionError, csv.Error) as error:
                    wrong.append(f"line {number} is not a committed offset: {error}")
    except UnicodeDecodeError as error:  # the buffer decodes the text: the line number is unknown
        fail(f"the input is not UTF-8 text: {error.reason}")
    if wrong:
        fail(shorten_errors(wrong))


def read_line(text: str) -> OffsetLine:
    """Parse one line. Raises ValueError, RecursionError, csv.Error."""
    begin = text.lstrip()[:1]
    if begin == "{":
        return json_line(text)
    return znode_line(text.strip()) if begin == "/" else csv_line(text)


def json_line(text: str) -> OffsetLine:
    """Raises ValueError."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error.msg} at character {error.pos + 1}") from error
    if missing := {"topic", "partition", "offset"} - fields.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    group, topic, partition, offset = (fields.get(name) for name in FIELDS)
    return validate_line(group, topic, partition, offset, fields.get("metadata", ""))


def csv_line(text: str) -> OffsetLine:
    """Raises ValueError."""
    (cells,) = csv.reader([text])
    if not 3 <= len(cells) <= 4:
        raise ValueError(
            f"it has {len(cells)} column(s), expected topic,partition,offset or group,topic,partition,offset"
        )
    *group, topic, partition, offset = cells
    return validate_line(group[0] if group else None, topic, number(partition), number(offset), "")


def znode_line(text: str) -> OffsetLine:
    """Raises ValueError."""
    from kafkalite.coordination.znodes.consumers import is_broker_partition

    found = _ZNODE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:100]!r}, expected /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET")
    group, topic, partition, offset = found.groups()
    if is_broker_partition(partition):
        raise ValueError(
            f"{partition} is BROKER-PARTITION of Kafka before 0.8, whose offsets are positions in files of one broker: "
            "it is not convertible"
        )
    return validate_line(group, topic, number(partition), number(offset), "")


def number(text: str) -> int | str:
    """The number in a text, or the text itself if it is not a number, which `validate_line` rejects."""
    found = _WHOLE.fullmatch(text)
    return int(found[1]) if found else text


def validate_line(group: Any, topic: Any, partition: Any, offset: Any, metadata: Any) -> OffsetLine:
    """Return a valid committed offset, else raise ValueError.

    Arguments:
        group: the group id; None = the line names none.
        topic, partition: of the offset.
        offset: of the next record to read, 0 or more.
        metadata: text of the commit.
    """
    if not isinstance(topic, str) or not topic or not isinstance(group, str | None) or not isinstance(metadata, str):
        raise ValueError("group, topic and metadata must be strings")
    if type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"its partition is {partition!r}, expected an integer from 0 to {PARTITION_MAX}")
    if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"its offset is {offset!r}, expected an integer from 0 to {OFFSET_MAX}")
    return OffsetLine(group, TopicPartition(topic, partition), Committed(offset, metadata))


def by_group(lines: Iterable[OffsetLine], group: str | None) -> Wanted:
    """The new offsets of each group; the last line for a partition is valid. Ends the command if a group is missing."""
    wanted: Wanted = {}
    unnamed = False
    for line in lines:
        name = group or line.group
        unnamed = unnamed or name is None
        wanted.setdefault(name or "", {})[line.topic_partition] = line.committed
    if unnamed:
        fail("the lines do not name a group: add --group")
    if not wanted:
        fail("nothing to import: no line has an offset")
    return wanted
