"""UpdateMetadata as a change of the image: partial and full requests, deletions, older versions, sharing, an oracle."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from kafkalite.cluster.metadata.image import (
    NO_PARTITION,
    UNASSIGNED_ID,
    ClusterImage,
    ClusterTables,
    PartitionImage,
    TopicImage,
)
from kafkalite.cluster.metadata.live_brokers import LiveBrokers
from kafkalite.cluster.metadata.update import (
    FULL,
    LEADER_DURING_DELETE,
    InvalidControllerRequestError,
    MetadataChange,
    MetadataUpdate,
)
from kafkalite.model import Endpoint
from kafkalite.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kafkalite.slicing import finish
from tests.kit.record_engines import seed

Topic = UpdateMetadataRequest.UpdateMetadataTopicState
Broker = UpdateMetadataRequest.UpdateMetadataBroker
Listener = Broker.UpdateMetadataEndpoint
ID, OTHER_ID = b"\1" * 16, b"\2" * 16
EMPTY = ClusterImage("cluster", -1)
INCREMENTAL = 1


def state(index: int, leader: int = 1, epoch: int = 0, **more: Any) -> UpdateMetadataPartitionState:
    fields: dict[str, Any] = {"controller_epoch": 1, "isr": [1], "zk_version": 0, "replicas": [1], **more}
    return UpdateMetadataPartitionState(partition_index=index, leader=leader, leader_epoch=epoch, **fields)


def topic(name: str, *states: UpdateMetadataPartitionState, topic_id: bytes = ID) -> Topic:
    return Topic(topic_name=name, topic_id=topic_id, partition_states=list(states))


def request(*topics: Topic, brokers: list[Broker] | None = None, kind: int = INCREMENTAL, **more: Any) -> Any:
    live = [broker(1)] if brokers is None else brokers
    return UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, type=kind, topic_states=list(topics), live_brokers=live, **more
    )


def broker(broker_id: int, *listeners: Listener, rack: str | None = None) -> Broker:
    named = listeners or (Listener(port=9092, host=f"h{broker_id}", listener="PLAINTEXT", security_protocol=0),)
    return Broker(id=broker_id, endpoints=list(named), rack=rack)


def applied(image: ClusterImage, asked: UpdateMetadataRequest) -> MetadataChange:
    change = finish(MetadataUpdate(image, asked).steps())
    assert isinstance(change, MetadataChange)
    return change


def after(image: ClusterImage, asked: UpdateMetadataRequest) -> ClusterImage:
    return applied(image, asked).image


def test_image_holds_everything_that_the_request_carries() -> None:
    sent = state(0, 2, 7, controller_epoch=5, isr=[2, 3], zk_version=9, replicas=[2, 3, 4], offline_replicas=[4])
    internal = Listener(port=9093, host="in", listener="INTERNAL", security_protocol=1)
    asked = request(topic("t", sent), brokers=[broker(2, internal, rack="r")])
    asked.controller_id, asked.controller_epoch = 3, 6
    image = after(EMPTY, asked)
    assert image.topics["t"] == TopicImage("t", ID, (PartitionImage((2, 3, 4), (2, 3), 2, 7, 9, 5, (4,)),))
    assert image.topics_by_id[ID] is image.topics["t"] is image.topics_by_folded_name["t"]
    assert (image.cluster_id, image.controller_id, image.controller_epoch) == ("cluster", 3, 6)
    found = image.brokers.get(2)
    assert found is not None
    assert (found.endpoints, found.rack) == ({"INTERNAL": Endpoint("INTERNAL", "in", 9093, "SSL")}, "r")


def test_partitions_that_are_not_named_stay_and_brokers_are_replaced() -> None:
    image = after(EMPTY, request(topic("a", state(0), state(1)), topic("b", state(0), topic_id=OTHER_ID)))
    later = after(image, request(topic("a", state(1, epoch=1)), brokers=[broker(2)]))
    assert [part.leader_epoch for part in later.topics["a"].partitions] == [0, 1]
    assert later.topics["b"] is image.topics["b"]
    assert later.brokers.ids == {2}
    assert image.brokers.ids == {1}, "an image never changes"
    assert [part.leader_epoch for part in image.topics["a"].partitions] == [0, 0]


def test_full_request_removes_what_it_does_not_name_without_counting_it_as_deleted() -> None:
    image = after(EMPTY, request(topic("a", state(0), state(1)), topic("b", state(0), topic_id=OTHER_ID)))
    change = applied(image, request(topic("a", state(0)), kind=FULL))
    assert list(change.image.topics) == ["a"]
    assert list(change.image.topics_by_id) == [ID]
    assert list(change.image.topics_by_folded_name) == ["a"]
    assert len(change.image.topics["a"].partitions) == 1
    assert (change.changed, change.removed, change.deleted, change.deletions) == (("a",), ("b",), (), {})


def test_topic_is_deleted_with_its_last_partition() -> None:
    image = after(EMPTY, request(topic("t", state(0), state(1))))
    first = applied(image, request(topic("t", state(0, LEADER_DURING_DELETE))))
    assert first.image.topics["t"].partitions[0] is NO_PARTITION
    assert first.image.topics["t"].partition(0) is None
    assert (first.deleted, first.deletions) == ((), {"t": ID})
    last = applied(first.image, request(topic("t", state(1, LEADER_DURING_DELETE))))
    assert (dict(last.image.topics), dict(last.image.topics_by_id), last.deleted) == ({}, {}, ("t",))


def test_deletion_of_an_unknown_topic_is_reported_with_its_id() -> None:
    change = applied(EMPTY, request(topic("t", state(3, LEADER_DURING_DELETE))))
    assert (dict(change.image.topics), change.deleted, change.deletions) == ({}, (), {"t": ID})


def test_partitions_may_arrive_in_any_order() -> None:
    image = after(EMPTY, request(topic("t", state(2))))
    assert [image.topics["t"].partition(index) is None for index in (-1, 0, 1, 2, 3)] == [True, True, True, False, True]
    filled = applied(image, request(topic("t", state(0), state(1))))
    assert [filled.image.topics["t"].partition(index) is None for index in range(3)] == [False] * 3
    assert filled.changed == (), "the number of partitions was known before"


def test_topic_with_another_id_is_another_topic() -> None:
    image = after(EMPTY, request(topic("t", state(0), state(1))))
    change = applied(image, request(topic("t", state(0, epoch=4), topic_id=OTHER_ID)))
    assert change.image.topics["t"] == TopicImage("t", OTHER_ID, (PartitionImage((1,), (1,), 1, 4, 0, 1),))
    assert (list(change.image.topics_by_id), change.changed, change.deleted) == ([OTHER_ID], ("t",), ())


def test_request_without_ids_keeps_the_partitions_and_removes_the_id() -> None:
    image = after(EMPTY, request(topic("t", state(0))))
    later = after(image, request(topic("t", state(1), topic_id=UNASSIGNED_ID)))
    assert (later.topics["t"].topic_id, len(later.topics["t"].partitions)) == (UNASSIGNED_ID, 2)
    assert not later.topics_by_id


def test_unchanged_objects_are_kept() -> None:
    asked = request(topic("t", state(0), state(1)))
    image = after(EMPTY, asked)
    change = applied(image, asked)
    assert change.image.topics["t"] is image.topics["t"]
    assert change.image.brokers is image.brokers
    assert change.changed == ()


def test_equal_states_are_one_object() -> None:
    states = [state(index, replicas=[3, 4], isr=[3, 4]) for index in range(100)]
    moved = [state(index, epoch=index, replicas=[3, 4], isr=[3, 4]) for index in range(100)]
    image = after(EMPTY, request(topic("t", *states), topic("u", *moved, topic_id=OTHER_ID)))
    assert len({id(part) for part in image.topics["t"].partitions}) == 1
    parts = image.topics["u"].partitions
    assert len({id(part) for part in parts[1:]}) == 99
    assert len({id(ids) for part in parts for ids in (part.replicas, part.isr)}) == 1


def test_versions_before_topics_and_listener_names() -> None:
    asked = UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        ungrouped_partition_states=[state(0, topic_name="a"), state(0, topic_name="b"), state(1, topic_name="a")],
        live_brokers=[
            Broker(id=1, v0_host="old", v0_port=1),
            Broker(id=2, endpoints=[Listener(port=2, host="h", security_protocol=3)]),
        ],
    )
    image = after(EMPTY, asked)
    assert {name: len(found.partitions) for name, found in image.topics.items()} == {"a": 2, "b": 1}
    assert not image.topics_by_id
    assert image.brokers.nodes("PLAINTEXT")[1].host == "old"
    assert list(image.brokers.nodes("SASL_SSL")) == [2]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (request(topic("t", state(-1))), "topic t: partition is -1, expected 0 to 99999"),
        (request(topic("t", state(100_000))), "topic t: partition is 100000"),
        (request(topic("../t", state(0))), "topic '../t'"),
        (
            request(brokers=[broker(1, Listener(port=1, host="h", listener="A", security_protocol=4))]),
            "broker 1: security protocol is 4, expected 0 to 3",
        ),
    ],
)
def test_impossible_contents_are_rejected(asked: UpdateMetadataRequest, reason: str) -> None:
    with pytest.raises(InvalidControllerRequestError, match=reason.replace("(", r"\(")):
        applied(EMPTY, asked)


def test_tables_follow_the_image() -> None:
    tables = ClusterTables("cluster", -1, LiveBrokers())
    image = after(tables.image, request(topic("t", state(0))))
    tables.swap(image)
    assert tables.image is image
    assert (tables.topics, tables.brokers) == (dict(image.topics), image.brokers)
    tables.remove("t")
    assert (list(tables.image.topics), list(image.topics)) == ([], ["t"])


class Oracle:
    """What a broker knows, as a dict of partitions."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[bytes, dict[int, tuple[int, int]]]] = {}

    def apply(self, asked: UpdateMetadataRequest) -> None:
        before = {} if asked.type == FULL else self.known
        after = dict(before)
        for each in asked.topic_states:
            topic_id, parts = after.get(each.topic_name, (each.topic_id, {}))
            parts = dict(parts) if topic_id == each.topic_id else {}
            for one in each.partition_states:
                if one.leader == LEADER_DURING_DELETE:
                    parts.pop(one.partition_index, None)
                else:
                    parts[one.partition_index] = one.leader, one.leader_epoch
            after[each.topic_name] = each.topic_id, parts
            if not parts:
                del after[each.topic_name]
        self.known = after


def known(topics: Mapping[str, TopicImage]) -> dict[str, tuple[bytes, dict[int, tuple[int, int]]]]:
    return {
        name: (
            found.topic_id,
            {
                at: (part.leader, part.leader_epoch)
                for at, part in enumerate(found.partitions)
                if part is not NO_PARTITION
            },
        )
        for name, found in topics.items()
    }


def random_request(random: Random) -> UpdateMetadataRequest:
    topics = []
    for name in random.sample("abc", random.randint(0, 3)):
        indexes = random.sample(range(5), random.randint(1, 5))
        topic_id = (ord(name) * 2 + (random.random() < 0.1)).to_bytes(16, "big")
        states = [
            state(at, LEADER_DURING_DELETE if random.random() < 0.3 else random.randint(-1, 3), random.randint(0, 3))
            for at in indexes
        ]
        topics.append(topic(name, *states, topic_id=topic_id))
    return request(*topics, kind=FULL if random.random() < 0.1 else INCREMENTAL)


def test_random_requests_agree_with_the_oracle() -> None:
    random = Random(seed())
    image, oracle = EMPTY, Oracle()
    for _ in range(2_000):
        asked = random_request(random)
        change = applied(image, asked)
        before, image = image, change.image
        oracle.apply(asked)
        assert known(image.topics) == oracle.known
        assert {found.topic_id: found for found in image.topics.values()} == dict(image.topics_by_id)
        assert set(change.removed) == set(before.topics) - set(image.topics)
        assert set(change.deleted) <= set(change.removed)
