"""What a client learns from Metadata, Produce and Fetch responses."""

from kafkalite_sdk.client.cluster_view import NO_LEADER, ClusterView, PartitionView

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ZERO_UUID, Node
from kafkalite.protocol.messages.metadata import MetadataResponse

Topic = MetadataResponse.MetadataResponseTopic
ID, OTHER_ID = b"a" * 16, b"b" * 16


def topic(name="t", leaders=((1, 0),), topic_id=ID, error=0):
    partitions = [
        Topic.MetadataResponsePartition(
            partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=[], isr_nodes=[]
        )
        for number, (leader, epoch) in enumerate(leaders)
    ]
    return Topic(error_code=error, name=name, topic_id=topic_id, partitions=partitions)


def metadata(*topics, brokers=(1, 2)):
    nodes = [MetadataResponse.MetadataResponseBroker(node_id=each, host=f"host{each}", port=9092) for each in brokers]
    return MetadataResponse(brokers=nodes, cluster_id="c", controller_id=1, topics=list(topics))


def test_a_new_topic_has_leaders_and_brokers():
    view = ClusterView()
    changes = view.update(metadata(topic(leaders=((1, 0), (2, 3)))))
    assert (changes.grown, changes.recreated, changes.leaders, changes.failed) == (["t"], [], True, {})
    assert [view.leader("t", number) for number in (-1, 0, 1, 2)] == [NO_LEADER, 1, 2, NO_LEADER]
    assert view.brokers[2] == Node(2, "host2", 9092) and view.name_of(ID) == "t"
    assert view.leader("unknown", 0) == NO_LEADER


def test_an_unchanged_topic_changes_nothing():
    view = ClusterView()
    view.update(metadata(topic()))
    changes = view.update(metadata(topic()))
    assert (changes.grown, changes.leaders) == ([], False)


def test_a_topic_that_grows_keeps_its_leaders():
    view = ClusterView()
    view.update(metadata(topic(leaders=((1, 5),))))
    changes = view.update(metadata(topic(leaders=((1, 5), (2, 0)))))
    assert changes.grown == ["t"] and view.leader("t", 1) == 2


def test_an_older_leader_epoch_is_ignored():
    view = ClusterView()
    view.update(metadata(topic(leaders=((1, 5),))))
    assert not view.update(metadata(topic(leaders=((2, 4),)))).leaders
    assert view.leader("t", 0) == 1
    assert view.update(metadata(topic(leaders=((2, 6),)))).leaders
    assert view.leader("t", 0) == 2


def test_metadata_without_leader_epochs_is_accepted():
    view = ClusterView()
    view.update(metadata(topic(leaders=((1, -1),))))
    assert view.update(metadata(topic(leaders=((2, -1),)))).leaders


def test_recreated_topic_accepts_any_epoch():
    view = ClusterView()
    view.update(metadata(topic(leaders=((1, 5), (1, 5)))))
    changes = view.update(metadata(topic(leaders=((2, 0),), topic_id=OTHER_ID)))
    assert (changes.recreated, changes.grown) == (["t"], ["t"])
    assert view.leader("t", 0) == 2 and view.leader("t", 1) == NO_LEADER
    assert view.name_of(ID) is None and view.name_of(OTHER_ID) == "t"


def test_a_retriable_error_keeps_what_is_known():
    view = ClusterView()
    view.update(metadata(topic()))
    changes = view.update(
        metadata(topic(leaders=(), topic_id=ZERO_UUID, error=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    )
    assert changes.failed == {"t": KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert view.leader("t", 0) == 1


def test_permanent_error_removes_the_topic():
    view = ClusterView()
    view.update(metadata(topic()))
    changes = view.update(metadata(topic(leaders=(), error=KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    assert changes.failed and "t" not in view.topics and view.name_of(ID) is None


def test_a_response_by_topic_id_finds_the_name():
    view = ClusterView()
    view.update(metadata(topic()))
    changes = view.update(metadata(topic(name=None, leaders=((2, 1),))))
    assert changes.leaders and view.leader("t", 0) == 2
    assert not view.update(metadata(topic(name=None, topic_id=OTHER_ID))).grown


def test_a_produce_response_names_the_new_leader():
    view = ClusterView()
    view.update(metadata(topic(leaders=((1, 5),))))
    new = Node(7, "host7", 9092)
    assert not view.leader_changed("t", 0, PartitionView(NO_LEADER, -1), [])
    assert not view.leader_changed("t", 0, PartitionView(7, 6), [])  # without an address it cannot be reached
    assert not view.leader_changed("t", 0, PartitionView(2, 4), [])  # older than what is known
    assert view.leader("t", 0) == 1
    assert view.leader_changed("t", 0, PartitionView(7, 6), [new])
    assert view.leader("t", 0) == 7 and view.brokers[7] == new
    assert not view.leader_changed("unknown", 0, PartitionView(2, 1), [])


def test_topics_without_ids_are_distinct_and_get_an_id_later():
    view = ClusterView()
    view.update(metadata(topic("a", topic_id=ZERO_UUID), topic("b", topic_id=ZERO_UUID)))
    view.forget("b")
    assert view.leader("a", 0) == 1 and view.name_of(ZERO_UUID) is None
    assert not view.update(metadata(topic("a"))).recreated
    assert view.name_of(ID) == "a"
    assert view.update(metadata(topic("a", topic_id=OTHER_ID))).recreated == ["a"]
