"""aiokafka's `AIOKafkaConsumer` on the engine of `kafkalite_sdk.Consumer`.

Invariants:
1. `getone`, `getmany` and `async for` share one lock; the fast path of `getone` and `async for`, which takes a record
   that was fetched before, needs none.
2. The classic group protocol is spoken, so that members of aiokafka and of this class share a group.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import Any, Self

from kafkalite.errors import ClientUseError, KafkaError, KafkaErrorCode, MaxPollIntervalExceededError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.aiokafka_records import ConsumerRecord, converted, converted_by_partition
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.compat.aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from kafkalite_sdk.compat.aiokafka.background import GrouplessSubscription, ListenerAdapter, Rebalances
from kafkalite_sdk.compat.aiokafka.consumer.options import new_consumer
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafkalite_sdk.compat.aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalOperation
from kafkalite_sdk.compat.aiokafka.installation import VERSION
from kafkalite_sdk.compat.aiokafka.structs import OffsetAndMetadata, OffsetAndTimestamp
from kafkalite_sdk.compat.aiokafka.topics import all_topics, partitions_of, wait_for_topic
from kafkalite_sdk.compat.aiokafka.util import commit_structure_validate
from kafkalite_sdk.consumer import offset_and_metadata as engine
from kafkalite_sdk.consumer.driver import AnyDriver
from kafkalite_sdk.membership.settings import MemberIdentity

log = logging.getLogger("kafkalite_sdk.compat.aiokafka")

ALL_RECORDS = 1 << 30
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


class AIOKafkaConsumer:
    """Reads records of topics, alone or in a group; see aiokafka's documentation and docs/aiokafka.md.

    Arguments: those of aiokafka 0.14, with its defaults. Times are in ms, sizes in bytes.
        rebalance_timeout_ms, consumer_timeout_ms, api_version, loop: accepted without effect.
        exclude_internal_topics: False is rejected; name internal topics instead.
        sasl_mechanism: "GSSAPI" is rejected.
    """

    _closed = False
    _topics: frozenset[str] = frozenset()
    _leaving: asyncio.Task[None] | None = None

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
        asyncio.get_running_loop()
        self._consumer = new_consumer(self.subscription, **arguments)
        self._group_id = group_id
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._max_poll_records = max_poll_records
        self._request_timeout_s = request_timeout_ms / 1000
        self._lock = asyncio.Lock()
        self._driver = self._consumer._driver
        self._records = self._consumer._iteration
        changes = self._consumer._loop._changes
        self._rebalances = None if changes is None else Rebalances(self._driver, changes, self._lock)
        self._groupless = GrouplessSubscription(self._driver) if group_id is None else None
        self._listener = ListenerAdapter(None, self._driver)
        self._coordinator = _Coordinator(self._driver)
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Connect, wait for the topics, and join the group.

        Raises: KafkaConnectionError, and what the group fails with.
        """
        await self._consumer.start()
        try:
            for topic in sorted(self._topics):
                await wait_for_topic(self._driver.client, topic, self._request_timeout_s)
            if self._groupless is not None:
                self._groupless.follow()
            elif self._rebalances is not None and self._driver.group is not None and self._driver.group.subscribed:
                async with self._lock:
                    await self._rebalances.joined()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Commit what was returned with automatic commits, leave the group, and close the connections.

        Raises: ClientUseError inside a rebalance listener.
        """
        if self._closed:
            return
        if self._rebalances is not None:
            self._rebalances.check_not_in_listener()
        self._closed = True
        self._listener.enabled = False
        if self._rebalances is not None:
            await self._rebalances.stop()
        if self._leaving is not None:
            await asyncio.wait([self._leaving])
        await self._consumer.close()
        self._records.clear()

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
        if bool(topics) == bool(pattern):
            raise TypeError("pass either `topics` or `pattern`")
        if not isinstance(topics, tuple | set | list | frozenset):
            raise TypeError("`topics` should be a list of names")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("`listener` should be a ConsumerRebalanceListener")
        self._topics = frozenset(topics)
        self._listener = ListenerAdapter(listener, self._driver)
        if self._groupless is not None:
            if self._driver.positions.states and not self._groupless.active:
                raise ClientUseError("partitions are assigned by assign(); call unsubscribe() before subscribe()")
            self._groupless.subscribe(self._topics, pattern)
        elif pattern is not None:
            self._consumer.subscribe(pattern=f"(?:{pattern}).*", listener=self._listener)
        else:
            self._consumer.subscribe(self._topics, listener=self._listener)

    def subscription(self) -> frozenset[str]:
        """Return the names of the subscribed topics."""
        group = self._driver.group
        if self._topics or group is None or not group.subscribed:
            return self._topics
        return frozenset(group.membership.topics)

    def unsubscribe(self) -> None:
        """End the subscription or assignment; the member leaves its group in the background."""
        self._topics = frozenset()
        if self._groupless is not None:
            self._groupless.unsubscribe()
        else:
            self._leaving = self._driver.client.loop.create_task(self._leave())

    async def _leave(self) -> None:
        self._consumer._loop.interrupt()  # a task that waits for a record holds the lock
        try:
            async with self._lock:
                await self._consumer.unsubscribe()
        except Exception:
            log.exception("the consumer has not left its group")

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises IllegalStateError after `subscribe`."""
        if self._groupless is not None and self._groupless.active:
            raise ClientUseError("topics are subscribed; call unsubscribe() before assign()")
        self._consumer.assign(list(partitions))

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read."""
        return set(self._driver.assignment())

    # records

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Return the next record; wait for it.

        Arguments:
            partitions: whose record is returned; none = all that are assigned.

        Raises: ConsumerStoppedError when the consumer is stopped; KafkaError of a partition or of the group.
        """
        if self._records and not self._driver.attention and not partitions:
            self._driver.iterated = True
            return self._converted(self._records.pop())
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
            timeout_ms: longest time to wait for the first record.
            max_records: None = `max_poll_records`, or all that were fetched.

        Raises: as `getone`; ValueError.
        """
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError(f"max_records is {max_records!r}, expected an int above 0")
        records_max = max_records or self._max_poll_records or ALL_RECORDS
        records = await self._poll(timeout_ms / 1000, records_max, frozenset(partitions))
        return converted_by_partition(records, self._key_deserializer, self._value_deserializer)

    async def _poll(
        self, timeout_s: float, records_max: int, only: frozenset[TopicPartition]
    ) -> list[Record[bytes, bytes]]:
        """Poll the engine; only one task at a time does."""
        if self._closed:
            raise ConsumerStoppedError
        async with self._lock:
            while True:
                try:
                    return await self._consumer._loop.poll(timeout_s, records_max, only)
                except MaxPollIntervalExceededError as error:
                    log.warning("%s", error)
                except ClientUseError:
                    if self._closed:
                        raise ConsumerStoppedError from None
                    raise

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
        assigned = self._driver.assignment()
        if not assigned:
            raise ClientUseError("no partitions are assigned; there is nothing to commit")
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
        return await self._consumer.position(partition, timeout=self._request_timeout_s)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset. Raises ValueError, IllegalStateError."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"the offset is {offset!r}, expected an int, 0 or more")
        self._consumer.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first records (none named = of all assigned partitions)."""
        self._consumer.seek_to_beginning(*self._checked(partitions))
        return await self._positions_known(partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue behind the last records (none named = of all assigned partitions)."""
        self._consumer.seek_to_end(*self._checked(partitions))
        return await self._positions_known(partitions)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets (none named = of all assigned partitions), and return them."""
        self._check_group()
        found = await self._consumer.committed(self._checked(partitions) or sorted(self._driver.assignment()))
        for each, committed in found.items():
            if committed is not None:
                self._consumer.seek(each, committed)
        return {each: None if committed is None else committed.offset for each, committed in found.items()}

    def _checked(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        if not all(isinstance(each, TopicPartition) for each in partitions):
            raise TypeError("partitions must be TopicPartition objects")
        if not partitions and not self._driver.assignment():
            raise ClientUseError("no partitions are assigned")
        return partitions

    async def _positions_known(self, partitions: Sequence[TopicPartition]) -> bool:
        for each in partitions or sorted(self._driver.assignment()):
            await self.position(each)
        return True

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of the first records."""
        return await self._consumer.beginning_offsets(partitions, timeout=self._request_timeout_s)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets behind the last records."""
        return await self._consumer.end_offsets(partitions, timeout=self._request_timeout_s)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first records of a time in ms or later, None = there is none."""
        times = {each: int(timestamp) for each, timestamp in timestamps.items()}
        found = await self._consumer.offsets_for_times(times, timeout=self._request_timeout_s)
        return {
            each: None if offset is None else OffsetAndTimestamp(offset.offset, offset.timestamp_ms)
            for each, offset in found.items()
        }

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of partitions until `resume`."""
        if self._checked(partitions):
            self._consumer.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of partitions again."""
        if self._checked(partitions):
            self._consumer.resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._consumer.paused())

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset behind the last record that consumers may read, as the last response reports it."""
        return _known(self._consumer._queries.state_of(partition).high_watermark)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset, as the last response reports it."""
        return _known(self._consumer._queries.state_of(partition).last_stable_offset)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the last poll of the consumer in ms since 1970, None = there was none."""
        self._consumer._queries.state_of(partition)
        polled_at = self._consumer._loop.polled_at
        return None if polled_at == -inf else int((time.time() - self._driver.now() + polled_at) * 1000)

    # topics

    async def topics(self) -> set[str]:
        """Return the names of all topics of the cluster."""
        return await all_topics(self._driver.client)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic that the consumer reads, None = unknown."""
        return partitions_of(self._driver.client.view, topic)


class _Coordinator:
    """What programs read of aiokafka's coordinator.

    Arguments:
        driver: of the consumer.
    """

    def __init__(self, driver: AnyDriver) -> None:
        self._driver = driver

    @property
    def member_id(self) -> str:
        """The member id in the group, "" = not a member."""
        group = self._driver.group
        identity: MemberIdentity | None = None if group is None else group.membership.identity()
        return "" if identity is None else identity.member_id


def _commits(offsets: Offsets, assigned: frozenset[TopicPartition]) -> dict[TopicPartition, engine.OffsetAndMetadata]:
    found = commit_structure_validate(offsets)
    for each in found:
        if each not in assigned:
            raise ClientUseError(f"{each} is not assigned")
    return {each: engine.OffsetAndMetadata(offset.offset, offset.metadata) for each, offset in found.items()}


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset
