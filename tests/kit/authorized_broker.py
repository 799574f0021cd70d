"""A broker in the test's loop with `StandardAuthorizer`, and connections with principals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kafkalite.protocol.schema import Request
from kafkalite.server.broker import Broker
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.server.security.authorization import AuditedAuthorizer
from kafkalite.state.authorizer.acls import AclBinding, parse_principal
from kafkalite.state.authorizer.standard import StandardAuthorizer
from tests.kit.authorization_cases import PRINCIPAL, ROOT, Case, Phase
from tests.kit.server import Hub, Wire


class AuthorizedBroker:
    """The matrix's view of a broker.

    Arguments:
        broker: without an authorizer until now.
    """

    def __init__(self, broker: RunningBroker) -> None:
        self.authorizer = StandardAuthorizer([parse_principal(ROOT)])
        broker.authorizer = AuditedAuthorizer(self.authorizer, broker.clock)
        self.broker = broker
        self.hub = Hub(broker)
        self._wires = {name: self.connect(name) for name in (PRINCIPAL, ROOT)}

    def connect(self, principal: str) -> Wire:
        """A connection of a principal."""
        return Wire(self.hub, principal=parse_principal(principal))

    def replace(self, acls: Iterable[AclBinding]) -> None:
        """Replace all ACLs."""
        by_pattern: dict[Any, list[Any]] = {each: [] for each in self.authorizer.patterns}
        for pattern, acl in acls:
            by_pattern.setdefault(pattern, []).append(acl)
        for pattern, of_pattern in by_pattern.items():
            self.authorizer.replace(pattern, of_pattern)

    async def set_acls(self, phase: Phase) -> None:
        self.authorizer.configure([parse_principal(ROOT)], allow_everyone=phase.everyone)
        self.replace(phase.acls)

    async def call(self, principal: str, request: Request, version: int) -> Any:
        """Send a request."""
        wire = self._wires[principal]
        if wire.closed:
            wire = self._wires[principal] = self.connect(principal)
        wire.send((request, version))
        return await wire.answer()

    async def as_root(self, request: Request, version: int) -> Any:
        return await self.call(ROOT, request, version)

    async def as_client(self, phase: Phase, case: Case) -> Any:
        return await self.call(phase.user, case.request, case.version)

    async def pause(self) -> None:
        await asyncio.sleep(0)


@asynccontextmanager
async def authorized(settings: Mapping[str, str] | None = None) -> AsyncIterator[AuthorizedBroker]:
    """A broker with an authorizer, without ACLs."""
    async with Broker(settings=settings) as broker:
        yield AuthorizedBroker(broker.running)
