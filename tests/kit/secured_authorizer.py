"""Apache Kafka 4.4 with StandardAuthorizer, as the authorisation matrix uses it.

`python -m tests.kit.secured_authorizer` records its answers.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from kafkalite.net.client import ClientConnection
from kafkalite.net.sasl.plain import PlainClient
from kafkalite.protocol.messages.create_acls import CreateAclsRequest
from kafkalite.protocol.messages.delete_acls import DeleteAclsRequest
from kafkalite.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.protocol.schema import Request
from tests.kit.authorization_cases import PRINCIPAL, ROOT, Case, Phase, phases
from tests.kit.authorization_matrix import ANSWERS, TRIES_MAX, Answers, pack, run
from tests.kit.secure_kafka import PASSWORD, secure_kafka

PAUSE = threading.Event()  # is never set
USERS = {PRINCIPAL: "alice", ROOT: "root"}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required "
PLAIN_USERS = JAAS + " ".join(f'user_{name}="{PASSWORD}"' for name in USERS.values()) + ";"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;{ROOT}",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class KafkaWorld:
    """A running Kafka.

    Arguments:
        root: a connection of the super user without authentication.
        clients: connections of the users, by principal.
    """

    def __init__(self, root: ClientConnection, clients: dict[str, ClientConnection]) -> None:
        self._root = root
        self._clients = clients

    async def as_root(self, request: Request, version: int) -> Any:
        return await self._root.call(request, version_max=version)

    async def as_client(self, phase: Phase, case: Case) -> Any:
        return await self._clients[phase.user].call(case.request, version_max=case.version)

    async def pause(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, PAUSE.wait, 0.02)

    async def set_acls(self, phase: Phase) -> None:
        every = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        await self.as_root(DeleteAclsRequest(filters=[every]), 3)
        await self._until(0)
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for pattern, acl in phase.acls
        ]
        if creations:
            answer = await self.as_root(CreateAclsRequest(creations=creations), 3)
            assert not any(each.error_code for each in answer.results), answer
            await self._until(len(creations))

    async def _until(self, count: int) -> None:
        every = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        for _ in range(TRIES_MAX):
            answer = await self.as_root(every, 3)
            if sum(len(each.acls) for each in answer.resources) == count:
                return
            await self.pause()
        raise AssertionError(f"{count} ACLs: {answer}")


@contextmanager
def authorizing_kafka(directory: Path, *, everyone: bool = False) -> Iterator[tuple[str, str]]:
    """A running Kafka; returns the addresses of the plaintext and of the SASL listener."""
    settings = {**SETTINGS, "allow.everyone.if.no.acl.found": str(everyone).lower()}
    with secure_kafka(directory, settings) as running:
        yield running.plaintext, running.sasl_plaintext


@asynccontextmanager
async def kafka_world(plaintext: str, sasl: str) -> AsyncIterator[KafkaWorld]:
    """The matrix's view of a running Kafka."""
    async with AsyncExitStack() as stack:
        host, port = plaintext.split(":")
        root = await stack.enter_async_context(ClientConnection(host, int(port)))
        host, port = sasl.split(":")
        clients = {
            principal: await stack.enter_async_context(
                ClientConnection(host, int(port), sasl=PlainClient(name, PASSWORD))
            )
            for principal, name in USERS.items()
        }
        yield KafkaWorld(root, clients)


async def ask(addresses: tuple[str, str], wanted: list[Phase]) -> Answers:
    async with kafka_world(*addresses) as world:
        return await run(world, wanted)


def record() -> None:
    """Write the answers of Kafka."""
    answers: Answers = {}
    for everyone in (False, True):
        wanted = [each for each in phases() if each.everyone == everyone]
        with tempfile.TemporaryDirectory() as directory, authorizing_kafka(Path(directory), everyone=everyone) as found:
            for label, by_phase in asyncio.run(ask(found, wanted)).items():
                answers.setdefault(label, {}).update(by_phase)
    ANSWERS.write_text(pack(answers))
    sys.stdout.write(f"{sum(map(len, answers.values()))} cases\n")


if __name__ == "__main__":
    record()
