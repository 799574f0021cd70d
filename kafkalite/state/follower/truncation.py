"""Where a follower truncates its log: after a divergence, and after a fetch outside the leader's offsets.

1. A fetch names the last leader epoch of the follower's log. If the leader's log has another history, its response
   names the largest epoch up to it that the leader knows, and where that epoch ends (KIP-595). One truncation may not
   suffice: the next fetch names the then last epoch, until both logs agree (KIP-279).
2. The high watermark decides nothing: a new leader may not know yet what earlier ones have committed (KIP-101).

Source: AbstractFetcherThread (getOffsetTruncationState, fetchOffsetAndTruncate) of Apache Kafka 3.9.
"""

from typing import NamedTuple

UNDEFINED = -1


class EpochEnd(NamedTuple):
    """A leader epoch and where it ends; both -1 = not known.

    Arguments:
        epoch: the leader epoch.
        end_offset: the start of the next epoch, or the log end.
    """

    epoch: int
    end_offset: int


class OffsetRange(NamedTuple):
    """The offsets of a log: its start and its end."""

    start: int
    end: int


class TruncateTo(NamedTuple):
    """Every record from this offset on is removed."""

    offset: int


class RestartAt(NamedTuple):
    """All records are removed, and the log begins at this offset."""

    offset: int


def offset_of_divergence(leader: EpochEnd, own: EpochEnd, log_end_offset: int) -> TruncateTo:
    """Where the log is truncated when the leader names another end of an epoch.

    Arguments:
        leader: the diverging epoch of the response.
        own: the largest epoch of the follower's log up to the leader's one, and where it ends there; (-1, -1) = the
            log has no epoch up to it.
        log_end_offset: of the follower.
    """
    ends = [log_end_offset]
    if own.epoch == leader.epoch or own.epoch == UNDEFINED:
        ends.append(leader.end_offset)
    if own.epoch != UNDEFINED:
        ends.append(own.end_offset)
    return TruncateTo(min(ends))


def range_change(leader: OffsetRange, log_end_offset: int) -> TruncateTo | RestartAt | None:
    """What follows from a fetch that the leader has rejected with OFFSET_OUT_OF_RANGE; None: it is repeated.

    1. The log is longer than that of the leader: after an unclean election.
    2. The leader has deleted records that this log does not have yet: after a long stop.
    3. The leader has grown meanwhile.

    Arguments:
        leader: its offsets.
        log_end_offset: of the follower.
    """
    if leader.end < log_end_offset:
        return TruncateTo(leader.end)
    return RestartAt(leader.start) if leader.start > log_end_offset else None
