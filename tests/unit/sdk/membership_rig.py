"""A membership machine for tests, whose broker is the test: it takes the calls of the machine and answers them."""

import random
from typing import Any, TypeVar

from kafkalite_sdk.client.cluster_view import ClusterView
from kafkalite_sdk.membership.membership import Membership
from kafkalite_sdk.membership.settings import AssignmentChange, GroupCall, MembershipSettings

from kafkalite.errors import KafkaConnectionError, KafkaError
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.schema import Request, Response

TOPIC_IDS = {"a": b"a" * 16, "b": b"b" * 16}
R = TypeVar("R", bound=Request)


def partitions(*names: str) -> frozenset[TopicPartition]:
    """Partitions of names such as a0."""
    return frozenset(TopicPartition(name[:-1], int(name[-1])) for name in names)


class Rig:
    """The machine, its time and its open calls.

    Attributes:
        sizes: partitions of the topics that exist.
    """

    def __init__(self, topics: tuple[str, ...] = ("a",), **settings: Any) -> None:
        self.now = 100.0
        self.sizes = {"a": 2, "b": 1}
        self.ids = dict(TOPIC_IDS)
        self.view = ClusterView()
        self.membership = Membership(MembershipSettings("g", **settings), random.Random(1), self.view)
        self.calls: list[GroupCall] = []
        if topics:
            self.membership.subscribe(topics, now=self.now)
            self.membership.coordinator_found(self.now)

    @property
    def change(self) -> AssignmentChange:
        assert self.membership.change is not None, self.membership.state
        return self.membership.change

    def wait(self, seconds: float) -> None:
        """Time passes; the application polls."""
        self.now += seconds
        self.membership.poll(self.now)

    def due(self) -> list[GroupCall]:
        """The calls that are open."""
        if self.membership.needs_coordinator:
            self.membership.coordinator_found(self.now)
        self.calls += self.membership.requests(self.now)
        return self.calls

    def call(self, request: type[R]) -> tuple[GroupCall, R]:
        """The open call of this request."""
        for call in reversed(self.due()):
            if isinstance(call.request, request):
                return call, call.request
        raise AssertionError(f"no {request.__name__} among {[type(call.request).__name__ for call in self.calls]}")

    def sends(self, request: type[Request]) -> bool:
        return any(isinstance(call.request, request) for call in self.due())

    def answer(self, request: type[R], response: Response) -> R:
        """Answer the open call of a request; returns the request."""
        call, sent = self.call(request)
        self.calls.remove(call)
        self.membership.answered(call, response, self.now)
        return sent

    def fail(self, request: type[R], error: KafkaError | None = None) -> R:
        """The connection of a call is lost."""
        call, sent = self.call(request)
        self.calls.remove(call)
        self.membership.failed(call, error or KafkaConnectionError("lost"), self.now)
        return sent

    def done(self) -> None:
        self.membership.change_done(self.now)

    def answer_metadata(self) -> MetadataRequest:
        """Answer the machine's Metadata request."""
        return self.answer(MetadataRequest, self.metadata())

    def metadata(self) -> MetadataResponse:
        topic = MetadataResponse.MetadataResponseTopic
        found = [
            topic(name=name, topic_id=self.ids[name], partitions=[_partition(at) for at in range(count)])
            for name, count in self.sizes.items()
        ]
        return MetadataResponse(brokers=[], topics=found)


def _partition(index: int) -> MetadataResponse.MetadataResponseTopic.MetadataResponsePartition:
    return MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
    )
