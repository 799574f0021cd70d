"""Offset resets: where a consumer begins in a partition that has no valid position, by `auto_offset_reset`.

1. `replacement` decides what follows a lost position, for all who find one: `offset_resolver` (missing, truncated),
   `assignment_changes` (missing), `fetch/fetch_errors` (out of range) and `driver` (of a topic that was created again).
   Without a policy that is an error, for a missing offset `missing_offset_error`.
2. `ResetPolicy.timestamp` is what ListOffsets is asked for, `position_found` what its result leads to.

`offset_resolver` asks the leaders, and applies the results to the positions.
Pure: the wall time is a parameter. Sources: OffsetFetcher.java, OffsetFetcherUtils.java, FetchCollector.java,
AutoOffsetResetStrategy.java of Apache Kafka 4.3; KIP-1106.
"""

import re
from enum import Enum
from typing import NamedTuple

from kafkalite.errors import NoOffsetForPartitionError
from kafkalite.model import TopicPartition

EARLIEST_TIMESTAMP, LATEST_TIMESTAMP = -2, -1
NO_OFFSET = -1
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


class Loss(Enum):
    """Why a partition has no valid position."""

    MISSING = "no offset is committed"
    OUT_OF_RANGE = "the log does not have the offset"
    TRUNCATED = "the log was truncated below the position (KIP-320)"
    RECREATED = "the topic was deleted and created again"


EARLIEST = ResetPolicy(EARLIEST_TIMESTAMP)
LATEST = ResetPolicy(LATEST_TIMESTAMP)


def replacement(policy: ResetPolicy | None, loss: Loss, known_offset: int = NO_OFFSET) -> int | ResetPolicy | None:
    """What replaces a lost position: an offset to seek, or a policy to reset by; None = an error of `poll`.

    Arguments:
        policy: of `auto_offset_reset`; None = "none".
        loss: why there is no valid position.
        known_offset: where the partition was begun before (MISSING), or where the log and the position diverge
            (TRUNCATED: without a policy that is an error, because records were lost); -1 = not known.
    """
    if known_offset >= 0 and (loss is Loss.MISSING or (loss is Loss.TRUNCATED and policy is not None)):
        return known_offset
    return policy


def missing_offset_error(partition: TopicPartition) -> NoOffsetForPartitionError:
    """The error of `poll` for a partition without a committed offset and without a policy."""
    return NoOffsetForPartitionError(
        f"{partition} has no committed offset and auto_offset_reset is 'none'; seek, or commit one"
    )


def position_found(offset: int) -> int | ResetPolicy:
    """The position of a reset: the offset that ListOffsets has found; -1 = no record is that late, so the log end."""
    return offset if offset >= 0 else LATEST


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
