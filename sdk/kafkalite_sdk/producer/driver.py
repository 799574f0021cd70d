"""Drives a producer on asyncio: lets batches leave, passes responses on, keeps its timer, and waits for users.

One `_step` per loop iteration does everything that is due; `send`, responses and the timer only schedule it.

Invariants:
1. All records that are sent in one loop iteration and may leave, leave together at its end.
2. One timer: the end of a linger time, a back-off or a deadline.
3. There is no task. Threads exist only to compress large batches.
4. After `end` every record has its outcome, and no timer or thread is left.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from kafkalite.backoff import Backoff
from kafkalite.callbacks import call_all
from kafkalite.errors import (
    AuthenticationError,
    ClientUseError,
    KafkaError,
    KafkaErrorCode,
    KafkaTimeoutError,
    error_class,
    error_for,
    with_right,
)
from kafkalite.model import Node
from kafkalite.protocol.messages.init_producer_id import InitProducerIdResponse
from kafkalite.protocol.messages.produce import ProduceResponse
from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, ProducerBatch
from kafkalite_sdk._speedups.sender_core import ProduceCall
from kafkalite_sdk.client.alarm import Alarm
from kafkalite_sdk.client.channel import Channel
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.cluster_view import NO_LEADER, MetadataChanges, PartitionView
from kafkalite_sdk.producer.compression import Compression
from kafkalite_sdk.producer.failures import Failures
from kafkalite_sdk.producer.identity import Identity
from kafkalite_sdk.producer.partition_sender import ProducerId
from kafkalite_sdk.producer.reports import FailedRecords, ProducerMetrics, RequestCounts
from kafkalite_sdk.producer.sender import Sender
from kafkalite_sdk.producer.settings import ProducerSettings
from kafkalite_sdk.producer.waiters import Waiters

if TYPE_CHECKING:
    from kafkalite_sdk.interceptors.producer import ProducerStages
    from kafkalite_sdk.producer.transactions.calls import Transactions
    from kafkalite_sdk.producer.transactions.driver import TransactionDriver

PRODUCE_VERSION_MAX = 12  # version 13 names topics by id; a topic that was re-created is then an error, not a topic
ABSENT = (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaErrorCode.UNKNOWN_TOPIC_ID)
TIMER_RESOLUTION_S = 0.001  # of uvloop; a linger time ends this much earlier instead of one timer later


class Driver:
    """The part of a producer that belongs to an event loop.

    Arguments:
        client: a started client; the driver does not close it.
        settings: of the producer.
        stages: calls the interceptors; None = there are none.
        on_error: of the user; called with failures that no user has seen.

    Attributes:
        accumulator, sender: the records, and what sends them.
        transactions: None = the producer has no transactional id.
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ProducerSettings,
        stages: "ProducerStages | None" = None,
        on_error: Callable[[FailedRecords], object] | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._stages = stages
        self._on_error = on_error
        self._loop = client.loop
        random = client.environment.random
        self.accumulator = RecordAccumulator(
            self._loop,
            batch_size=settings.batch_bytes,
            buffer_memory=settings.buffer_bytes,
            record_bytes_max=settings.max_request_bytes,
            offload_bytes=settings.offload_bytes,
            monotonic_s=self._loop.time,
            wall_ms=client.environment.wall_ms,
            choose=random.randrange,
            wake=self.schedule,
            refuse=self._refuse,
            wait=self._wait_for_space,
            partitioner=settings.partitioner,
        )
        leader_of = client.view.leader
        report = client.unreachable
        of_type = _sender_type(settings)
        self.sender = of_type(self.accumulator, settings, leader_of, random.random, self._failed, report, stages)
        self._identity = Identity(Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, random.random))
        self._failures = Failures()
        self._waiters = Waiters(self._loop)
        self.sender.version_max = PRODUCE_VERSION_MAX
        self._alarm = Alarm(self._loop, self.schedule, client.owner.fail)
        self._compression = Compression(self._loop, settings.codec, settings.level, self._compressed)
        self._closes_after_s = max(0.0, settings.linger_s - TIMER_RESOLUTION_S)
        self._timeout_ms = int(settings.request_timeout_s * 1000)
        self._channels: dict[int, Channel] = {}  # by broker id; one that is closed rejects requests
        self.scheduled = False
        self._urgent = 0  # number of callers that wait for batches, so that none lingers
        self._requested: set[str] = set()  # topics of `unassigned` for which metadata was requested
        self._leaderless: set[str] = set()
        self._unused_since: dict[str, float] = {}  # by topic, in seconds of the loop's clock
        self._refused_by: KafkaError = ClientUseError("this Producer was closed; create another one")
        self._ended = False
        self._counts = RequestCounts()
        self._guard = client.owner.guard
        self._metadata_changed = self._guard(self._apply_metadata)
        client.on_metadata.append(self._metadata_changed)
        client.owner.on_failure.append(self._client_failed)
        client.on_rejected.append(self._rejected)
        self.transactions: Transactions | None = self._new_transactions()

    def _new_transactions(self) -> "Transactions | None":
        if self._settings.transactional_id is None:
            return None
        from kafkalite_sdk.producer.transactions.calls import Transactions
        from kafkalite_sdk.producer.transactions.driver import NO_TRANSACTION, TransactionDriver
        from kafkalite_sdk.producer.transactions.records import TransactionRecords

        self.reject_records(ClientUseError(NO_TRANSACTION))
        return Transactions(TransactionDriver(self._client, self._settings, TransactionRecords(self)))

    # misuse

    def _refuse(self) -> None:
        """Called in another loop or thread, after a fork and after the close."""
        self._client.check_owner()
        raise self._refused_by.with_traceback(None)

    # steps

    def send_open_batches(self) -> None:
        """Let no batch linger that is open now."""
        self.accumulator.close_batches(inf)
        self.schedule()

    def schedule(self) -> None:
        """Do what is due in the next loop iteration."""
        if not self.scheduled:
            self.scheduled = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Do what is due; an exception ends the producer."""
        self.scheduled = False
        if self._ended:
            return
        try:
            self._do_step()
        except Exception as error:
            self._client.owner.fail(error)

    def _do_step(self) -> None:
        now, sender, accumulator = self._loop.time(), self.sender, self.accumulator
        oldest = accumulator.close_batches(inf if self._urgent else now - self._closes_after_s)
        at = inf if oldest is None else oldest + self._settings.linger_s
        if accumulator.large:
            self._compression.start(accumulator.large)
        if accumulator.unassigned:
            at = min(at, self._request_topics(now))
        if sender.wake_at(now) <= now:
            sender.expire(now)
        for call in sender.requests(now):
            self._submit(call)
        if self.transactions is not None:
            at = min(at, self._work_on_transaction(self.transactions.driver, now))
        elif sender.needs_producer_id:
            at = min(at, self._identify(now))
        if sender.needs_metadata:
            self._refresh_metadata()
        at = min(at, sender.wake_at(now))
        if at < self._alarm.at:
            self._alarm.set(at)
        if self._urgent:
            self._waiters.check()

    def _submit(self, call: ProduceCall) -> None:
        """Send a request: at once to a broker that is connected."""
        request = call.request(self._settings.acks, self._timeout_ms, self._settings.transactional_id)
        self._counts.requests += 1
        self._counts.bytes += call.size
        if self._stages is not None:
            self._stages.request_sent(call.node, len(call.batches), call.size)
        answer, fail = partial(self._answered, call), partial(self._lost, call)
        channel = None if not self._settings.acks else self._channels.get(call.node)
        now = call.created_s
        deadline = now + self._settings.request_timeout_s
        if channel is not None and channel.submit_now(request, answer, fail, now, deadline, self.sender.version_max):
            return
        version_max, one_way = self.sender.version_max, not self._settings.acks
        self._client.submit(call.node, request, answer, fail, version_max=version_max, one_way=one_way)
        channel = self._client.channel(call.node)
        if channel is not None:
            self._channels[call.node] = channel

    def _answered(self, call: ProduceCall, response: ProduceResponse | None) -> None:
        """End a request; an exception ends the producer. `Owner.guard` would cost 0.5 us per request."""
        try:
            now = self._loop.time()
            if response is None:  # acks=0
                self.sender.sent(call)
            else:
                if response.node_endpoints:
                    self._learn_leaders(response)
                self.sender.answered(call, response, now)
            self._counts.seconds += now - call.created_s
            if self._stages is not None:
                self._stages.request_ended(call.node, now - call.created_s, None)
            self.schedule()
        except Exception as failure:
            self._client.owner.fail(failure)

    def _lost(self, call: ProduceCall, error: KafkaError) -> None:
        """A request has failed; an exception ends the producer."""
        try:
            now = self._loop.time()
            self.sender.retries.lost(call, error, now)
            if self._stages is not None:
                self._stages.request_ended(call.node, now - call.created_s, error)
            self.schedule()
        except Exception as failure:
            self._client.owner.fail(failure)

    def _learn_leaders(self, response: ProduceResponse) -> None:
        """Take over the new leaders that a response names (KIP-951)."""
        endpoints = [Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
        for topic in response.responses:
            for each in topic.partition_responses:
                leader = each.current_leader
                if leader is not None and each.error_code:
                    named = PartitionView(leader.leader_id, leader.leader_epoch)
                    self._client.view.leader_changed(topic.name, each.index, named, endpoints)

    # identity

    def _identify(self, now: float) -> float:
        """Get the next epoch, or request an id. Return when an id is requested again; infinity = it is not."""
        following = self._identity.next_epoch(self.sender.producer_id)
        if following is not None:
            self._use_identity(following)
        elif (request := self._identity.request(now)) is not None:
            timeout_s = self._settings.request_timeout_s
            answered, failed = self._guard(self._identity_answered), self._guard(self._identity_failed)
            self._client.submit_any(request, answered, failed, timeout_s=timeout_s)
        return self._identity.retry_at if self.sender.needs_producer_id and self._identity.retry_at > now else inf

    def _identity_answered(self, response: InitProducerIdResponse) -> None:
        try:
            identity = self._identity.accept_response(response, self._loop.time())
        except KafkaError as error:
            self.give_up(error)
            return
        if identity is not None:
            self._use_identity(identity)
        self.schedule()

    def _identity_failed(self, error: KafkaError) -> None:
        if isinstance(error, ClientUseError):
            return  # the client is being closed: each further request would fail at once
        try:
            self._identity.failed(error, self._loop.time())
        except KafkaError as fatal:
            self.give_up(fatal)
        self.schedule()

    def _use_identity(self, identity: ProducerId) -> None:
        self.sender.set_producer_id(identity)
        self.schedule()

    def _client_failed(self, error: KafkaError) -> None:
        """An unexpected exception: fail all records, those of open requests, too."""
        self._ended = True
        self.reject_records(error)
        if self.transactions is not None:
            self.transactions.machine.close(error)
        call_all(partial(self._fail_all, error), partial(self.sender.abort, error))
        self._waiters.check()

    def give_up(self, error: KafkaError) -> None:
        """The producer cannot continue: fail all records, and reject further ones with the same error."""
        self.reject_records(error)
        self._fail_all(error)
        self.schedule()

    def _work_on_transaction(self, transactions: "TransactionDriver", now: float) -> float:
        if self.sender.needs_producer_id:
            self.sender.needs_producer_id = False
            transactions.sequences_lost()
        if self.sender.open_calls:
            transactions.machine.produced()
        return transactions.work(now)

    def reject_records(self, error: KafkaError) -> None:
        """Let `send` raise an error."""
        self._refused_by = error
        self.accumulator.close()

    def abort_records(self, error: KafkaError) -> None:
        """Fail the records without an outcome. No call raises the errors of failed records afterwards."""
        for topic in list(self.accumulator.unassigned):
            self._fail_topic(topic, error)
        self.accumulator.close_batches(inf)
        self.sender.abort(error)
        self._failures.take_error()
        self.accumulator.must_wait = False

    # metadata

    def _request_topics(self, now: float) -> float:
        """Request the metadata of new topics; fail those without metadata for too long. Return when the next one is."""
        unassigned = self.accumulator.unassigned
        new = [topic for topic in unassigned if topic not in self._requested]
        if new:
            self._requested.update(new)
            for topic in new:
                self._set_partitions(topic)
            self._client.use_topics(new, create=self._settings.create_topics)
        limit_s = min(self._settings.max_block_s, self._settings.delivery_timeout_s)
        for topic, since in list(unassigned.items()):
            if since + limit_s > now:
                return since + limit_s
            reason = self._client.unreachable() or "does the topic exist?"
            self._fail_topic(topic, KafkaTimeoutError(f"{topic}: no metadata within {limit_s:g} s; {reason}"))
        return inf

    def _refresh_metadata(self) -> None:
        topics = sorted(self.sender.needs_metadata)
        self.sender.needs_metadata.clear()
        self._client.refresh_metadata(topics)
        for topic in topics:
            self._set_partitions(topic)

    def _apply_metadata(self, changes: MetadataChanges) -> None:
        for topic in changes.recreated:
            self.sender.topic_recreated(topic)
        for topic in sorted({*changes.grown, *self._leaderless}) if changes.leaders or changes.grown else ():
            if self.accumulator.partitions_of(topic) is not None or topic in self.accumulator.unassigned:
                self._set_partitions(topic)
        for topic, code in changes.failed.items():
            if not error_class(code).retriable:
                text = with_right(code, f"topic {topic!r}: {error_class(code).code.message}", "write", topic)
                self._fail_topic(topic, error_for(code, text))
        codes = changes.failed.items()
        self._forget_unused({topic for topic, code in codes if code in ABSENT or not error_class(code).retriable})
        self.sender.leaders_changed()
        self.schedule()

    def _forget_unused(self, absent: Collection[str]) -> None:
        """Forget the topics without records for too long, at once those that the brokers do not know either."""
        now = self._loop.time()
        unused = self.accumulator.unused_topics()
        self._unused_since = {topic: self._unused_since.get(topic, now) for topic in unused}
        for topic, since in self._unused_since.items():
            if topic in absent or since + self._settings.topic_max_idle_s <= now:
                self._forget(topic)

    def _forget(self, topic: str) -> None:
        if self.transactions is not None and not self.transactions.driver.forget_sequences():
            return
        if self.sender.forget_topic(topic):
            self._leaderless.discard(topic)
            self._client.drop_topics([topic])

    def _rejected(self, error: AuthenticationError) -> None:
        """No broker accepts the credentials: records of topics without metadata fail."""
        for topic in list(self.accumulator.unassigned):
            self._fail_topic(topic, error)
        self.schedule()

    def _set_partitions(self, topic: str) -> None:
        """Take over the partitions of a topic from the view, if it is there, and which of them have leaders."""
        view = self._client.view.topics.get(topic)
        if view is None or not view.partitions:
            return
        count = len(view.partitions)
        available = [number for number, each in enumerate(view.partitions) if each.leader != NO_LEADER]
        known = self.accumulator.partitions_of(topic)
        if known is not None and count < len(known):
            self._remove_partitions(topic, count)
        for batch in self.accumulator.set_partitions(topic, count, available):
            if batch.error is not None:
                self.sender.error_of_records(batch.error)  # a transaction must not be committed without them
            self._failed(batch)
        self._requested.discard(topic)
        if len(available) < count:
            self._leaderless.add(topic)
        else:
            self._leaderless.discard(topic)

    def _remove_partitions(self, topic: str, count: int) -> None:
        """The topic was deleted and created again with fewer partitions."""
        error = error_for(
            KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was deleted and created again with {count} partitions"
        )
        self.sender.partitions_removed(self.accumulator.remove_partitions(topic, count), error)

    def _fail_topic(self, topic: str, error: KafkaError) -> None:
        self._requested.discard(topic)
        if topic in self.accumulator.unassigned:
            self._failed(self.accumulator.fail_topic(topic, self.sender.error_of_records(error)))
            self._client.drop_topics([topic])
        else:
            self.sender.fail_topic(topic, error)

    def _compressed(self, batch: ProducerBatch) -> None:
        self.sender.compressed(batch)
        self.schedule()

    # failures

    def _failed(self, batch: ProducerBatch) -> None:
        self._failures.add(batch)
        if self._stages is not None:
            self._stages.ended(batch, batch.error_copy())
        self.accumulator.must_wait = True
        self._loop.call_soon(self._report_failures)

    def _report_failures(self) -> None:
        """Pass failures to `on_error`, one iteration late: tasks that await a record have registered by then."""
        for failed in self._failures.take_unreported():
            if self._on_error is not None and failed.unobserved:
                self._loop.call_soon(self._on_error, failed)

    def raise_failures(self) -> None:
        """Raise the error of records that no user has seen, or of a transaction that must be aborted."""
        if self.transactions is not None:
            self.transactions.raise_error()
        self.accumulator.must_wait = False
        error = self._failures.take_error()
        if error is not None:
            raise error

    # waiting

    async def _wait_for_space(self) -> None:
        """Continue `drain`: raise failures, and wait for space."""
        self.raise_failures()
        await self.space()
        self.raise_failures()

    async def space(self) -> None:
        """Wait until half of a full buffer is free, or the topic of the last record has space."""
        accumulator, half = self.accumulator, self.accumulator.buffer_memory // 2
        topic = accumulator.limited_topic
        full = accumulator.buffered >= accumulator.buffer_memory

        def has_space() -> bool:
            return (not full or accumulator.buffered <= half) and (topic is None or accumulator.has_space(topic))

        if has_space():
            return
        self._counts.drains += 1
        text = f"{accumulator.buffered} bytes are not acknowledged, {accumulator.buffer_memory} are allowed"
        await self.until(has_space, self._settings.max_block_s, f"{text}, and no space within max_block_ms")

    async def iteration(self) -> None:
        """Let the event loop run one iteration, in which batches leave."""
        await asyncio.sleep(0)

    async def flush(self, timeout_s: float | None) -> None:
        """Wait until all records that were sent before have their outcomes.

        Raises:
            KafkaTimeoutError: the time has passed.
        """
        accumulator = self.accumulator
        topics = set(accumulator.unassigned)
        text = "flush: records are not acknowledged in time"
        until = self._loop.time() + timeout_s if timeout_s is not None else None
        await self.until(lambda: topics.isdisjoint(accumulator.unassigned), timeout_s, text)
        newest = accumulator.opened
        left_s = None if until is None else max(0.0, until - self._loop.time())
        await self.until(lambda: accumulator.oldest_incomplete() > newest, left_s, text)

    async def wait_for(self, futures: Iterable[FutureRecordMetadata]) -> None:
        """Wait until these records have their outcomes."""
        pending = list(futures)

        def all_ended() -> bool:
            while pending and pending[-1].done():
                pending.pop()
            return not pending

        await self.until(all_ended, None, "")

    async def until(self, condition: Callable[[], bool], timeout_s: float | None, text: str) -> None:
        """Wait for a condition; meanwhile no batch lingers.

        Arguments:
            condition: evaluated after each change.
            timeout_s: in seconds, None = the condition ends in time by itself.
            text: of the KafkaTimeoutError.
        """
        self._urgent += 1
        self.schedule()
        try:
            await self._waiters.until(condition, timeout_s, text)
        finally:
            self._urgent -= 1

    # end

    def _fail_all(self, error: KafkaError) -> None:
        for topic in list(self.accumulator.unassigned):
            self._fail_topic(topic, error)
        self.accumulator.close_batches(inf)
        self.sender.close(error)

    def refuse_records(self) -> None:
        """Reject further records, also of transactions that begin later."""
        if self.transactions is not None:
            self.transactions.closing = True
        self.accumulator.close()

    def fail_records(self, reason: str) -> None:
        """Fail the records that have not left; those of open requests fail when the client closes."""
        self._fail_all(KafkaTimeoutError(f"the records of a closed producer have failed: {reason}"))

    def end(self) -> None:
        """Release timer and threads. The client is closed."""
        self._ended = True
        self._alarm.cancel()
        self._client.on_metadata.remove(self._metadata_changed)
        self._client.on_rejected.remove(self._rejected)
        self._compression.end()
        if self.transactions is not None:
            self.transactions.machine.close(self._refused_by)
        self._waiters.check()
        self._report_failures()

    def metrics(self) -> ProducerMetrics:
        """Return the counters."""
        sender, accumulator = self.sender, self.accumulator
        return ProducerMetrics(
            buffered_bytes=accumulator.buffered,
            buffer_memory=accumulator.buffer_memory,
            records_acknowledged=sender.records_acknowledged,
            records_failed=self._failures.records_count,
            batches_acknowledged=sender.acknowledged,
            batches_retried=sender.retried,
            batches_divided=sender.divided,
            requests_sent=self._counts.requests,
            requests_open=sender.open_requests,
            bytes_sent=self._counts.bytes,
            request_seconds=self._counts.seconds,
            drains_waited=self._counts.drains,
            producer_id=sender.producer_id.producer_id,
            producer_epoch=sender.producer_id.epoch,
        )


def _sender_type(settings: ProducerSettings) -> type[Sender]:
    if settings.transactional_id is None:
        return Sender
    from kafkalite_sdk.producer.transactions.records import TransactionalSender

    return TransactionalSender
