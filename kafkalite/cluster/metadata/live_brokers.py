"""The live brokers of a cluster: an immutable collection with the addresses of each listener.

A client gets the addresses of the listener that its connection uses. A broker without that listener is left out.
Source: ZkMetadataCache.scala (aliveBrokers, aliveNodes) of Apache Kafka 3.9.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkalite.model import Endpoint, Node


class BrokerImage(NamedTuple):
    """A live broker.

    Arguments:
        broker_id: its id.
        endpoints: the advertised address of each listener, by its name; empty for a broker that is alone, which clients
            reach at the address of their connection.
        rack: None = no rack.
    """

    broker_id: int
    endpoints: Mapping[str, Endpoint] = {}
    rack: str | None = None


class LiveBrokers:
    """The live brokers, in the order of their ids.

    Arguments:
        brokers: each id once; of several with one id, the last one counts.

    Attributes:
        ids: of all brokers.
    """

    __slots__ = ("_brokers", "_nodes", "_reachable", "ids")

    def __init__(self, brokers: Iterable[BrokerImage] = ()) -> None:
        by_id = {broker.broker_id: broker for broker in brokers}
        self._brokers = {broker_id: by_id[broker_id] for broker_id in sorted(by_id)}
        self.ids = frozenset(self._brokers)
        self._nodes: dict[str, dict[int, Node]] = {}
        self._reachable: dict[str, frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def __iter__(self) -> Iterator[BrokerImage]:
        return iter(self._brokers.values())

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self._brokers

    def __eq__(self, other: object) -> bool:
        return self._brokers == other._brokers if isinstance(other, LiveBrokers) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def get(self, broker_id: int) -> BrokerImage | None:
        """The broker of this id, None if it is not alive."""
        return self._brokers.get(broker_id)

    def nodes(self, listener: str) -> Mapping[int, Node]:
        """The brokers with this listener, by id, with the addresses that they advertise for it."""
        found = self._nodes.get(listener)
        if found is None:
            found = self._nodes[listener] = {
                broker.broker_id: Node(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
                for broker in self
                if (endpoint := broker.endpoints.get(listener)) is not None
            }
        return found

    def reachable(self, listener: str) -> frozenset[int]:
        """The ids of the brokers with this listener: `ids` itself if all have it, and for a broker that is alone."""
        found = self._reachable.get(listener)
        if found is None:
            found = frozenset(
                broker.broker_id for broker in self if listener in broker.endpoints or not broker.endpoints
            )
            found = self._reachable[listener] = self.ids if found == self.ids else found
        return found
