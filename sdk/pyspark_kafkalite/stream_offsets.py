"""The offsets of a stream: the JSON of `format("kafka")`, and what a restart needs beyond it.

`{"#start": {...}, "#topicIds": {"orders": "..."}, "orders": {"0": 23}}`: a `#` is not possible in the name of a topic.
`#start` is in the end of the first batch only: offsets like `latest` would be others after a restart. `#topicIds`
detects a topic that was deleted and created again. Keys are in a fixed order: Spark compares the text.

Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalite.model import TopicPartition

Offsets = Mapping[TopicPartition, int]

INITIAL, START, TOPIC_IDS = "#initial", "#start", "#topicIds"
BYTES = "#bytes"
"""In the offset that is reported to Spark only: the size of the last micro-batch in the log, estimated."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The offsets of a stream at one moment.

    Attributes:
        offsets: the next one to read of each partition.
        topic_ids: of the topics.
        start: of the first batch, None = it is not the end of the first batch.
        initial: no batch was read before.
    """

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    start: Offsets | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as Spark writes it to its checkpoint."""
        found: dict[str, Any] = {INITIAL: True} if self.initial else {}
        if self.start is not None:
            found[START] = offsets_json(self.start)
        if self.topic_ids:
            found[TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        return found | offsets_json(self.offsets)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "StreamOffset":
        """Return what `to_json` has written, or the connector's checkpoint contains."""
        offsets = {name: each for name, each in found.items() if not name.startswith("#")}
        start = found.get(START)
        return cls(
            parsed_offsets(offsets),
            dict(found.get(TOPIC_IDS, {})),
            None if start is None else parsed_offsets(start),
            bool(found.get(INITIAL, False)),
        )


def offsets_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in the connector's form: by topic and partition, topics by name, partitions by number."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return found


def parsed_offsets(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets of the connector's form."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    }


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return names of partitions for a message."""
    return ", ".join(str(each) for each in sorted(partitions))
