"""Partitions: offsets, deletion of records, producers, leader elections and reassignments."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import (
    Operation,
    by_topic,
    check_result,
    is_address,
    no_result,
    require,
    results_by_partition,
    topics_of,
)
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.admin.topic_types import ProducerState, Reassignment
from kafkalite_sdk.values import ListedOffset

if TYPE_CHECKING:  # each method imports the messages that it sends
    from kafkalite.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from kafkalite.protocol.messages.delete_records import DeleteRecordsResponse
    from kafkalite.protocol.messages.describe_producers import DescribeProducersResponse
    from kafkalite.protocol.messages.elect_leaders import ElectLeadersResponse
    from kafkalite.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
    from kafkalite_sdk.admin.segments import PartitionSegments

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
HIGH_WATERMARK = -1
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}

OffsetTopic = ListOffsetsRequest.ListOffsetsTopic


class Election(IntEnum):
    """The kind of a leader election."""

    PREFERRED = 0
    UNCLEAN = 1


class Partitions:
    """The partitions of a cluster.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> Outcomes[TopicPartition, ListedOffset]:
        """Find offsets.

        Arguments:
            times: for each partition a time in ms since 1970 (the first record at that time or later), EARLIEST, LATEST
                or MAX_TIMESTAMP.
            isolation_level: with "read_committed", LATEST is the last stable offset.
        """
        level = ISOLATION_LEVELS.get(isolation_level)
        if level is None:
            raise ValueError(f"isolation_level is {isolation_level!r}, expected one of {', '.join(ISOLATION_LEVELS)}")
        wanted = {TopicPartition(*each): time_ms for each, time_ms in times.items()}
        operation: Operation[TopicPartition, ListedOffset] = Operation(
            ListOffsetsRequest,
            lambda keys: _offsets_request({key: wanted[key] for key in keys}, level),
            _offsets,
            is_address,
        )
        return await self._driver.run(operation, wanted, timeout)

    async def segments(
        self, starts: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> "Outcomes[TopicPartition, PartitionSegments]":
        """List the segments of partitions with their sizes (kafkalite only; else UnsupportedVersionError).

        Arguments:
            starts: for each partition an offset; the first listed segment is the last one that begins there or below.
        """
        from kafkalite_sdk.admin.segments import list_segments

        return await list_segments(
            self._driver, {TopicPartition(*each): offset for each, offset in starts.items()}, timeout
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Delete the records before an offset. The results are the new log start offsets.

        Arguments:
            before: the offset of each partition, HIGH_WATERMARK = all records.
        """
        wanted = {TopicPartition(*each): offset for each, offset in before.items()}

        from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest

        deleted = DeleteRecordsRequest.DeleteRecordsTopic

        def build(keys: list[TopicPartition]) -> DeleteRecordsRequest:
            partition = deleted.DeleteRecordsPartition
            topics = topics_of(
                keys, deleted, lambda each: partition(partition_index=each.partition, offset=wanted[each])
            )
            return DeleteRecordsRequest(topics=topics, timeout_ms=self._driver.request_timeout_ms)

        operation: Operation[TopicPartition, int] = Operation(DeleteRecordsRequest, build, _deleted, is_address)
        return await self._driver.run(operation, wanted, timeout)

    async def producers(
        self, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
        """Describe the active producers of partitions (KIP-664).

        Arguments:
            partitions: to describe.
        """

        from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest

        def build(keys: list[TopicPartition]) -> DescribeProducersRequest:
            topic = DescribeProducersRequest.TopicRequest
            topics = [topic(name=name, partition_indexes=indexes) for name, indexes in by_topic(keys).items()]
            return DescribeProducersRequest(topics=topics)

        operation: Operation[TopicPartition, tuple[ProducerState, ...]] = Operation(
            DescribeProducersRequest, build, _producers, is_address
        )
        return await self._driver.run(operation, [TopicPartition(*each) for each in partitions], timeout)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition],
        *,
        election: Election = Election.PREFERRED,
        timeout: float | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Elect the leaders of partitions (KIP-460). ElectionNotNeededError: the partition has this leader already.

        Arguments:
            partitions: whose leaders are elected.
            election: PREFERRED, or UNCLEAN: a replica that is not in sync may become the leader, which loses records.
        """

        from kafkalite.protocol.messages.elect_leaders import ElectLeadersRequest

        def build(keys: list[TopicPartition]) -> ElectLeadersRequest:
            topic = ElectLeadersRequest.TopicPartitions
            topics = [topic(topic=name, partitions=indexes) for name, indexes in by_topic(keys).items()]
            return ElectLeadersRequest(
                election_type=election, topic_partitions=topics, timeout_ms=self._driver.request_timeout_ms
            )

        operation: Operation[TopicPartition, None] = Operation(ElectLeadersRequest, build, _elected)
        return await self._driver.run(operation, [TopicPartition(*each) for each in partitions], timeout)

    async def reassign(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Begin to move partitions to other brokers (KIP-455); `reassignments` lists those that have not ended.

        Arguments:
            replicas: the broker ids of each partition's new replicas; None = cancel its reassignment.
        """
        wanted = {TopicPartition(*each): brokers for each, brokers in replicas.items()}

        from kafkalite.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

        reassigned = AlterPartitionReassignmentsRequest.ReassignableTopic

        def build(keys: list[TopicPartition]) -> AlterPartitionReassignmentsRequest:
            topics = topics_of(keys, reassigned, lambda each: _new_replicas(each.partition, wanted[each]))
            return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=self._driver.request_timeout_ms)

        operation: Operation[TopicPartition, None] = Operation(AlterPartitionReassignmentsRequest, build, _reassigned)
        return await self._driver.run(operation, wanted, timeout)

    async def reassignments(
        self, partitions: Collection[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the partitions that are being reassigned.

        Arguments:
            partitions: only these; None = all.

        Raises:
            KafkaError: the reassignments cannot be read.
        """
        from kafkalite.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

        listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        topics = None
        if partitions is not None:
            topics = [listed(name=name, partition_indexes=each) for name, each in by_topic(partitions).items()]
        request = ListPartitionReassignmentsRequest(timeout_ms=self._driver.request_timeout_ms, topics=topics)
        operation: Operation[None, dict[TopicPartition, Reassignment]] = Operation(
            ListPartitionReassignmentsRequest, lambda _: request, _reassignments
        )
        return (await self._driver.run(operation, [None], timeout))[None]


def _offsets_request(times: Mapping[TopicPartition, int], level: int) -> ListOffsetsRequest:
    partition = OffsetTopic.ListOffsetsPartition
    topics = topics_of(
        times, OffsetTopic, lambda each: partition(partition_index=each.partition, timestamp=times[each])
    )
    return ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)


def _offsets(response: ListOffsetsResponse, _: object) -> Iterator[tuple[TopicPartition, ListedOffset | KafkaError]]:
    return results_by_partition(
        response.topics, lambda each: ListedOffset(each.offset, each.timestamp, each.leader_epoch)
    )


def _deleted(response: "DeleteRecordsResponse", _: object) -> Iterator[tuple[TopicPartition, int | KafkaError]]:
    return results_by_partition(response.topics, lambda each: each.low_watermark)


def _producers(
    response: "DescribeProducersResponse", _: object
) -> Iterator[tuple[TopicPartition, tuple[ProducerState, ...] | KafkaError]]:
    return results_by_partition(response.topics, _producer_states)


def _producer_states(
    partition: "DescribeProducersResponse.TopicResponse.PartitionResponse",
) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for each in partition.active_producers
    )


def _elected(response: "ElectLeadersResponse", _: object) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
    require(response.error_code)
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            yield (
                TopicPartition(topic.topic, each.partition_id),
                check_result(each.error_code, each.error_message, None),
            )


def _new_replicas(
    index: int, brokers: Sequence[int] | None
) -> "AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition":
    from kafkalite.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

    return AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition(
        partition_index=index, replicas=None if brokers is None else list(brokers)
    )


def _reassigned(
    response: "AlterPartitionReassignmentsResponse", _: object
) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
    require(response.error_code, response.error_message)
    return results_by_partition(response.responses, no_result)


def _reassignments(
    response: "ListPartitionReassignmentsResponse", _: object
) -> Iterator[tuple[None, dict[TopicPartition, Reassignment]]]:
    require(response.error_code, response.error_message)
    yield (
        None,
        {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        },
    )
