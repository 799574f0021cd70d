"""Sends records to one topic, watches the topic meanwhile, and counts the outcomes."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import click
from kafkalite_sdk import Admin, Producer
from kafkalite_sdk.admin.topic_types import TopicDescription
from kafkalite_sdk.producer.reports import FailedRecords

from kafkalite.cli.client_options import fail_for, next_steps
from kafkalite.cli.failure import Failure, fail
from kafkalite.cli.records.limits import RecordLimits
from kafkalite.cli.records.lines import RecordLine, bad_line
from kafkalite.cli.records.partition_reader import check_leaders, partitions_of
from kafkalite.cli.records.sent_lines import LINES_MAX, Delivered, SentLines
from kafkalite.cli.retry import RETRY_S
from kafkalite.errors import BrokerResponseError, KafkaError, KafkaErrorCode, MessageTooLargeError, RetriableError

DRAIN_BYTES = 128 * 1024  # of records, after which batches leave
BUFFER_BYTES = 32 * 1024 * 1024  # of records that are not acknowledged
STICKY_BYTES = 4096  # of records without a key, before the next partition is chosen
RECORD_BYTES = 8  # approximate overhead of a record beside its value
CHECK_S = 0.5  # period of the checks of the topic while records are not acknowledged
LEADERS_S = 10.0  # a new topic has no leaders at first
UNKNOWN_S = 2.0  # and may not be known to every broker
PAUSE_S = 0.1
ABANDON_S = 1.0  # for the records that are on their way when the command ends
MISSING = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def created_topic(admin: Admin, topic: str) -> TopicDescription:
    """Return the topic, which the broker may create; ends the command if it does not exist."""
    existing = await admin.topics.describe(topic)
    existed = not existing.errors
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while True:
        outcomes = await admin.topics.describe(topic, auto_create=True)
        if loop.time() - begin >= creation_wait_s(outcomes.ended[topic]):
            break
        outcomes.ignore_errors()
        await asyncio.sleep(PAUSE_S)
    fail_for(outcomes.errors)
    if not existed:
        click.echo(f"created topic {topic} with {len(outcomes[topic].partitions)} partition(s)", err=True)
    return outcomes[topic]


def creation_wait_s(topic: TopicDescription | KafkaError) -> float:
    """Return for how many seconds to wait for a topic in creation; 0 if it exists or was rejected.

    A partition without a leader whose replicas are offline already exists: the command does not wait for it.
    """
    if isinstance(topic, KafkaError):
        return UNKNOWN_S if topic.code == MISSING else 0
    waits = any(each.leader is None and not each.offline_replicas for each in topic.partitions)
    return LEADERS_S if waits else 0


class RecordSender:
    """Sends records to one topic, each from a line of the input.

    A record that the broker may reject (`RecordLimits`) is sent alone, between records that are acknowledged: if it
    fails, the lines before it are stored, and none behind it.

    Arguments:
        admin: of the cluster.
        topic: its description.
        fixed: the partition of every record, None = by key, or spread.
        limits: of the topic.
        retry_s: how long the producer retries, for messages.
        choose: the first partition of records without a key, from their number; at random by default.

    Attributes:
        producer: set by the caller before the first record.
    """

    producer: Producer

    def __init__(
        self,
        admin: Admin,
        topic: TopicDescription,
        fixed: int | None,
        limits: RecordLimits | None = None,
        *,
        retry_s: float = RETRY_S,
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._name = topic.name
        self._partitions = len(topic.partitions)
        try:
            self._fixed = fixed if fixed is None else self._checked(fixed)
        except ValueError as error:
            fail(str(error))
        self._sticky = choose(self._partitions)
        self._sticky_left = STICKY_BYTES
        self._limits = limits or RecordLimits()
        self._retry_s = retry_s
        self._lines = SentLines()
        self._append = self._lines.append
        self._plain_bytes = self._limits.plain_bytes
        self._delivered: Delivered | None = None  # at the end
        self._undrained = 0
        self._lost = self._in_doubt = 0  # failed without a response; neither acknowledged nor rejected at the end
        self._reported_at = -1  # number of acknowledged records when an outage was reported

    @property
    def lines(self) -> int:
        """Number of lines that were sent."""
        return self._lines.next_line - 1

    @property
    def acknowledged(self) -> int:
        """Number of records that were acknowledged."""
        return self.producer.metrics().records_acknowledged

    def report(self) -> str:
        """Return which lines were acknowledged, and how many are neither acknowledged nor rejected."""
        more = f"; {self._in_doubt} more may have been written" if self._in_doubt else ""
        return f"{(self._delivered or self._lines.count_delivered()).text()}{more}"

    def failure_text(self, failure: Failure | KafkaError) -> str:
        """Return the text of a failure that ends the command, with the line whose record has failed."""
        return f"{self.cause_text(failure)}; {self.report()}"

    def cause_text(self, failure: Failure | KafkaError) -> str:
        """Return the error of the first line whose record has failed, else the text of the failure itself."""
        delivered = self._delivered or self._lines.count_delivered()
        error, line = delivered.error, delivered.failed_line
        return str(failure) if error is None else f"line {line}: {self._text_of(error)}"

    def summary(self, topic: str) -> str:
        """Return what was sent to the topic at the end of the input."""
        return f"sent {self.acknowledged} record(s) to {topic}"

    async def send(self, line: RecordLine) -> None:
        """Queue a record; waits while the buffer is full. Ends the command if a record has failed."""
        key, value, headers, _partition, timestamp_ms = line
        size = RECORD_BYTES + (0 if value is None else len(value))
        plain = key is None and timestamp_ms is None and not headers and size <= self._plain_bytes
        if not plain and self._limits.may_reject(line):
            await self.flush()
            self._queue(line)
            await self.flush()
            return
        self._queue(line)
        self._undrained += size
        if self._undrained >= DRAIN_BYTES:
            self._undrained = 0
            await self._drain()

    def _queue(self, line: RecordLine) -> None:
        key, value, headers, _partition, timestamp_ms = line
        try:
            partition = self._choose(line)
            self._append(
                self.producer.send(
                    self._name, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                )
            )
        except (MessageTooLargeError, ValueError) as error:
            bad_line(f"line {self._lines.next_line}: {error}")

    async def _drain(self) -> None:
        """Wait while the buffer is full, or too many lines are not acknowledged."""
        metrics = self.producer.metrics()
        if not metrics.records_failed:
            self._lines.forget_acknowledged()
        full = metrics.buffered_bytes >= BUFFER_BYTES or len(self._lines) >= LINES_MAX
        await self.watched(self.producer.flush() if full else self.producer.drain())

    async def flush(self) -> None:
        """Wait until all records are acknowledged; further records without a key go to the next partition."""
        await self.watched(self.producer.flush())
        self._lines.forget_acknowledged()
        self._next_sticky()

    async def keep_sent(self) -> None:
        """Wait until the records before a line that is no record are acknowledged."""
        await self.flush()

    async def finish(self) -> None:
        """Wait until all records are acknowledged, at the end of the input."""
        await self.flush()

    async def watched(self, wait: Awaitable[None]) -> None:
        """Wait for the producer; meanwhile watch the topic. Ends the command if a record has failed."""
        waiting = asyncio.ensure_future(wait)
        try:
            while not (await asyncio.wait((waiting,), timeout=CHECK_S))[0]:
                await self._check_topic()
        finally:
            waiting.cancel()
        error = waiting.exception()
        if error is not None:
            raise Failure(self._text_of(error)) from error

    def _text_of(self, error: BaseException) -> str:
        """Return the text for the error of a record. Raises one that is not of a record."""
        if not isinstance(error, KafkaError):
            raise error
        if isinstance(error, BrokerResponseError):
            return f"{error.message or self._topic.name} ({error.code.name})" + next_steps([error.code])
        return str(error)

    async def _check_topic(self) -> None:
        """End the command if the topic was deleted; report a partition without a leader."""
        name = self._topic.name
        outcomes = await self._admin.topics.describe(name, timeout=CHECK_S)
        outcomes.ignore_errors()
        ended = outcomes.ended[name]
        if isinstance(ended, KafkaError):
            if ended.code == MISSING:
                fail(f"{name} was deleted while the command ran")
            return  # an outage, which the producer waits for
        if ended.topic_id != self._topic.topic_id:
            fail(f"{name} was deleted and created again while the command ran")
        chosen = partitions_of([ended])
        try:
            check_leaders([ended], chosen if self._fixed is None else [chosen[self._fixed]])
        except RetriableError as error:
            self.outage(str(error))

    def outage(self, reason: str) -> None:
        """Report why records are not acknowledged, once until the next acknowledgement."""
        acknowledged = self.acknowledged
        if acknowledged != self._reported_at:
            self._reported_at = acknowledged
            click.echo(f"kafkalite: {reason}; retrying for {self._retry_s:g} s", err=True)

    def failed(self, records: FailedRecords) -> None:
        """Count records that have failed: those without a response may have been written."""
        if not isinstance(records.error, BrokerResponseError):
            self._lost += records.records_count

    async def abandon(self) -> None:
        """Wait a moment for the records that are on their way, and end the producer without the others."""
        with suppress(KafkaError):
            await self.producer.flush(ABANDON_S)
        metrics = self.producer.metrics()
        self.note_delivered()
        sent = self._lines.next_line - 1
        self._in_doubt = self._lost + sent - metrics.records_acknowledged - metrics.records_failed
        with suppress(KafkaError):
            await self.producer.close(0)

    def note_delivered(self) -> None:
        """Let the reports be about the lines that are acknowledged now."""
        self._delivered = self._lines.count_delivered()

    def _next_sticky(self) -> None:
        self._sticky = (self._sticky + 1) % self._partitions
        self._sticky_left = STICKY_BYTES

    def _choose(self, line: RecordLine) -> int | None:
        """Return the partition of a record, None = the producer chooses it by the key."""
        if line.partition is not None:
            return self._checked(line.partition)
        if self._fixed is not None or line.key is not None:
            return self._fixed
        if self._sticky_left <= 0:
            self._next_sticky()
        self._sticky_left -= RECORD_BYTES + len(line.value or b"")
        return self._sticky

    def _checked(self, partition: int) -> int:
        if not 0 <= partition < self._partitions:
            raise ValueError(f"{self._topic.name} has partitions 0 to {self._partitions - 1}, not {partition}")
        return partition
