"""Reads partitions without a group, and prints their records.

1. Without `follow` a partition is read to the end that it had at the start.
2. While a broker restarts or a partition has no leader, the command waits for up to 120 s, and continues behind the
   last printed record.
3. A topic that was deleted, or created again under its name, ends the command.
"""

import asyncio
from collections.abc import Iterable, Mapping

from kafkalite_sdk import Admin, Consumer, TopicPartition
from kafkalite_sdk.admin.topic_types import PartitionDescription, TopicDescription

from kafkalite.cli.client_options import next_steps, refusal
from kafkalite.cli.failure import Failure, fail
from kafkalite.cli.positions import EARLIEST, offsets
from kafkalite.cli.records.output import Output
from kafkalite.cli.retry import Retry
from kafkalite.errors import (
    BrokerResponseError,
    CorruptRecordError,
    KafkaConnectionError,
    KafkaErrorCode,
    RetriableError,
)

WAIT_S = 0.5
EMPTY_POLL_S = 1.0  # of a broker that answers: nothing is left before the end
REFRESH_S = 2.0  # period of the check for new partitions, leaders and deleted topics


class PartitionReader:
    """Reads partitions and prints their records.

    Arguments:
        admin, consumer: of the cluster.
        output: prints the records.
        topics: that are read, by name.
        only: the only partition to read of each topic; None = all, with `follow` also those that are created later.
        count: the most records to print, None = all.
    """

    def __init__(
        self,
        admin: Admin,
        consumer: Consumer,
        output: Output,
        topics: Mapping[str, TopicDescription],
        only: int | None,
        count: int | None,
    ) -> None:
        self._admin = admin
        self._consumer = consumer
        self._output = output
        self._topics = topics
        self._only = only
        self._left = count
        self._retries = Retry()
        self._refresh_at = asyncio.get_running_loop().time() + REFRESH_S

    async def run(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, follow: bool
    ) -> None:
        """Read until each partition has reached its end, or forever with `follow`.

        Arguments:
            starts: the first offset of each partition.
            ends: the log ends at the start.

        Raises KafkaError when a broker is not available again in time.
        """
        self._consumer.assign(starts)
        for each, offset in starts.items():
            self._consumer.seek(each, offset)
        open_ends = dict(ends)
        while self._left != 0 and (follow or self._open(open_ends)):
            if asyncio.get_running_loop().time() >= self._refresh_at:
                await self._refresh(follow)
            count = await print_records(self._consumer, self._output, WAIT_S, self._left)
            if count:
                self._printed(count)
            elif await self._reachable() and not follow and await self._ended():
                return

    def _printed(self, count: int) -> None:
        self._retries.succeeded()
        self._left = None if self._left is None else self._left - count

    def _open(self, ends: dict[TopicPartition, int]) -> bool:
        """Stop reading the partitions that have reached their ends; return whether others are left."""
        positions = self._consumer.positions()
        ended = [each for each, end in ends.items() if positions[each] >= end]
        if ended:
            self._consumer.pause(*ended)
        for each in ended:
            del ends[each]
        return bool(ends)

    async def _reachable(self) -> bool:
        """Wait a while and return False if a broker cannot be reached."""
        return await reachable(self._consumer, self._retries)

    async def _ended(self) -> bool:
        """Return whether the log has no more records: compaction has removed the last ones.

        The answer to another request shows that the leader was there to send them.
        """
        positions = self._consumer.positions()
        await self._consumer.end_offsets(positions)
        if count := await print_records(self._consumer, self._output, EMPTY_POLL_S, self._left):
            self._printed(count)
        return not count and await self._reachable()

    async def _refresh(self, follow: bool) -> None:
        """Look for deleted topics, partitions without a leader, and new partitions."""
        described = await self._admin.topics.describe(*self._topics, timeout=REFRESH_S)
        error = next(iter(described.errors.items()), None)
        if error is not None:
            if error[1].code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                fail(f"{error[0]} was deleted while the command ran")
            await self._retries.pause(error[1])
            return
        for topic, found in described.items():
            if found.topic_id != self._topics[topic].topic_id:
                fail(f"{topic} was deleted and created again while the command ran")
        try:
            check_leaders(described.values(), self._consumer.assignment())
        except RetriableError as failure:
            await self._retries.pause(failure)
            return
        if follow and self._only is None:
            await self._add(described.values())
        self._refresh_at = asyncio.get_running_loop().time() + REFRESH_S

    async def _add(self, topics: Iterable[TopicDescription]) -> None:
        """Read partitions that were created since the start from their first record."""
        assigned = self._consumer.assignment()
        new = [each for each in partitions_of(topics) if each not in assigned]
        if new:
            starts = await offsets(self._admin, new, EARLIEST)
            self._consumer.assign([*assigned, *new])
            for each, offset in starts.items():
                self._consumer.seek(each, offset)


async def print_records(consumer: Consumer, output: Output, timeout_s: float, count: int | None) -> int:
    """Print the next records, and return how many there were; ends the command if they cannot be read."""
    try:
        return await output.print_next(consumer, timeout_s, count)
    except CorruptRecordError as error:
        skip = f"--partition {error.partition} --offset {error.next_offset} skips it"
        raise Failure(f"{error.topic}-{error.partition} at offset {error.offset}: {error.reason}; {skip}") from error
    except BrokerResponseError as error:
        position, _, command = (error.message or "").partition("; `")  # the SDK has named the right that is missing
        reason = f"{error.code.message}; `{command}" if command else None
        raise Failure(refusal(error.code, reason, position) + next_steps([error.code])) from error


async def reachable(consumer: Consumer, retries: Retry) -> bool:
    """Wait a while and return False if a broker that the consumer needs cannot be reached.

    Raises KafkaConnectionError when it could not be reached for the time limit of `retries`.
    """
    waiting = consumer.health().waiting_for
    if waiting is None or not waiting.startswith("a connection"):  # else topics that do not exist, as the log reports
        retries.succeeded()
        return True
    await retries.pause(KafkaConnectionError(waiting.partition(": ")[2] or waiting))
    return False


def partitions_of(topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    """All partitions of topics."""
    return [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]


def check_leaders(topics: Iterable[TopicDescription], chosen: Iterable[TopicPartition]) -> None:
    """Raise RetriableError if one of the chosen partitions has no leader."""
    wanted = frozenset(chosen)
    for topic in topics:
        for each in topic.partitions:
            if each.leader is None and (topic.name, each.partition) in wanted:
                raise RetriableError(without_leader(topic.name, each))


def without_leader(topic: str, partition: PartitionDescription) -> str:
    """Return the error text for a partition without a leader."""
    name = f"{topic}-{partition.partition}"
    if not partition.offline_replicas:
        return refusal(KafkaErrorCode.LEADER_NOT_AVAILABLE, None, name)
    brokers = ", ".join(map(str, partition.offline_replicas))
    return (
        f"{name}: the partition is offline; the log of broker {brokers} names the reason and the next step, and "
        f"`kafkalite topic describe {topic}` lists all partitions"
    )
