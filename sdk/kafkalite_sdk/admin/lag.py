"""The lag of groups: in records, and as the age of the first record that is not committed."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from kafkalite.errors import KafkaError, KafkaErrorCode
from kafkalite.model import READ_COMMITTED, TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkalite.records import batches
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.group_offsets import BY_NAME, FetchGroup, GroupOffsets
from kafkalite_sdk.admin.group_types import Committed, GroupDescription, GroupLag, PartitionLag
from kafkalite_sdk.admin.operation import Operation, by_topic, check_result, is_address
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.admin.partitions import EARLIEST, LATEST, Partitions

FetchTopic = FetchRequest.FetchTopic


class DescribeGroups(Protocol):
    """`Groups.describe`."""

    def __call__(self, *groups: str, timeout: float | None) -> Awaitable[Outcomes[str, GroupDescription]]: ...


class Lag:
    """Computes the lag of groups.

    Arguments:
        driver: sends the requests.
        describe: describes groups.
    """

    def __init__(self, driver: Driver, describe: DescribeGroups) -> None:
        self._driver = driver
        self._describe = describe
        self._partitions = Partitions(driver)

    async def of_groups(
        self, groups: Collection[str], *, ages: bool, transactions: bool = False, timeout: float | None
    ) -> Outcomes[str, GroupLag]:
        """Describe groups with their lag.

        Arguments:
            groups: their ids.
            ages: the age of the first record that is not committed is included, which fetches it.
            transactions: last stable offsets and pending offsets are included.
            timeout: deadline in seconds; None = `default_api_timeout_ms`.
        """
        left_s = self._driver.countdown(timeout)
        described = await self._describe(*groups, timeout=left_s())
        committed = await GroupOffsets(self._driver).list(*described.results, timeout=left_s())
        offsets = committed.results
        wanted = {each for name, group in described.results.items() for each in {*offsets.get(name, ()), *group.owners}}
        starts, ends, unknown = await self._bounds(wanted, left_s)
        stable: Mapping[TopicPartition, int] = {}
        pending: Mapping[str, frozenset[TopicPartition]] = {}
        if transactions:
            named = {name: {*own, *described[name].owners} for name, own in offsets.items()}
            stable, pending = await self._stable_ends(ends, left_s()), await self._pending(named, left_s())
        ended: dict[str, GroupLag | KafkaError] = {**described.errors, **committed.errors}
        for name, own in offsets.items():
            behind = {
                each: max(own[each].offset, starts[each])
                for each in own
                if each in starts and each in ends and own[each].offset < ends[each]
            }
            found_ages = await self._ages_s(behind, left_s()) if ages else {}
            lag = _lag_of(described[name], own, starts, ends, found_ages, unknown)
            ended[name] = _with_transactions(lag, stable, pending.get(name)) if transactions else lag
        return Outcomes(ended)

    async def _stable_ends(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, int]:
        """Return the last stable offsets; those of leaders that do not answer are unknown."""
        latest = dict.fromkeys(partitions, LATEST)
        found = await self._partitions.offsets(latest, isolation_level="read_committed", timeout=timeout_s)
        found.ignore_errors()
        return {each: listed.offset for each, listed in found.results.items()}

    async def _pending(
        self, partitions: Mapping[str, Collection[TopicPartition]], timeout_s: float
    ) -> Mapping[str, frozenset[TopicPartition]]:
        """Return the partitions of groups with offsets of open transactions; those of other groups are unknown.

        They are named in the request: a coordinator leaves out those that have no committed offset else.
        """

        def build(names: Collection[str]) -> OffsetFetchRequest:
            groups = [
                FetchGroup(
                    group_id=name,
                    topics=[
                        FetchGroup.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                        for topic, numbers in by_topic(partitions[name]).items()
                    ],
                )
                for name in names
            ]
            return OffsetFetchRequest(groups=groups, require_stable=True)

        operation: Operation[str, frozenset[TopicPartition]] = Operation(
            OffsetFetchRequest, build, _pending_partitions, is_address, version_max=BY_NAME
        )
        found = await self._driver.run(operation, [name for name, each in partitions.items() if each], timeout_s)
        found.ignore_errors()
        return found.results

    async def _bounds(
        self, partitions: Collection[TopicPartition], left_s: Callable[[], float]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        """Return the first and the end offset of each partition, and the error of those that have none."""
        wanted = dict.fromkeys(sorted(partitions), EARLIEST)
        starts = await self._partitions.offsets(wanted, timeout=left_s() / 2)  # leaves time for those that answer
        ends = await self._partitions.offsets(dict.fromkeys(starts.results, LATEST), timeout=left_s())
        found = [{each: listed.offset for each, listed in one.results.items()} for one in (starts, ends)]
        return found[0], found[1], {**starts.errors, **ends.errors}

    async def _ages_s(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, float]:
        """Return the age of the first record from each position on, without partitions whose next batch has none."""

        def build(keys: list[TopicPartition]) -> FetchRequest:
            (key,) = keys
            wanted = FetchTopic.FetchPartition(
                partition=key.partition, fetch_offset=positions[key], partition_max_bytes=1
            )
            topic = FetchTopic(topic=key.topic, topic_id=self._driver.topic_ids[key.topic], partitions=[wanted])
            return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=READ_COMMITTED, topics=[topic])

        def read(response: FetchResponse, keys: list[TopicPartition]) -> Iterator[tuple[TopicPartition, int | None]]:
            yield keys[0], _first_timestamp(response, positions[keys[0]])

        operation: Operation[TopicPartition, int | None] = Operation(FetchRequest, build, read, is_address, single=True)
        found = await self._driver.run(operation, positions, timeout_s)
        found.ignore_errors()  # the age is unknown then
        now_ms = self._driver.client.environment.now_ms()
        stamps = {each: stamp for each, stamp in found.results.items() if stamp is not None}
        return {each: max(now_ms - stamp, 0) / 1000 for each, stamp in stamps.items()}


def _pending_partitions(
    response: OffsetFetchResponse, _: object
) -> Iterator[tuple[str, frozenset[TopicPartition] | KafkaError]]:
    for group in response.groups:
        pending = frozenset(
            TopicPartition(topic.name, each.partition_index)
            for topic in group.topics
            for each in topic.partitions
            if each.error_code == KafkaErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        yield group.group_id, check_result(group.error_code, None, pending)


def _with_transactions(
    lag: GroupLag, stable: Mapping[TopicPartition, int], pending: Collection[TopicPartition] | None
) -> GroupLag:
    partitions = {
        partition: replace(
            each, stable_end=stable.get(partition), is_pending=None if pending is None else partition in pending
        )
        for partition, each in lag.partitions.items()
    }
    return replace(lag, partitions=partitions)


def _first_timestamp(response: FetchResponse, offset: int) -> int | None:
    """Return the timestamp in ms of the first record from an offset on; None if the batch has no such record."""
    for found in (each for topic in response.responses for each in topic.partitions):
        if found.error_code:
            return None
        for batch in batches(bytes(found.records or b"")):
            if batch.control:
                continue
            for record in batch:
                if record.offset >= offset:
                    return int(record.timestamp)
    return None


def _lag_of(
    group: GroupDescription,
    committed: Mapping[TopicPartition, Committed],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    ages_s: Mapping[TopicPartition, float],
    unknown: Mapping[TopicPartition, KafkaError],
) -> GroupLag:
    owners = group.owners
    partitions = {}
    for each in sorted({*committed, *owners}):
        own, end = committed.get(each), ends.get(each)
        lag = None if own is None or end is None else max(end - own.offset, 0)
        age_s = 0.0 if lag == 0 else ages_s.get(each)
        partitions[each] = PartitionLag(own, starts.get(each), end, lag, age_s, owners.get(each), unknown.get(each))
    return GroupLag(group, partitions)
