"""Questions of the application about offsets, and commits that it waits for. Each has a deadline.

None of them needs a poll: the timer between polls sends what they need.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, TypeVar

from kafkalite.errors import (
    ClientUseError,
    KafkaError,
    KafkaErrorCode,
    KafkaTimeoutError,
    UnsupportedVersionError,
    error_for,
)
from kafkalite.model import TopicPartition
from kafkalite.net.client.connection import completing
from kafkalite_sdk.client.arguments import check_seconds
from kafkalite_sdk.client.coordinators import GROUP
from kafkalite_sdk.consumer.arguments import offset_of, partition_of
from kafkalite_sdk.consumer.driver import AnyDriver
from kafkalite_sdk.consumer.offsets.positions import PartitionState
from kafkalite_sdk.values import ListedOffset, OffsetAndMetadata

if TYPE_CHECKING:
    from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest, RewindConsumerResponse
    from kafkalite_sdk.consumer.group_requests import GroupRequests
    from kafkalite_sdk.consumer.offsets.committed_offsets import Committed

T = TypeVar("T")
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
COORDINATOR_ERRORS = (
    KafkaErrorCode.NOT_COORDINATOR,
    KafkaErrorCode.COORDINATOR_NOT_AVAILABLE,
    KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Queries:
    """The questions of one application.

    Arguments:
        driver: of the consumer.
    """

    def __init__(self, driver: AnyDriver) -> None:
        self._driver = driver

    def group(self) -> "GroupRequests":
        """The requests to the coordinator. Raises ClientUseError for a consumer without a group."""
        if self._driver.group is None:
            raise ClientUseError('this Consumer has no group; create it with group="name" to commit and to subscribe')
        return self._driver.group

    def offsets_of(self, what: str | TopicPartition | Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit; `what` as in `Consumer.commit`."""
        if isinstance(what, Mapping):
            return {partition_of(each): offset_of(each, offset) for each, offset in what.items()}
        self.group()
        consumed = self._driver.consumed_offsets()
        if what is None:
            return consumed
        if isinstance(what, str):
            return {each: offset for each, offset in consumed.items() if each.topic == what}
        state = self.state_of(what)
        return {what: consumed[what]} if state.topic_partition in consumed else {}

    def state_of(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition. Raises ClientUseError: it is not assigned."""
        state = self._driver.positions.states.get(partition_of(partition))
        if state is None or state.revoking:
            raise ClientUseError(f"{partition} is not assigned to this Consumer; see assignment()")
        return state

    def _deadline(self, timeout_s: float | None) -> float:
        if timeout_s is not None:
            check_seconds("timeout", timeout_s)
        seconds = self._driver.settings.client.default_api_timeout_s if timeout_s is None else timeout_s
        return self._driver.now() + seconds

    async def _until(self, complete: Callable[[], bool], deadline: float, subject: str) -> None:
        """Wait until a condition holds. Raises KafkaTimeoutError at the deadline."""
        driver = self._driver
        while True:
            driver.work()
            if complete():
                return
            if driver.now() >= deadline:
                raise KafkaTimeoutError(
                    f"{subject}: no answer in time; is a broker reachable, and does the topic exist?"
                )
            await driver.wait(deadline)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None) -> None:
        """Commit offsets and wait for the outcome.

        Arguments:
            offsets: by partition.
            timeout_s: None = `default_api_timeout_s`.
        """
        outcome: list[KafkaError | None] = []
        self.commit_nowait(offsets, outcome.append, timeout_s)
        while True:
            self._driver.work()  # also after the outcome: other commits may wait behind this one
            if outcome:
                break
            await self._driver.wait(inf)  # the commit has a deadline of its own
        if outcome[0] is not None:
            raise outcome[0]

    def commit_nowait(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        done: Callable[[KafkaError | None], object],
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets.

        Arguments:
            offsets: by partition.
            done: called with None or the error.
            timeout_s: None = `default_api_timeout_s`.
        """
        driver, group = self._driver, self.group()

        def ended(error: KafkaError | None) -> None:
            if error is None:
                driver.positions.committed(offsets)
            driver.changed()
            try:
                done(error)
            except Exception as failure:  # of the application; other commits of the same request end, too
                message = "a callback of commit_nowait() has raised"
                driver.client.loop.call_exception_handler({"message": message, "exception": failure})

        if group.identity() is None and offsets:
            raise group.no_member()
        group.commits.commit(offsets, self._deadline(timeout_s), ended)
        driver.work()

    async def read_committed(self, partitions: Collection[TopicPartition], timeout_s: float | None) -> "Committed":
        """Read the committed offsets of the group.

        Arguments:
            partitions: those of interest.
            timeout_s: None = `default_api_timeout_s`.
        """
        committed = self.group().committed
        outcome: list[Committed | KafkaError] = []
        question = committed.fetch(partitions, outcome.append)
        try:
            await self._until(lambda: bool(outcome), self._deadline(timeout_s), "committed offsets")
        finally:
            committed.cancel(question)
        if isinstance(outcome[0], KafkaError):
            raise outcome[0]
        return outcome[0]

    async def find_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, ListedOffset]:
        """Find offsets by time, also of partitions that are not assigned.

        Arguments:
            timestamps: in ms; -1 = the end of the log, -2 = its beginning.
            timeout_s: None = `default_api_timeout_s`.
        """
        driver = self._driver
        outcomes: dict[TopicPartition, ListedOffset | KafkaError] = {}
        topics = {each.topic for each in timestamps}

        def receiver(each: TopicPartition) -> Callable[[ListedOffset | KafkaError], object]:
            return lambda outcome: outcomes.__setitem__(each, outcome)

        driver.use_temporarily(topics)
        lookups = [driver.offsets.find(each, timestamp, receiver(each)) for each, timestamp in timestamps.items()]
        try:
            missing = ", ".join(map(str, timestamps))
            await self._until(
                lambda: len(outcomes) == len(timestamps), self._deadline(timeout_s), f"offsets of {missing}"
            )
        finally:
            for lookup in lookups:
                driver.offsets.cancel(lookup)
            driver.end_use(topics)
        found = {}
        for each, outcome in outcomes.items():
            if isinstance(outcome, KafkaError):
                raise outcome
            found[each] = outcome
        return found

    async def position(self, topic_partition: TopicPartition, timeout_s: float | None) -> int:
        """Return the offset of the next record that the application receives; wait until it is known.

        Arguments:
            topic_partition: an assigned partition.
            timeout_s: None = `default_api_timeout_s`.
        """
        driver = self._driver

        def known() -> bool:
            if (error := driver.resolver.take_error(topic_partition)) is not None:
                raise error
            return topic_partition in driver.consumed_offsets() or topic_partition not in driver.positions.states

        await self._until(known, self._deadline(timeout_s), f"position of {topic_partition}")
        consumed = driver.consumed_offsets()
        if topic_partition not in consumed:
            raise ClientUseError(f"{topic_partition} is not assigned to this Consumer")
        return consumed[topic_partition].offset

    async def rewind(
        self, targets: Mapping[TopicPartition, tuple[int, int]], timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        """Set committed offsets of the group, also while it has members (kafkalite only).

        Arguments:
            targets: offset and timestamp by partition; offset -1 = by the timestamp, in ms.
            timeout_s: None = `default_api_timeout_s`.

        Returns: the committed offsets.
        """
        from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest  # few programs rewind

        rewound = RewindConsumerRequest.RewoundTopic
        topics: dict[str, RewindConsumerRequest.RewoundTopic] = {}
        for (name, partition), (offset, timestamp) in targets.items():
            topics.setdefault(name, rewound(name=name, partitions=[])).partitions.append(
                rewound.RewoundPartition(partition_index=partition, offset=offset, timestamp=timestamp)
            )
        group, driver = self.group().group, self._driver
        request = RewindConsumerRequest(group_id=group, topics=list(topics.values()))
        pause_s = driver.settings.client.retry_backoff_s
        try:
            async with asyncio.timeout_at(self._deadline(timeout_s)):
                while True:
                    response = await self._ask_coordinator(group, request)
                    codes = {each.error_code for topic in response.topics for each in topic.partitions}
                    if codes.isdisjoint(COORDINATOR_ERRORS):
                        return _rewound(response)
                    driver.client.forget_coordinator(group)
                    await asyncio.sleep(pause_s)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"group {group} was not rewound in time") from error

    async def _ask_coordinator(self, group: str, request: "RewindConsumerRequest") -> "RewindConsumerResponse":
        client = self._driver.client
        found: asyncio.Future[int] = client.loop.create_future()
        client.find_coordinator(group, GROUP, *completing(found))
        try:
            response: RewindConsumerResponse = await client.call(await found, request)
        except UnsupportedVersionError as error:
            text = f"group {group}: rewind() needs kafkalite; on Apache Kafka stop the group and commit offsets"
            raise error_for(KafkaErrorCode.UNSUPPORTED_VERSION, text) from error
        return response


def _rewound(response: "RewindConsumerResponse") -> dict[TopicPartition, int]:
    """The committed offsets of a response. Raises the error of a partition."""
    offsets = {}
    for topic in response.topics:
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                raise error_for(each.error_code, f"{name} was not rewound")
            offsets[name] = each.offset
    return offsets
