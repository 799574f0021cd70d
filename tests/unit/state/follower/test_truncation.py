"""`state.follower.truncation`: Kafka's rules, and logs with any histories of epochs that converge."""

import random
from bisect import bisect_right

import pytest

from kafkalite.state.follower.truncation import (
    EpochEnd,
    OffsetRange,
    RestartAt,
    TruncateTo,
    offset_of_divergence,
    range_change,
)

UNKNOWN = EpochEnd(-1, -1)


@pytest.mark.parametrize(
    ("leader", "own", "log_end_offset", "offset"),
    [
        (EpochEnd(4, 10), EpochEnd(4, 15), 20, 10),  # the same epoch ends earlier on the leader
        (EpochEnd(4, 15), EpochEnd(4, 10), 20, 10),  # and earlier here
        (EpochEnd(4, 30), EpochEnd(4, 25), 20, 20),  # never behind the log end
        (EpochEnd(4, 10), EpochEnd(2, 7), 20, 7),  # epoch 4 is unknown here: to the end of the one before
        (EpochEnd(4, 5), EpochEnd(2, 7), 20, 7),  # the leader's end is of another epoch
        (EpochEnd(4, 10), UNKNOWN, 20, 10),  # no epochs up to it
        (EpochEnd(4, 30), UNKNOWN, 20, 20),
    ],
)
def test_divergence(leader: EpochEnd, own: EpochEnd, log_end_offset: int, offset: int) -> None:
    assert offset_of_divergence(leader, own, log_end_offset) == TruncateTo(offset)


@pytest.mark.parametrize(
    ("leader", "log_end_offset", "expected"),
    [
        (OffsetRange(0, 10), 11, TruncateTo(10)),  # longer than the leader, after an unclean election
        (OffsetRange(12, 20), 11, RestartAt(12)),  # the leader has deleted what is missing here
        (OffsetRange(11, 20), 11, None),
        (OffsetRange(0, 20), 11, None),  # the leader has grown meanwhile
        (OffsetRange(0, 11), 11, None),
    ],
)
def test_offset_out_of_range(leader: OffsetRange, log_end_offset: int, expected: TruncateTo | RestartAt | None) -> None:
    assert range_change(leader, log_end_offset) == expected


# Logs as the epochs of their records, by offset.


def end_of(log: list[int], epoch: int) -> EpochEnd:
    """The largest epoch of a log up to `epoch`, with its end; the epoch itself where all are larger (KIP-101)."""
    end = bisect_right(log, epoch)
    if not log or end == 0:
        return EpochEnd(epoch, 0) if log else UNKNOWN
    return EpochEnd(log[end - 1], end)


def diverging(leader: list[int], last_epoch: int, offset: int) -> EpochEnd | None:
    """What the leader answers to a fetch: None = the logs agree below the offset, as far as epochs show."""
    found = end_of(leader, last_epoch)
    return found if found.epoch < last_epoch or found.end_offset < offset else None


def with_history(rng: random.Random, common: list[int], epochs: list[int]) -> list[int]:
    log = list(common)
    for epoch in epochs:
        log += [epoch] * rng.randrange(4)
    return log


@pytest.mark.parametrize("seed", range(300))
def test_logs_converge_to_the_common_records_and_those_of_the_leader(seed: int) -> None:
    """Each epoch is written by one broker, so records of one offset and epoch are equal."""
    rng = random.Random(seed)
    print(f"KAFKALITE_SEED={seed}")
    common = with_history(rng, [], list(range(rng.randrange(4))))
    later = list(range(4, 12))
    rng.shuffle(later)
    split = rng.randrange(len(later) + 1)
    follower = with_history(rng, common, sorted(later[:split]))
    leader = with_history(rng, common, sorted(later[split:]))
    agreeing = 0
    while agreeing < min(len(leader), len(follower)) and leader[agreeing] == follower[agreeing]:
        agreeing += 1
    for _ in range(20):
        if not follower:
            break
        found = diverging(leader, follower[-1], len(follower))
        if found is None:
            break
        truncated = offset_of_divergence(found, end_of(follower, found.epoch), len(follower)).offset
        assert truncated < len(follower), "each truncation removes records, so it ends"
        del follower[truncated:]
    assert len(follower) <= len(leader)
    assert follower == leader[: len(follower)], "what is left is a prefix of the leader's log"
    assert len(follower) == agreeing, "and no common record was removed"
