"""Applies the response of a leader to the logs of followers, in slices.

1. A slice has at most 256 KiB, unless its first batch is larger: one write of each partition in it. Other callbacks of
   the loop run between slices.
2. Before each slice a partition is checked: it may be followed no longer, or in another leader epoch.
3. The batches before one that is rejected are kept. The rejected one is reported, with leader and offset, and fetched
   again after a pause.
4. The high watermark and the log start of the leader are used after the records.

Source: ReplicaFetcherThread.processPartitionData, AbstractFetcherThread.processFetchRequest of Apache Kafka 3.9.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kafkalite.cluster.fetchers.fetched_replica import FetchedReplica, PartitionKey
from kafkalite.cluster.partition.follower import FollowerAppend
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.slicing import Steps
from kafkalite.state.follower.partition_fetch import FetchEvent, FetchState, event_of

SLICE_BYTES = 256 << 10
PARTITION_BYTES = 4 << 10  # that a partition counts as, for the work beside its bytes
LENGTH_AT, LENGTH_END = 8, 12  # of the length in a batch, behind its base offset
LENGTH = struct.Struct(">i")
DONE = -1

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


class Divergence(NamedTuple):
    """Where the leader's log differs: its largest epoch up to the last one of the follower, and the end of it."""

    epoch: int
    end_offset: int


class Restart(NamedTuple):
    """Where the log must restart, and the log start, which may lie within the first batch."""

    offset: int
    log_start_offset: int


class ResultReceiver(Protocol):
    """What uses the results: the fetcher."""

    leader: int

    def applied(self, replica: FetchedReplica) -> None:
        """The records and offsets of a response are used."""

    def diverged(self, replica: FetchedReplica, divergence: Divergence) -> None:
        """The log must be truncated."""

    def must_restart(self, replica: FetchedReplica, restart: Restart, reason: str) -> None:
        """The log of `replica` must restart as `restart` says, for a `reason` that is logged."""

    def failed(self, replica: FetchedReplica, event: FetchEvent, error: int, reason: str) -> None:
        """The part of a response for `replica` has an error, or cannot be used.

        Arguments:
            replica: that was fetched.
            event: what the error means for its state.
            error: a Kafka error code.
            reason: for the log line.
        """

    def broken(self, replica: FetchedReplica, error: Exception) -> None:
        """An unexpected exception has ended the application."""


def apply_response(
    response: FetchResponse,
    number: int,
    find: Callable[[PartitionKey], FetchedReplica | None],
    receiver: ResultReceiver,
    count_bytes: Callable[[FetchedReplica, int], object],
) -> Steps:
    """Apply a response; each step is a slice.

    Arguments:
        response: without an error.
        number: of its request; a replica that is `since` a later one ignores it.
        find: returns the replica of a key that is fetched, or None.
        receiver: gets the result for each partition.
        count_bytes: called with a replica and its bytes that were appended.
    """
    used = 0
    for topic in response.responses:
        for data in topic.partitions:
            key = (bytes(topic.topic_id), data.partition_index)
            at = 0
            while at != DONE:
                if used >= SLICE_BYTES:
                    used = 0
                    yield
                replica = find(key)
                if replica is None or replica.since > number or replica.fetch.state is not FetchState.FETCHING:
                    break
                at, size = _apply_slice(replica, data, at, receiver)
                count_bytes(replica, size)
                used += size + PARTITION_BYTES


def _apply_slice(replica: FetchedReplica, data: PartitionData, at: int, receiver: ResultReceiver) -> tuple[int, int]:
    """Apply the part of a partition that begins at `at`; returns where the next one begins, and the appended bytes."""
    try:
        if not replica.is_usable:
            return DONE, 0
        if at == 0 and (data.error_code or data.diverging_epoch is not None) and _apply_error(replica, data, receiver):
            return DONE, 0
        return _append(replica, data, at, receiver)
    except Exception as error:
        receiver.broken(replica, error)
        return DONE, 0


def _apply_error(replica: FetchedReplica, data: PartitionData, receiver: ResultReceiver) -> bool:
    """Report an error or a divergence; False if there is none."""
    if data.error_code:
        reason = f"leader {receiver.leader} rejects the fetch at offset {replica.log.log_end_offset}"
        receiver.failed(replica, event_of(data.error_code), data.error_code, reason)
        return True
    diverging = data.diverging_epoch
    if diverging is None or diverging.epoch < 0:
        return False
    if diverging.end_offset < 0:
        reason = f"leader {receiver.leader} names epoch {diverging.epoch} without its end"
        receiver.failed(replica, FetchEvent.REFUSED, KafkaErrorCode.UNKNOWN_SERVER_ERROR, reason)
    else:
        receiver.diverged(replica, Divergence(diverging.epoch, diverging.end_offset))
    return True


def _append(replica: FetchedReplica, data: PartitionData, at: int, receiver: ResultReceiver) -> tuple[int, int]:
    records, size = b"" if data.records is None else data.records, 0
    left = len(records) - at
    if left:
        window = left if left <= SLICE_BYTES else _window(records, at)
        part = records if window == len(records) else memoryview(records)[at : at + window]
        result = replica.role.append_replicated(part)
        is_written = result.error == result.batches.error
        size = result.batches.size if is_written else 0
        if result.error or not (size or at):  # behind whole batches, an incomplete one is dropped
            _reject(replica, result, left, receiver)
            return DONE, size
        if size and window < left:
            return at + size, size
    _follow_offsets(replica, data, receiver)
    return DONE, size


def _window(records: bytes | memoryview, at: int) -> int:
    """The bytes of the next slice: whole batches are among them."""
    left = len(records) - at
    first = LENGTH_END + LENGTH.unpack_from(records, at + LENGTH_AT)[0] if left >= LENGTH_END else left
    return min(left, max(SLICE_BYTES, first))


def _reject(replica: FetchedReplica, result: FollowerAppend, left: int, receiver: ResultReceiver) -> None:
    """Use the result of an append that has not accepted all batches, or none."""
    batches, log = result.batches, replica.log
    if log.failed:
        receiver.failed(replica, FetchEvent.LOG_FAILED, result.error, "the log directory is offline")
    elif batches.restart_offset >= 0:
        restart = Restart(batches.restart_offset, log.log_start_offset)
        receiver.must_restart(replica, restart, "the log start lies within the first batch of the leader")
    elif batches.error:
        reason = f"a batch of leader {receiver.leader} at offset {batches.offset} is not appended: {batches.reason}"
        receiver.failed(replica, FetchEvent.REFUSED, batches.error, reason)
    elif result.error:
        reason = f"cannot write at offset {log.log_end_offset}"
        receiver.failed(replica, FetchEvent.REFUSED, result.error, reason)
    else:
        reason = f"leader {receiver.leader} has sent {left} bytes at offset {log.log_end_offset}, without a whole batch"
        receiver.failed(replica, FetchEvent.REFUSED, KafkaErrorCode.CORRUPT_MESSAGE, reason)


def _follow_offsets(replica: FetchedReplica, data: PartitionData, receiver: ResultReceiver) -> None:
    error = replica.role.follow_offsets(data.high_watermark, data.log_start_offset)
    log = replica.log
    replica.lag = max(0, data.high_watermark - log.log_end_offset)
    if not error:
        receiver.applied(replica)
    elif log.failed:
        receiver.failed(replica, FetchEvent.LOG_FAILED, error, "the log directory is offline")
    elif error == KafkaErrorCode.OFFSET_OUT_OF_RANGE:
        restart = Restart(data.log_start_offset, data.log_start_offset)
        receiver.must_restart(replica, restart, f"the log start of leader {receiver.leader} is above it")
    else:
        receiver.failed(replica, FetchEvent.REFUSED, error, "cannot raise the log start")
