"""The start of a consumer in a partition that has no valid position: the values of `auto_offset_reset`.

Pure: the wall time is a parameter. `offset_resolver` decides when a position is reset. Sources:
AutoOffsetResetStrategy.java of Apache Kafka 4.3; KIP-1106.
"""

import re
from typing import NamedTuple

EARLIEST_TIMESTAMP, LATEST_TIMESTAMP = -2, -1
DURATION = r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?"
SECONDS = (86400, 3600, 60, 1)


class ResetPolicy(NamedTuple):
    """A place in a log.

    Attributes:
        timestamp_ms: the first record of this time or later; -2 = the earliest record, -1 = the end of the log.
        duration_ms: records of the last `duration_ms`; `timestamp_ms` is ignored. None = not by duration.
    """

    timestamp_ms: int
    duration_ms: int | None = None

    def timestamp(self, wall_ms: int) -> int:
        """Return the timestamp for ListOffsets, at the wall time `wall_ms`."""
        return self.timestamp_ms if self.duration_ms is None else max(0, wall_ms - self.duration_ms)


EARLIEST = ResetPolicy(EARLIEST_TIMESTAMP)
LATEST = ResetPolicy(LATEST_TIMESTAMP)


def parse_reset_policy(text: str) -> ResetPolicy | None:
    """Return the policy of `auto_offset_reset`; None = the text "none": a missing offset is an error.

    Raises:
        ValueError: the text is neither "earliest", "latest", "none" nor "by_duration:" with an ISO 8601 duration.
    """
    named = {"earliest": EARLIEST, "latest": LATEST, "none": None}
    if text in named:
        return named[text]
    scheme, _, duration = text.partition(":")
    match = re.fullmatch(DURATION, duration)
    if scheme != "by_duration" or match is None or not any(match.groups()):
        raise ValueError(
            f"auto_offset_reset is {text!r}, expected 'earliest', 'latest', 'none' or 'by_duration:<ISO 8601 duration>'"
            " such as 'by_duration:PT24H'"
        )
    seconds = sum(float(each) * unit for each, unit in zip(match.groups(), SECONDS, strict=True) if each)
    return ResetPolicy(LATEST_TIMESTAMP, round(seconds * 1000))
