"""Topics: list, describe, create, delete, and more partitions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.errors import KafkaError
from kafkalite.model import uuid_text
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, check_topic_result, operations_of
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.admin.topic_types import CreatedTopic, NewTopic, PartitionDescription, TopicDescription

if TYPE_CHECKING:
    from kafkalite_sdk.admin.topic_changes import TopicChanges

Described = MetadataResponse.MetadataResponseTopic


class Topics:
    """The topics of a cluster.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def list(self, *, internal: bool = True, timeout: float | None = None) -> tuple[TopicDescription, ...]:
        """Describe all topics, sorted by name.

        Arguments:
            internal: internal topics are included.

        Raises:
            KafkaError: the metadata cannot be read.
        """
        operation: Operation[None, tuple[TopicDescription, ...]] = Operation(
            MetadataRequest, lambda _: _metadata(None), _all_described
        )
        found = (await self._driver.run(operation, [None], timeout))[None]
        return tuple(each for each in found if internal or not each.internal)

    async def describe(
        self,
        *topics: str,
        authorized_operations: bool = False,
        auto_create: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[str, TopicDescription]:
        """Describe topics.

        Arguments:
            topics: names.
            auto_create: a broker with `auto.create.topics.enable` creates those that do not exist, with its defaults.
            authorized_operations: the operations are included that this client may use.
        """
        operation: Operation[str, TopicDescription] = Operation(
            MetadataRequest,
            lambda names: _metadata(names, operations=authorized_operations, create=auto_create),
            _described,
        )
        return await self._driver.run(operation, dict.fromkeys(topics), timeout)

    async def create(
        self, *topics: NewTopic | str, validate_only: bool = False, timeout: float | None = None
    ) -> Outcomes[str, CreatedTopic]:
        """Create topics. If the response is lost: OutcomeUnknownError, whose `made` is whether the topic exists now;
        None = the look-up for it has not ended within `timeout`.

        Arguments:
            topics: each with its settings, or a name for the broker's defaults.
            validate_only: the broker only checks whether it would create them.
        """
        new = (NewTopic(each) if isinstance(each, str) else each for each in topics)
        return await self._changes().create({each.name: each for each in new}, validate_only, timeout)

    async def delete(self, *topics: str, timeout: float | None = None) -> Outcomes[str, None]:
        """Delete topics and all their records. A lost response: as `create`; `made` is whether the topic is gone.

        Arguments:
            topics: names.
        """
        return await self._changes().delete(topics, timeout)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        replicas: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[str, None]:
        """Add partitions to topics.

        Arguments:
            counts: the new number of partitions of each topic.
            replicas: the broker ids of the replicas of each new partition, by topic; None = the broker chooses.
            validate_only: the broker only checks whether it would add them.
        """
        return await self._changes().create_partitions(counts, replicas or {}, validate_only, timeout)

    def _changes(self) -> "TopicChanges":
        from kafkalite_sdk.admin.topic_changes import TopicChanges  # its messages, which reads do not need

        return TopicChanges(self._driver, self.describe)


def _metadata(topics: Iterable[str] | None, *, operations: bool = False, create: bool = False) -> MetadataRequest:
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(
        topics=named, allow_auto_topic_creation=create, include_topic_authorized_operations=operations
    )


def _all_described(response: MetadataResponse, _: object) -> Iterator[tuple[None, tuple[TopicDescription, ...]]]:
    topics = [_description(each) for each in response.topics if each.name is not None and not each.error_code]
    yield None, tuple(sorted(topics, key=lambda each: each.name))


def _described(response: MetadataResponse, _: object) -> Iterator[tuple[str, TopicDescription | KafkaError]]:
    for each in response.topics:
        yield each.name or "", check_topic_result(each.error_code, None, each.name or "", _description(each))


def _description(topic: Described) -> TopicDescription:
    partitions = [
        PartitionDescription(
            each.partition_index,
            each.leader_id if each.leader_id >= 0 else None,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
    return TopicDescription(
        topic.name or "",
        uuid_text(topic.topic_id),
        topic.is_internal,
        tuple(partitions),
        operations_of(topic.topic_authorized_operations),
    )
