"""Apache Kafka 3.9 with ZooKeeper and AclAuthorizer, as the authorisation matrix uses it.

`python -m tests.kit.zookeeper_authorizer` records where its answers differ from those of Apache Kafka 4.4.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkalite._speedups.codec import encode_request
from kafkalite.errors import KafkaError
from kafkalite.net.client import ClientConnection
from kafkalite.state.authorizer.acls import AclOperation
from tests.kit import jvm
from tests.kit.authorization_cases import Case, Phase, cases, phases
from tests.kit.authorization_matrix import Answers, run, write_difference
from tests.kit.brokers import SETTINGS as SMALL
from tests.kit.ports import free_port
from tests.kit.secured_authorizer import PLAIN_USERS, SETTINGS, kafka_world
from tests.kit.zookeeper import start_zookeeper

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
TICK_MS = 2_000  # the broker is not restarted, so its session may be long
ANY_ID = bytes(range(16))
NEWER = {AclOperation.TWO_PHASE_COMMIT}
BY_ID = {"Produce v13"}  # older versions have no field for the id


@contextmanager
def authorizing_kafka_zookeeper(directory: Path, *, everyone: bool = False) -> Iterator[tuple[str, str]]:
    """A running Apache Kafka 3.9; returns the addresses of the plaintext and of the SASL listener."""
    ports = free_port(), free_port()
    listeners = f"PLAINTEXT://{jvm.HOST}:{ports[0]},SASL_PLAINTEXT://{jvm.HOST}:{ports[1]}"
    settings = {
        **SMALL,
        **SETTINGS,
        "authorizer.class.name": ACL_AUTHORIZER,
        "allow.everyone.if.no.acl.found": str(everyone).lower(),
        "listeners": listeners,
        "sasl.enabled.mechanisms": "PLAIN",
        "zookeeper.session.timeout.ms": str(20 * TICK_MS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    }
    zookeeper = start_zookeeper(directory, tick_ms=TICK_MS)
    try:
        with jvm.start_kafka(
            jvm.PREVIOUS, directory, heap="512m", port=ports[0], overrides=settings, zookeeper=zookeeper.address
        ):
            yield f"{jvm.HOST}:{ports[0]}", f"{jvm.HOST}:{ports[1]}"
    finally:
        zookeeper.kill()


async def served(address: str) -> frozenset[str]:
    """The labels of the cases that the broker serves, in their version or in an older one."""
    host, port = address.split(":")
    async with ClientConnection(host, int(port)) as connection:
        return frozenset(each.label for each in cases(ANY_ID, ANY_ID) if is_served(connection, each)) - BY_ID


def known_phases() -> list[Phase]:
    """The sets of ACLs without operations that 3.9 does not know."""
    return [each for each in phases() if not any(acl.operation in NEWER for _, acl in each.acls)]


def is_served(connection: ClientConnection, case: Case) -> bool:
    try:
        version = connection.version(type(case.request), case.version)
        encode_request(case.request, version, 0, "")
    except (KafkaError, ValueError):
        return False
    return True


async def ask(addresses: tuple[str, str], *, everyone: bool) -> Answers:
    labels = await served(addresses[0])
    wanted = [each for each in known_phases() if each.everyone == everyone]
    async with kafka_world(*addresses) as world:
        return await run(world, wanted, {each.label: labels for each in wanted})


def record() -> None:
    """Write the differences of 3.9."""
    answers: Answers = {}
    for everyone in (False, True):
        with (
            tempfile.TemporaryDirectory() as directory,
            authorizing_kafka_zookeeper(Path(directory), everyone=everyone) as found,
        ):
            for label, by_phase in asyncio.run(ask(found, everyone=everyone)).items():
                answers.setdefault(label, {}).update(by_phase)
    write_difference(answers)
    sys.stdout.write(f"{sum(map(len, answers.values()))} cases\n")


if __name__ == "__main__":
    record()
