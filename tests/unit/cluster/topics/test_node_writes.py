"""The nodes that any broker writes: topics, partitions, deletions; also with lost responses."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.metadata.image import TopicImage, new_partition
from kafkalite.cluster.topics.node_writes import TopicWriter, too_large
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.coordination.znodes.controller import delete_topic_path
from kafkalite.errors import KafkaErrorCode
from tests.unit.cluster.controller.kit import TOPIC_ID, Service

OTHER_ID = bytes(range(1, 17))
PATH, CONFIGS = znodes.topic_path("orders"), znodes.topic_config_path("orders")


class Losing:
    """A session that loses the responses to the next changes, executed or not."""

    def __init__(self, session: Any, executed: bool) -> None:
        self._session, self._executed, self.lose = session, executed, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def create(self, path: str, data: bytes, then: Callable[[Outcome], object], **options: Any) -> None:
        self._change(lambda done: self._session.create(path, data, done, **options), then)

    def set(self, path: str, data: bytes, then: Callable[[Outcome], object], version: int) -> None:
        self._change(lambda done: self._session.set(path, data, done, version), then)

    def multi(self, operations: Any, then: Callable[[Outcome], object]) -> None:
        self._change(lambda done: self._session.multi(operations, done), then)

    def _change(self, change: Callable[[Any], object], then: Callable[[Outcome], object]) -> None:
        if not self.lose:
            change(then)
            return
        self.lose -= 1
        if self._executed:
            change(lambda _outcome: None)
        then(Outcome(error=ConnectionLossError()))


def topic(partitions: int = 2, topic_id: bytes = TOPIC_ID, name: str = "orders") -> TopicImage:
    return TopicImage(name, topic_id, (new_partition((1,)),) * partitions, {"retention.ms": "1"})


class Rig:
    """A writer and its results."""

    def __init__(self, executed: bool | None = None) -> None:
        self.service = Service()
        session = self.service.connect()
        self.writer = TopicWriter(session if executed is None else Losing(session, executed))
        self.errors: list[int] = []

    def node(self) -> znodes.TopicNode:
        return znodes.decode_topic(PATH, self.service.data(PATH))


def test_a_topic_has_its_node_and_configs_and_no_states() -> None:
    rig = Rig()
    rig.writer.create_topic(topic(), rig.errors.append)
    assert rig.errors == [0] and rig.node() == znodes.TopicNode(TOPIC_ID, {0: (1,), 1: (1,)})
    assert znodes.decode_configs(CONFIGS, rig.service.data(CONFIGS)) == {"retention.ms": "1"}
    assert not rig.service.exists(f"{PATH}/partitions")


def test_an_existing_topic_is_refused_and_unchanged() -> None:
    rig = Rig()
    rig.writer.create_topic(topic(), rig.errors.append)
    rig.writer.create_topic(topic(3, OTHER_ID), rig.errors.append)
    assert rig.errors == [0, KafkaErrorCode.TOPIC_ALREADY_EXISTS] and len(rig.node().replicas) == 2


def test_configs_that_are_left_without_a_topic_are_replaced() -> None:
    rig = Rig()
    rig.service.write(CONFIGS, znodes.encode_configs({"left": "over"}))
    rig.writer.create_topic(topic(), rig.errors.append)
    assert rig.errors == [0] and znodes.decode_configs(CONFIGS, rig.service.data(CONFIGS)) == {"retention.ms": "1"}


@pytest.mark.parametrize("executed", [True, False])
def test_a_creation_without_a_response_is_read_back(executed: bool) -> None:
    rig = Rig(executed)
    rig.writer.create_topic(topic(), rig.errors.append)
    assert rig.errors == [0 if executed else KafkaErrorCode.REQUEST_TIMED_OUT]
    assert rig.service.exists(PATH) == executed


def test_a_creation_without_a_response_finds_the_topic_of_another_request() -> None:
    rig = Rig(executed=False)
    rig.service.write(PATH, znodes.encode_topic(znodes.TopicNode(OTHER_ID, {0: (1,)})))
    rig.writer.create_topic(topic(), rig.errors.append)
    assert rig.errors == [KafkaErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_node_above_the_limit_of_zookeeper_is_refused() -> None:
    rig = Rig()
    rig.writer.create_topic(topic(100_000), rig.errors.append)
    assert rig.errors == [too_large(100_000)] and not rig.service.exists(PATH)


@pytest.mark.parametrize("executed", [None, True, False])
def test_partitions_are_added_and_the_old_ones_keep_their_replicas(executed: bool | None) -> None:
    rig = Rig(executed)
    node = znodes.TopicNode(TOPIC_ID, {0: (7,)}, adding={0: (8,)})
    rig.service.write(PATH, znodes.encode_topic(node))
    rig.writer.update_topic(topic(3), rig.errors.append)
    if executed is False:
        assert rig.errors == [KafkaErrorCode.REQUEST_TIMED_OUT] and rig.node() == node
    else:
        assert rig.errors == [0] and rig.node() == node._replace(replicas={0: (7,), 1: (1,), 2: (1,)})


def test_no_partitions_are_added_to_a_topic_that_has_them_or_does_not_exist_or_is_invalid() -> None:
    rig = Rig()
    rig.writer.update_topic(topic(2), rig.errors.append)
    rig.service.topic("orders", 2)
    rig.writer.update_topic(topic(2), rig.errors.append)
    rig.service.write(PATH, b"[]")
    rig.writer.update_topic(topic(2), rig.errors.append)
    missing, has_them, invalid = rig.errors
    assert (missing, has_them) == (
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.INVALID_PARTITIONS,
    ) and invalid == KafkaErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("executed", [None, True, False])
def test_a_deletion_is_requested(executed: bool | None) -> None:
    rig = Rig(executed)
    rig.writer.delete_topic(topic(1), rig.errors.append)
    made = executed is not False
    assert rig.errors == [0 if made else KafkaErrorCode.REQUEST_TIMED_OUT]
    assert rig.service.exists(delete_topic_path("orders")) == made
    rig.writer.delete_topic(topic(1), rig.errors.append)
    assert rig.errors[1] == 0, "also if it was requested before"
