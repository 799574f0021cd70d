"""The committed offsets of groups: read, set, delete, rewind while the group has members."""

from collections.abc import Callable, Collection, Iterator, Mapping

from kafkalite.errors import KafkaError, error_for
from kafkalite.model import TopicPartition
from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest, RewindConsumerResponse
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.group_types import Committed
from kafkalite_sdk.admin.operation import Operation, is_address, no_result, require, results_by_partition, topics_of
from kafkalite_sdk.admin.outcomes import Outcomes

BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch that names topics."""

FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
RewoundTopic = RewindConsumerRequest.RewoundTopic
DeletedTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic


class GroupOffsets:
    """The committed offsets of groups.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def list(
        self, *groups: str, require_stable: bool = False, timeout: float | None = None
    ) -> Outcomes[str, dict[TopicPartition, Committed]]:
        """Return the committed offsets of groups, sorted by partition; none for a group that does not exist.

        Arguments:
            groups: their ids.
            require_stable: wait for the offsets of open transactions.
        """
        operation: Operation[str, dict[TopicPartition, Committed]] = Operation(
            OffsetFetchRequest,
            lambda names: OffsetFetchRequest(
                groups=[FetchGroup(group_id=name, topics=None) for name in names], require_stable=require_stable
            ),
            _listed,
            is_address,
            version_max=BY_NAME,
        )
        return await self._driver.run(operation, dict.fromkeys(groups), timeout)

    async def alter(
        self, group: str, offsets: Mapping[TopicPartition, int | Committed], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Commit offsets for a group without members, which is created if it does not exist.

        Arguments:
            group: its id.
            offsets: the next record to read, alone or with metadata.
        """
        wanted = {
            TopicPartition(*each): offset if isinstance(offset, Committed) else Committed(offset)
            for each, offset in offsets.items()
        }
        operation: Operation[TopicPartition, None] = Operation(
            OffsetCommitRequest,
            lambda keys: _commit(group, {key: wanted[key] for key in keys}),
            _committed,
            lambda _: group,
            version_max=BY_NAME,
        )
        return await self._driver.run(operation, wanted, timeout)

    async def delete(
        self, group: str, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Delete committed offsets; GroupSubscribedToTopicError: a member of the group reads the topic.

        Arguments:
            group: its id.
            partitions: whose offsets are deleted.
        """

        def build(keys: Collection[TopicPartition]) -> OffsetDeleteRequest:
            partition = DeletedTopic.OffsetDeleteRequestPartition
            topics = topics_of(keys, DeletedTopic, lambda each: partition(partition_index=each.partition))
            return OffsetDeleteRequest(group_id=group, topics=topics)

        operation: Operation[TopicPartition, None] = Operation(OffsetDeleteRequest, build, _deleted, lambda _: group)
        return await self._driver.run(operation, [TopicPartition(*each) for each in partitions], timeout)

    async def rewind(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Set the offsets of a group, also while it has members: they continue from there. Returns the new offsets.

        An extension of kafkalite; Apache Kafka fails with UnsupportedVersionError.

        Arguments:
            group: its id.
            offsets: the next record to read.
        """
        return await self._rewind(
            group,
            offsets,
            lambda number, offset: RewoundTopic.RewoundPartition(partition_index=number, offset=offset),
            timeout,
        )

    async def rewind_to_times(
        self, group: str, times: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Rewind as `rewind`, to times that the broker looks up. Returns the new offsets.

        Arguments:
            group: its id.
            times: in ms since 1970; -2 = the log start, -1 = the log end.
        """
        return await self._rewind(
            group,
            times,
            lambda number, time_ms: RewoundTopic.RewoundPartition(partition_index=number, timestamp=time_ms),
            timeout,
        )

    async def _rewind(
        self,
        group: str,
        positions: Mapping[TopicPartition, int],
        partition: Callable[[int, int], RewoundTopic.RewoundPartition],
        timeout: float | None,
    ) -> Outcomes[TopicPartition, int]:
        wanted = {TopicPartition(*each): position for each, position in positions.items()}

        def build(keys: Collection[TopicPartition]) -> RewindConsumerRequest:
            topics = topics_of(keys, RewoundTopic, lambda each: partition(each.partition, wanted[each]))
            return RewindConsumerRequest(group_id=group, topics=topics)

        operation: Operation[TopicPartition, int] = Operation(RewindConsumerRequest, build, _rewound, lambda _: group)
        return await self._driver.run(operation, wanted, timeout)


def _listed(
    response: OffsetFetchResponse, _: object
) -> Iterator[tuple[str, dict[TopicPartition, Committed] | KafkaError]]:
    for group in response.groups:
        yield group.group_id, _offsets_of(group)


def _offsets_of(group: OffsetFetchResponse.OffsetFetchResponseGroup) -> dict[TopicPartition, Committed] | KafkaError:
    if group.error_code:
        return error_for(group.error_code)
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            if each.error_code:
                return error_for(each.error_code)
            if each.committed_offset >= 0:
                partition = TopicPartition(topic.name, each.partition_index)
                found[partition] = Committed(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
    return dict(sorted(found.items()))


def _commit(group: str, offsets: Mapping[TopicPartition, Committed]) -> OffsetCommitRequest:
    def partition(each: TopicPartition) -> CommitTopic.OffsetCommitRequestPartition:
        return CommitTopic.OffsetCommitRequestPartition(
            partition_index=each.partition,
            committed_offset=offsets[each].offset,
            committed_leader_epoch=offsets[each].leader_epoch,
            committed_metadata=offsets[each].metadata,
        )

    return OffsetCommitRequest(group_id=group, member_id="", topics=topics_of(offsets, CommitTopic, partition))


def _committed(response: OffsetCommitResponse, _: object) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
    return results_by_partition(response.topics, no_result)


def _deleted(response: OffsetDeleteResponse, _: object) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
    require(response.error_code)
    return results_by_partition(response.topics, no_result)


def _rewound(response: RewindConsumerResponse, _: object) -> Iterator[tuple[TopicPartition, int | KafkaError]]:
    return results_by_partition(response.topics, lambda each: each.offset)
