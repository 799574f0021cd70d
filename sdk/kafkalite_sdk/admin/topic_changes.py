"""Creates and deletes topics, and adds partitions. After a lost response it looks up whether a topic exists now."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from kafkalite.errors import KafkaError, KafkaErrorCode, OutcomeUnknownError
from kafkalite.model import uuid_text
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, check_topic_result
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.admin.topic_types import DEFAULT, CreatedTopic, NewTopic, TopicDescription

V = TypeVar("V")
Creatable = CreateTopicsRequest.CreatableTopic
Growth = CreatePartitionsRequest.CreatePartitionsTopic
Describe = Callable[..., Awaitable[Outcomes[str, TopicDescription]]]


class TopicChanges:
    """Changes of topics; the methods are those of `Topics`, with all arguments by position.

    Arguments:
        driver: sends the requests.
        describe: describes topics, `Topics.describe`.
    """

    def __init__(self, driver: Driver, describe: Describe) -> None:
        self._driver = driver
        self._describe = describe

    async def create(
        self, new: Mapping[str, NewTopic], validate_only: bool, timeout_s: float | None
    ) -> Outcomes[str, CreatedTopic]:
        """Create topics, given by name."""
        operation: Operation[str, CreatedTopic] = Operation(
            CreateTopicsRequest,
            lambda names: CreateTopicsRequest(
                topics=[_creatable(new[name]) for name in names],
                timeout_ms=self._driver.request_timeout_ms,
                validate_only=validate_only,
            ),
            _created,
        )
        left_s = self._driver.countdown(timeout_s)
        outcomes = await self._driver.run(operation, new, left_s())
        return outcomes if validate_only else await self._with_state(outcomes, left_s, "created")

    async def delete(self, topics: Iterable[str], timeout_s: float | None) -> Outcomes[str, None]:
        """Delete topics."""
        operation: Operation[str, None] = Operation(
            DeleteTopicsRequest,
            lambda names: DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16)) for name in names],
                topic_names=names,
                timeout_ms=self._driver.request_timeout_ms,
            ),
            _deleted,
        )
        left_s = self._driver.countdown(timeout_s)
        outcomes = await self._driver.run(operation, dict.fromkeys(topics), left_s())
        return await self._with_state(outcomes, left_s, "deleted")

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        replicas: Mapping[str, Sequence[Sequence[int]]],
        validate_only: bool,
        timeout_s: float | None,
    ) -> Outcomes[str, None]:
        """Add partitions."""
        operation: Operation[str, None] = Operation(
            CreatePartitionsRequest,
            lambda names: CreatePartitionsRequest(
                topics=[_growth(name, counts[name], replicas.get(name)) for name in names],
                timeout_ms=self._driver.request_timeout_ms,
                validate_only=validate_only,
            ),
            _grown,
        )
        return await self._driver.run(operation, counts, timeout_s)

    async def _with_state(self, outcomes: Outcomes[str, V], left_s: Callable[[], float], done: str) -> Outcomes[str, V]:
        """Add to each unknown outcome what is known: whether the topic exists now."""
        ended = dict(outcomes.ended)
        unknown = [name for name, error in ended.items() if isinstance(error, OutcomeUnknownError)]
        if not unknown:
            return outcomes
        outcomes.ignore_errors()  # they are replaced
        described = await self._describe(*unknown, timeout=left_s())
        described.ignore_errors()  # that a topic does not exist is a part of the outcome
        found = described.ended
        return Outcomes({name: _known(name, each, found.get(name), done) for name, each in ended.items()})


def _known(name: str, ended: V | KafkaError, found: object, done: str) -> V | KafkaError:
    """Return an unknown outcome with the state of its topic, and every other outcome as it is."""
    if found is None or not isinstance(ended, OutcomeUnknownError):
        return ended
    if isinstance(found, KafkaError) and found.code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ended
    exists = not isinstance(found, KafkaError)
    state = "exists now" if exists else "does not exist now"
    text = f"{ended}; topic {name} {state}: it may have been {done} by this request, or by another client"
    return OutcomeUnknownError(text, made=exists == (done == "created"))


def _creatable(new: NewTopic) -> Creatable:
    counts = (new.partitions, new.replication_factor) if new.replicas is None else (DEFAULT, DEFAULT)
    return Creatable(
        name=new.name,
        num_partitions=counts[0],
        replication_factor=counts[1],
        assignments=[
            Creatable.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (new.replicas or {}).items()
        ],
        configs=[Creatable.CreatableTopicConfig(name=key, value=value) for key, value in new.configs.items()],
    )


def _created(response: CreateTopicsResponse, _: object) -> Iterator[tuple[str, CreatedTopic | KafkaError]]:
    for each in response.topics:
        configs = None if each.configs is None else {config.name: config.value for config in each.configs}
        created = CreatedTopic(
            each.name, uuid_text(each.topic_id), each.num_partitions, each.replication_factor, configs
        )
        yield each.name, check_topic_result(each.error_code, each.error_message, each.name, created)


def _deleted(response: DeleteTopicsResponse, _: object) -> Iterator[tuple[str, KafkaError | None]]:
    for each in response.responses:
        name = each.name or ""
        yield name, check_topic_result(each.error_code, each.error_message, name, None)


def _growth(name: str, count: int, replicas: Sequence[Sequence[int]] | None) -> Growth:
    chosen = None
    if replicas is not None:
        chosen = [Growth.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in replicas]
    return Growth(name=name, count=count, assignments=chosen)


def _grown(response: CreatePartitionsResponse, _: object) -> Iterator[tuple[str, KafkaError | None]]:
    for each in response.results:
        yield each.name, check_topic_result(each.error_code, each.error_message, each.name, None)
