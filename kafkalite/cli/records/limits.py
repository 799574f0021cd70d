"""Recognises the records that a broker may reject because of the configs of their topic.

`produce` sends such a record alone, when all records before it are acknowledged: if the broker rejects it, no record
behind it is stored. The broker decides, so a limit needs to be known only approximately.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite_sdk import Admin
from kafkalite_sdk.admin import Config, Resource

from kafkalite.cli.records.lines import RecordLine

OVERHEAD_BYTES = 512  # of a batch with one record, at most, beside key, value and headers
HEADER_BYTES = 20  # of a header, at most, beside its name and value
DEFAULT_BYTES = 1_048_588  # Kafka's default of max.message.bytes
CLOCK_MS = 300_000  # by which the clocks of broker and client may differ
NO_LIMIT = 2**63 - 1
KEYS = (
    *("max.message.bytes", "segment.bytes", "cleanup.policy", "message.timestamp.type"),
    *("message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.difference.max.ms"),
)


class RecordLimits(NamedTuple):
    """The limits of a topic; the default is what is assumed where the configs may not be read.

    Attributes:
        batch_bytes: largest batch.
        before_ms, after_ms: largest distance of a timestamp from the time of the append.
        keyed: every record needs a key.
    """

    batch_bytes: int = DEFAULT_BYTES
    before_ms: int = NO_LIMIT
    after_ms: int = NO_LIMIT
    keyed: bool = False

    @property
    def plain_bytes(self) -> int:
        """The size up to which a record with a value only is never rejected; 0 if it always may be."""
        return 0 if self.keyed else max(0, self.batch_bytes - OVERHEAD_BYTES)

    def may_reject(self, line: RecordLine) -> bool:
        """Whether the broker may reject a record of this topic."""
        key, value, headers, _partition, timestamp_ms = line
        size = OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        if headers:
            size += sum(HEADER_BYTES + 3 * len(name) + len(content or b"") for name, content in headers)
        if size > self.batch_bytes or (self.keyed and key is None):
            return True
        return timestamp_ms is not None and not self._is_near(timestamp_ms, time.time_ns() // 1_000_000)

    def _is_near(self, timestamp_ms: int, now_ms: int) -> bool:
        return now_ms - margin_of(self.before_ms) <= timestamp_ms <= now_ms + margin_of(self.after_ms)


def margin_of(limit_ms: int) -> int:
    """Return the distance from now that a broker with another clock accepts, too."""
    return limit_ms - min(CLOCK_MS, limit_ms // 2)


async def read_limits(admin: Admin, topic: str) -> RecordLimits:
    """Return the limits of a topic."""
    resource = Resource.topic(topic)
    outcomes = await admin.configs.describe(resource, names=KEYS)
    if resource in outcomes.errors:
        return RecordLimits()
    return limits_of(outcomes[resource])


def limits_of(configs: Mapping[str, Config]) -> RecordLimits:
    """Return the limits that the configs of a topic set; brokers of older versions have other keys."""

    def number(key: str, default: int) -> int:
        text = configs[key].value if key in configs else None
        return default if text is None else int(text)

    def text(key: str) -> str:
        return (configs[key].value or "") if key in configs else ""

    difference = number("message.timestamp.difference.max.ms", NO_LIMIT)
    checked = text("message.timestamp.type") != "LogAppendTime"
    before, after = (number(f"message.timestamp.{side}.max.ms", NO_LIMIT) for side in ("before", "after"))
    return RecordLimits(
        min(number("max.message.bytes", DEFAULT_BYTES), number("segment.bytes", NO_LIMIT)),
        min(before, difference) if checked else NO_LIMIT,
        min(after, difference) if checked else NO_LIMIT,
        "compact" in text("cleanup.policy"),
    )
