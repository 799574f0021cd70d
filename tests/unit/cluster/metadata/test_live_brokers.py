"""The live brokers of an image: addresses by listener, and which brokers a client can reach."""

from kafkalite.cluster.metadata.live_brokers import BrokerImage, LiveBrokers
from kafkalite.model import Endpoint, Node


def broker(broker_id: int, rack: str | None = None, **ports: int) -> BrokerImage:
    return BrokerImage(
        broker_id, {name: Endpoint(name, f"{name}-{broker_id}", port) for name, port in ports.items()}, rack
    )


def test_nodes_are_those_of_the_listener_in_the_order_of_ids() -> None:
    brokers = LiveBrokers((broker(3, INTERNAL=30, EXTERNAL=31), broker(1, "r1", INTERNAL=10), broker(2, EXTERNAL=21)))
    assert list(brokers.nodes("INTERNAL").values()) == [Node(1, "INTERNAL-1", 10, "r1"), Node(3, "INTERNAL-3", 30)]
    assert list(brokers.nodes("EXTERNAL")) == [2, 3]
    assert brokers.nodes("OTHER") == {}
    assert [each.broker_id for each in brokers] == [1, 2, 3]


def test_broker_without_the_listener_is_not_reachable() -> None:
    brokers = LiveBrokers((broker(1, INTERNAL=10, EXTERNAL=11), broker(2, INTERNAL=20)))
    assert brokers.reachable("INTERNAL") is brokers.ids
    assert brokers.reachable("EXTERNAL") == {1}
    assert brokers.reachable("EXTERNAL") is brokers.reachable("EXTERNAL"), "compared by identity"
    assert brokers.reachable("OTHER") == frozenset()


def test_broker_that_is_alone_is_reachable_at_every_listener() -> None:
    brokers = LiveBrokers((BrokerImage(1),))
    assert brokers.reachable("ANY") is brokers.ids is brokers.reachable("OTHER")


def test_equal_brokers_are_equal() -> None:
    one, same = (LiveBrokers((broker(1, A=1), broker(2, A=2))) for _ in range(2))
    assert one == same
    assert one != LiveBrokers((broker(1, A=1),))
    assert one != LiveBrokers((broker(1, A=1), broker(2, A=3)))
    assert one != LiveBrokers((broker(1, A=1), broker(2, "rack", A=2)))
    assert one != [broker(1, A=1), broker(2, A=2)]


def test_broker_is_found_by_its_id() -> None:
    brokers = LiveBrokers((broker(1, A=1),))
    assert brokers.get(1) == broker(1, A=1)
    assert brokers.get(2) is None
    assert (1 in brokers, 2 in brokers, len(brokers)) == (True, False, 1)
