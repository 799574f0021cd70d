"""Two logs of any histories, with retention and with leader epochs without records, become equal.

One broker writes per epoch. A follower repeats fetches until it has its leader's log, and removes nothing that is
in both.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.follower.truncation import (
    EpochEnd,
    OffsetRange,
    RestartAt,
    TruncateTo,
    offset_of_divergence,
    range_change,
)
from kafkalite.storage.log.leader_epoch_cache import LeaderEpochCache

ATTEMPTS_MAX = 100


class Epochs:
    """A log in memory: the epoch of each record, and the writer that has written it."""

    def __init__(self, entries: list[tuple[int, int]], end_offset: int, start_offset: int = 0) -> None:
        self.entries = entries
        self.log_end_offset = end_offset
        self.start_offset = start_offset

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        return LeaderEpochCache.end_offset(self, epoch, self.log_end_offset)  # type: ignore[arg-type]

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def truncate(self, offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry[1] < offset]
        self.log_end_offset = min(self.log_end_offset, offset)
        self.start_offset = min(self.start_offset, offset)

    def restart(self, offset: int) -> None:
        self.entries, self.log_end_offset, self.start_offset = [], offset, offset

    def append(self, epoch: int, end_offset: int) -> None:
        """Append records of an epoch, as a leader or a follower."""
        if epoch != self.latest:
            self.entries = [
                *(each for each in self.entries if each[1] < self.log_end_offset),
                (epoch, self.log_end_offset),
            ]
        self.log_end_offset = end_offset

    def epoch_at(self, offset: int) -> int:
        return max((entry for entry in self.entries if entry[1] <= offset), key=lambda entry: entry[1])[0]

    def records(self) -> list[tuple[int, int]]:
        """(offset, epoch) of each record: one broker writes per epoch, so both together identify a record."""
        return [(offset, self.epoch_at(offset)) for offset in range(self.start_offset, self.log_end_offset)]


def fetch(leader: Epochs, offset: int, last_epoch: int) -> int | EpochEnd:
    """What a leader answers: an error, 0 for records, or a diverging epoch (Partition.readRecords)."""
    if last_epoch >= 0:
        epoch, end = leader.epoch_end_offset(last_epoch)
        if epoch < 0 or end < 0:
            return KafkaErrorCode.OFFSET_OUT_OF_RANGE
        if epoch < last_epoch or end < offset:
            return EpochEnd(epoch, end)
    out_of_range = not leader.start_offset <= offset <= leader.log_end_offset
    return KafkaErrorCode.OFFSET_OUT_OF_RANGE if out_of_range else 0


def step(follower: Epochs, leader: Epochs) -> bool:
    """One fetch of the follower; returns whether it has all records."""
    found = fetch(leader, follower.log_end_offset, follower.latest)
    if isinstance(found, EpochEnd):
        own = EpochEnd(*follower.epoch_end_offset(found.epoch))
        follower.truncate(offset_of_divergence(found, own, follower.log_end_offset).offset)
    elif found:
        change = range_change(OffsetRange(leader.start_offset, leader.log_end_offset), follower.log_end_offset)
        if isinstance(change, TruncateTo):
            follower.truncate(change.offset)
        else:
            assert isinstance(change, RestartAt), "a repeated fetch would never end"
            follower.restart(change.offset)
    elif follower.log_end_offset == leader.log_end_offset:
        return True
    else:
        offset = follower.log_end_offset
        epoch = leader.epoch_at(offset)
        follower.append(epoch, leader.epoch_end_offset(epoch)[1])
    return False


LEADERSHIPS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.booleans()), max_size=8)
"""(writer, number of records, whether the other one fetches all of them) of each epoch."""


@given(leaderships=LEADERSHIPS, begins=st.integers(0, 6))
@settings(max_examples=400, deadline=None)
@example(leaderships=[(0, 2, True), (1, 2, False), (0, 0, False), (1, 1, False), (0, 3, False)], begins=0)
@example(leaderships=[(0, 4, False), (1, 0, False)], begins=0)
def test_logs_of_any_history_become_equal(leaderships: list[tuple[int, int, bool]], begins: int) -> None:
    logs = Epochs([], 0), Epochs([], 0)
    for epoch, (writer, count, fetched) in enumerate(leaderships):
        leader, follower = logs[writer], logs[1 - writer]
        if not leader.entries or leader.latest < epoch:
            leader.append(epoch, leader.log_end_offset)  # it begins at the log end, without records
        leader.append(epoch, leader.log_end_offset + count)
        if fetched:
            replicate(follower, leader)
    leader, follower = logs
    leader.append(len(leaderships), leader.log_end_offset)
    if begins < leader.log_end_offset:  # retention
        leader.start_offset = max(leader.start_offset, begins)
        first = leader.epoch_at(begins)
        leader.entries = [(first, begins), *(each for each in leader.entries if each[1] > begins)]
    replicate(follower, leader)


def replicate(follower: Epochs, leader: Epochs) -> None:
    """Fetch until both are equal; what they have in common stays."""
    theirs, ours = set(leader.records()), follower.records()
    common = 0
    while common < len(ours) and (ours[common] in theirs or ours[common][0] < leader.start_offset):
        common += 1
    kept, removed_below = ours[:common], False
    for _ in range(ATTEMPTS_MAX):
        if step(follower, leader):
            break
        removed_below |= follower.log_end_offset < (kept[-1][0] + 1 if kept else 0)
    else:
        raise AssertionError("the logs do not become equal")
    begin = max(leader.start_offset, follower.start_offset)
    assert [each for each in follower.records() if each[0] >= begin] == [
        each for each in leader.records() if each[0] >= begin
    ]
    if not kept or kept[-1][0] >= leader.start_offset:
        assert not removed_below, "a record that both have was removed"
