"""aiokafka's `AIOKafkaConsumer` on the engine of `kafkalite_sdk.Consumer`.

Invariants:
1. `getone`, `getmany` and `async for` share one lock; the fast path of `getone` and `async for`, which takes a record
   that was fetched before, needs none.
2. The classic group protocol is spoken, so that members of aiokafka and of this class share a group.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Self

from kafkalite.errors import ClientUseError, KafkaError, KafkaErrorCode, MaxPollIntervalExceededError
from kafkalite.model import TopicPartition
from kafkalite_sdk import values as engine
from kafkalite_sdk._speedups.aiokafka_records import ConsumerRecord, converted, converted_by_partition
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.client.closing import Closing
from kafkalite_sdk.client.topic_partitions import wait_for_topic
from kafkalite_sdk.compat.aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from kafkalite_sdk.compat.aiokafka.background import GrouplessSubscription, ListenerAdapter, Rebalances
from kafkalite_sdk.compat.aiokafka.consumer.internals import Coordinator, SubscriptionState
from kafkalite_sdk.compat.aiokafka.consumer.lookups import Lookups
from kafkalite_sdk.compat.aiokafka.consumer.options import new_consumer, subscribed_topics
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafkalite_sdk.compat.aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalOperation
from kafkalite_sdk.compat.aiokafka.group_leave import GroupLeave
from kafkalite_sdk.compat.aiokafka.installation import VERSION
from kafkalite_sdk.compat.aiokafka.structs import OffsetAndMetadata
from kafkalite_sdk.compat.aiokafka.util import commit_structure_validate
from kafkalite_sdk.consumer.application_calls import check_not_inside
from kafkalite_sdk.consumer.consumer import Consumer

LOGGER = logging.getLogger("kafkalite_sdk.compat.aiokafka")

ALL_RECORDS = 1 << 30
ELECTION_S = 5.0
"""How long `start` waits for the leaders of new partitions: those that are offline have none for longer."""
SEEK_EXTRA_S = 0.5  # for the request behind the one that was open at the seek
LOST_MEMBERSHIP = (
    KafkaErrorCode.ILLEGAL_GENERATION,
    KafkaErrorCode.STALE_MEMBER_EPOCH,
    KafkaErrorCode.UNKNOWN_MEMBER_ID,
    KafkaErrorCode.REBALANCE_IN_PROGRESS,
    KafkaErrorCode.FENCED_INSTANCE_ID,
)
Offsets = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]
Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]
Deserialize = Callable[[bytes | None], Any]


class AIOKafkaConsumer(Lookups):
    """Reads records of topics, alone or in a group; see aiokafka's documentation and docs/aiokafka.md.

    Arguments: those of aiokafka 0.14, with its defaults. Times are in ms, sizes in bytes.
        rebalance_timeout_ms, consumer_timeout_ms, api_version, loop: accepted without effect.
        sasl_mechanism: "GSSAPI" is rejected.
    """

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = f"aiokafka-{VERSION}",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Deserialize | None = None,
        value_deserializer: Deserialize | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1048576,
        request_timeout_ms: int = 40000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 300000,
        partition_assignment_strategy: Sequence[type[AbstractPartitionAssignor]] = (RoundRobinPartitionAssignor,),
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: Any = None,
        security_protocol: str = "PLAINTEXT",
        api_version: str | None = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int = 540000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
        client_rack: str | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "topics")}
        super().__init__(loop, "AIOKafkaConsumer")
        self._closed = False
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._max_poll_records = max_poll_records
        self._fetch_max_wait_s = fetch_max_wait_ms / 1000
        self._request_timeout_s = request_timeout_ms / 1000
        self._build(arguments, internal=not exclude_internal_topics)
        if topics:
            self.subscribe(topics)

    def _build(self, arguments: dict[str, Any], *, internal: bool) -> None:
        """Create the engine and what surrounds it; `internal`: patterns match internal topics, too."""
        self._lock = asyncio.Lock()
        self._sought_until = -inf
        self._wanted: frozenset[str] = frozenset()
        self._consumer = new_consumer(lambda: topics_of(), **arguments)
        self._driver = self._consumer._driver
        self._stopping: Closing[None] = Closing(self._driver.client.owner, "AIOKafkaConsumer")
        self._records = self._consumer._iteration
        changes = self._consumer._loop._changes
        self._rebalances = None if changes is None else Rebalances(self._driver, changes, self._lock)
        self._groupless = None if self._group_id is not None else GrouplessSubscription(self._driver, internal=internal)
        self._subscription = subscription = SubscriptionState(self._driver, self._groupless)

        def topics_of() -> frozenset[str]:  # not a method: a reference to this object would keep it from being deleted
            return subscription.topics

        self._group_leave = GroupLeave(self._driver, partial(_leave, self._consumer, self._lock))
        self._listener = ListenerAdapter(None, self._driver)
        self._coordinator = Coordinator(self._driver, self._group_id)
        if self._driver.group is not None:
            self._driver.group.membership.report_rebalances()
            if internal:
                self._driver.group.membership.match_internal_topics()

    async def start(self) -> None:
        """Connect, wait for the topics, join the group, and find the positions: later records are returned.

        Raises: KafkaConnectionError, UnknownTopicOrPartitionError, and what the group fails with.
        """
        self._open()
        await self._driver.start(None)
        try:
            for topic in sorted(self._wanted):
                await wait_for_topic(self._driver.client, topic, self._request_timeout_s)
            self._consumer._subscriptions.start()  # a member that joins before its topics exist joins twice
            if self._groupless is not None:
                self._groupless.follow()
            elif self._rebalances is not None and self._driver.group is not None and self._driver.group.subscribed:
                async with self._lock:
                    await self._rebalances.joined()
            await self._positions_found()
        except BaseException:
            await self.stop()
            raise

    async def _positions_found(self) -> None:
        """Wait until each partition has a position, or an error that the next call raises.

        It also waits for the leaders of new partitions, and until a further rebalance has ended: a position of
        `latest` that is asked for after `start` may be behind the first records.
        """
        driver, rebalances = self._driver, self._rebalances
        now = driver.now()
        elected_by, deadline = now + ELECTION_S, now + self._request_timeout_s
        while not self._closed and now < deadline:
            driver.work()
            rebalancing = rebalances is not None and rebalances.continues()
            if not rebalancing and not driver.resolver.waits(elections=now < elected_by):
                break
            await driver.wait(min(deadline, elected_by) if now < elected_by else deadline)
            now = driver.now()

    async def stop(self) -> None:
        """Commit what was returned with automatic commits, leave the group, and close the connections.

        A second call waits for the first one.

        Raises: ClientUseError inside a rebalance listener.
        """
        try:
            check_not_inside(self._driver)
        except ClientUseError:
            raise ClientUseError("a rebalance listener runs; call stop() after it has returned") from None
        self._closed = True
        self._listener.enabled = False
        await self._stopping.run(self._stop)

    async def _stop(self) -> None:
        try:
            await self._end()
        except BaseException as error:  # a cancellation does not wait for the group
            await self._consumer.close(None if isinstance(error, Exception) else 0.0)
            raise
        finally:
            self._records.clear()

    async def _end(self) -> None:
        if self._rebalances is not None:
            await self._rebalances.stop()
        await self._group_leave.ended()
        if self._driver.started:
            self._consumer._loop.interrupt()
            async with self._lock:  # the open poll ends
                await self._consumer.close()
        else:
            await self._consumer.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    # subscription

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read topics, in place of those before.

        Arguments:
            topics: a list, set or tuple of names.
            pattern: RE2 text for names that begin with a match, instead of names.
            listener: called before and after a rebalance.

        Raises: TypeError, ValueError for arguments that are not valid; IllegalStateError after `assign`.
        """
        names = subscribed_topics(topics, pattern, listener)
        if self._group_leave.assigned or (self._groupless and self._driver.assignment() and not self._groupless.active):
            raise ClientUseError("partitions are assigned by assign(); call unsubscribe() before subscribe()")
        self._create_topics(names)
        adapter = ListenerAdapter(listener, self._driver)
        if self._groupless is not None:
            self._groupless.subscribe(names, pattern)
        elif pattern is not None:
            self._group_leave.then(partial(self._consumer.subscribe, pattern=f"(?:{pattern}).*", listener=adapter))
        else:
            self._group_leave.then(partial(self._consumer.subscribe, names, listener=adapter))
        self._listener = adapter
        self._subscription.names = names

    def _create_topics(self, names: frozenset[str]) -> None:
        self._wanted = names
        self._group_leave.then(partial(self._driver.client.use_topics, sorted(names), create=True))

    def subscription(self) -> frozenset[str]:
        """Return the names of the subscribed topics."""
        return self._subscription.topics

    def unsubscribe(self) -> None:
        """End the subscription or assignment; the member leaves its group in the background."""
        self._subscription.names = self._wanted = frozenset()
        self._listener.enabled = False
        if self._groupless is not None:
            self._groupless.unsubscribe()
        if not self._consumer._subscriptions.started:
            self._consumer._subscriptions.forget()
        elif self._groupless is None:
            self._group_leave.begin()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; topics that do not exist are created. Raises IllegalStateError after
        `subscribe`.
        """
        if self._subscription.names or (self._groupless is not None and self._groupless.active):
            raise ClientUseError("topics are subscribed; call unsubscribe() before assign()")
        named = frozenset(partitions)
        self._create_topics(frozenset(each.topic for each in named))
        self._group_leave.then(partial(self._consumer.assign, named))
        if self._group_leave.active:
            self._group_leave.assigned = named

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read."""
        return set(self._group_leave.assigned if self._group_leave.active else self._driver.assignment())

    # records

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Return the next record; wait for it.

        Arguments:
            partitions: whose record is returned; none = all that are assigned.

        Raises: ConsumerStoppedError when the consumer is stopped; KafkaError of a partition or of the group.
        """
        if self._records and not self._driver.attention and not partitions:
            self._driver.iterated = record = self._records.pop()
            return self._converted(record)
        count = 1 if partitions else self._driver.settings.records_max
        records: list[Record[bytes, bytes]] = []
        while not records:  # `unsubscribe` interrupts a poll
            records = await self._poll(inf, count, frozenset(partitions))
        records.reverse()
        self._records += records
        return self._converted(self._records.pop())

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> Records:
        """Return records by partition.

        Arguments:
            partitions: whose records are returned; none = all that are assigned.
            timeout_ms: longest time to wait for the first record. After a seek, unless it is 0, at least the time
                that an open request to the broker may take.
            max_records: None = `max_poll_records`, or all that were fetched.

        Raises: as `getone`; ValueError.
        """
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError(f"max_records is {max_records!r}, expected an int above 0")
        records_max = max_records or self._max_poll_records or ALL_RECORDS
        timeout_s = timeout_ms / 1000
        if timeout_s and self._sought_until > -inf:
            timeout_s, self._sought_until = max(timeout_s, self._sought_until - self._driver.now()), -inf
        records = await self._poll(timeout_s, records_max, frozenset(partitions))
        try:
            return converted_by_partition(records, self._key_deserializer, self._value_deserializer)
        finally:
            records.reverse()
            self._records += records  # from a record on that its deserializer rejects

    async def _poll(
        self, timeout_s: float, records_max: int, only: frozenset[TopicPartition]
    ) -> list[Record[bytes, bytes]]:
        """Poll the engine; only one task at a time does. Return nothing if the consumer is stopped meanwhile."""
        if self._closed:
            raise ConsumerStoppedError
        self._driver.fetch_between_polls()  # not at the start: a seek would wait for the request that is open then
        await self._group_leave.ended()
        async with self._lock:
            while not self._closed:
                try:
                    return await self._consumer._loop.poll(timeout_s, records_max, only)
                except MaxPollIntervalExceededError as error:
                    LOGGER.warning("%s", error)
                except ClientUseError:
                    if not self._closed:
                        raise
        return []

    def _converted(self, record: Record[bytes, bytes]) -> ConsumerRecord[Any, Any]:
        return converted(record, self._key_deserializer, self._value_deserializer)

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerStoppedError
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    # commits

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets.

        Arguments:
            offsets: by partition the offset of the next record, or offset and metadata; None = of what was returned.

        Raises: CommitFailedError when the group has assigned the partitions to others; IllegalOperation without a
        group; IllegalStateError for partitions that are not assigned; ValueError, TypeError.
        """
        self._check_group()
        await self._group_leave.ended()
        assigned = self._driver.assignment()
        if not assigned and (self._driver.group is None or not self._driver.group.subscribed):
            raise ClientUseError("Not subscribed to any topics; there is nothing to commit")
        if not assigned:
            raise ClientUseError("No partitions assigned; there is nothing to commit")
        try:
            await self._consumer.commit(None if offsets is None else _commits(offsets, assigned))
        except KafkaError as error:
            if error.code in LOST_MEMBERSHIP:
                raise CommitFailedError(str(error)) from error
            raise

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group, None = none."""
        self._check_group()
        found = (await self._consumer.committed([partition]))[partition]
        return None if found is None else found.offset

    def _check_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("this call needs a consumer with group_id")

    # positions

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record. Raises IllegalStateError for a partition that is not assigned."""
        await self._group_leave.ended()
        while True:
            changes = self._driver.positions.changes
            try:
                return await self._consumer.position(partition, timeout=self._request_timeout_s)
            except ClientUseError:
                if self._rebalances is not None:
                    await self._rebalances.ended()  # the next assignment may have the partition
                if self._closed or changes == self._driver.positions.changes:
                    raise

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset. Raises ValueError, IllegalStateError."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"the offset is {offset!r}, expected an int, 0 or more")
        if self._group_leave.active and partition not in self._group_leave.assigned:
            raise ClientUseError(f"Partition {partition} is not assigned")
        self._group_leave.then(partial(self._consumer.seek, partition, offset))
        if self._driver.fetcher.waiting:
            self._sought_until = self._driver.now() + self._fetch_max_wait_s + SEEK_EXTRA_S

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first records (none named = of all assigned partitions)."""
        await self._group_leave.ended()
        self._consumer.seek_to_beginning(*self._checked(partitions))
        return await self._positions_known(partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue behind the last records (none named = of all assigned partitions)."""
        await self._group_leave.ended()
        self._consumer.seek_to_end(*self._checked(partitions))
        return await self._positions_known(partitions)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets (none named = of all assigned partitions), and return them."""
        await self._group_leave.ended()
        wanted = self._checked(partitions) or sorted(self._driver.assignment())
        for each in wanted:
            self._consumer._queries.state_of(each)  # raises IllegalStateError
        self._check_group()
        found = await self._consumer.committed(wanted)
        for each, committed in found.items():
            if committed is not None:
                self._consumer.seek(each, committed)
        return {each: None if committed is None else committed.offset for each, committed in found.items()}

    def _checked(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        if not all(isinstance(each, TopicPartition) for each in partitions):
            raise TypeError("partitions must be TopicPartition instances")
        if not partitions and not self.assignment():
            raise ClientUseError("no partitions are assigned")
        return partitions

    async def _positions_known(self, partitions: Sequence[TopicPartition]) -> bool:
        for each in partitions or sorted(self._driver.assignment()):
            await self.position(each)
        return True

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of partitions until `resume`."""
        if self._checked(partitions):
            self._group_leave.then(partial(self._consumer.pause, *partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of partitions again."""
        if self._checked(partitions):
            self._group_leave.then(partial(self._consumer.resume, *partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._consumer.paused())


async def _leave(consumer: Consumer[bytes, bytes], lock: asyncio.Lock) -> None:
    consumer._loop.interrupt()  # a task that waits for a record holds the lock
    async with lock:
        await consumer.unsubscribe()


def _commits(offsets: Offsets, assigned: frozenset[TopicPartition]) -> dict[TopicPartition, engine.OffsetAndMetadata]:
    found = commit_structure_validate(offsets)
    for each in found:
        if each not in assigned:
            raise ClientUseError(f"Partition {each} is not assigned")
    return {each: engine.OffsetAndMetadata(offset.offset, offset.metadata) for each, offset in found.items()}
