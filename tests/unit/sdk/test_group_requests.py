"""The requests of a consumer to its coordinator, over a client whose responses are those of the test."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafkalite_sdk.client.cluster_view import ClusterView
from kafkalite_sdk.consumer.group_requests import GroupRequests
from kafkalite_sdk.membership.settings import CLASSIC, MembershipSettings

from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.schema import Request


class Client:
    """Knows a coordinator until it is forgotten; keeps what is submitted."""

    def __init__(self) -> None:
        self.known: int | None = 1
        self.lookups: list[Callable[[int], None]] = []
        self.sent: list[tuple[int, Request]] = []
        self.view = ClusterView()
        self.environment = SimpleNamespace(random=random.Random(1))
        self.owner = SimpleNamespace(guard=lambda function: function)

    def coordinator(self, group: str) -> int | None:
        return self.known

    def forget_coordinator(self, group: str) -> None:
        self.known = None

    def find_coordinator(self, group: str, kind: int, found: Callable[[int], None], failed: Any) -> None:
        self.lookups.append(found)

    def found(self, node: int) -> None:
        """The oldest lookup has ended."""
        self.known = node
        self.lookups.pop(0)(node)

    def submit(self, node: int, request: Request, *callbacks: Any, **options: Any) -> None:
        self.sent.append((node, request))


def test_requests_of_the_member_wait_while_a_commit_has_lost_the_coordinator() -> None:
    client = Client()
    settings = MembershipSettings("g", protocol=CLASSIC)
    requests = GroupRequests(settings, client, lambda: 100.0, lambda: None)  # type: ignore[arg-type]
    requests.membership.subscribe(["a"], now=100.0)
    requests.membership.coordinator_found(100.0)
    requests.commits.coordinator_lost = True
    requests.work(100.0)
    assert client.sent == [] and len(client.lookups) == 1
    client.found(2)
    requests.work(100.0)
    ((node, request),) = client.sent
    assert node == 2 and isinstance(request, JoinGroupRequest)
