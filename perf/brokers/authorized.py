"""kafkalite with an authorizer and 10,000 ACLs, which allow the clients of the loads everything."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perf.brokers.base import BrokerError, Running
from perf.brokers.kafkalite import Kafkalite
from tests.kit.starting import killed_on_failure

if TYPE_CHECKING:  # `--help` works where confluent_kafka is not installed
    from confluent_kafka.admin import AclBinding

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLIENT = "User:ANONYMOUS"  # without a login
TOPICS = 4_996  # with two ACLs each
CREATED_AT_ONCE = 500


class KafkaliteAcls(Kafkalite):
    """kafkalite from this checkout."""

    name = "kafkalite-acls"
    title = "kafkalite with 10,000 ACLs"

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        """As `Broker.start`; the ACLs are created after the start."""
        # Until the first ACL exists, and gives the client of the loads all rights of the cluster.
        secured = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
        running = super().start(directory, {**secured, **(settings or {})})
        with killed_on_failure(running.process):
            create_acls(running)
        return running


def create_acls(running: Running) -> None:
    """Create the ACLs. Raises BrokerError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": running.address, "enable.metrics.push": False, "log_level": 2})
    wanted = list(acls())
    try:
        for first in range(0, len(wanted), CREATED_AT_ONCE):
            futures = admin.create_acls(wanted[first : first + CREATED_AT_ONCE], request_timeout=60.0)
            for future in futures.values():
                future.result(60.0)
    except KafkaException as error:
        raise BrokerError(f"{running.name}: an ACL was not created: {error}") from error


def acls() -> "Iterator[AclBinding]":
    """Those of the loads, which are found among prefixes and literal names, and those of other users."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    def allow(resource: object, name: str, pattern: object, user: str, operation: object) -> AclBinding:
        return AclBinding(resource, name, pattern, user, "*", operation, AclPermissionType.ALLOW)

    literal, everything = ResourcePatternType.LITERAL, AclOperation.ALL
    yield allow(ResourceType.BROKER, "kafka-cluster", literal, CLIENT, everything)
    yield allow(ResourceType.GROUP, "*", literal, CLIENT, everything)
    for prefix in "abcdefgh":
        yield allow(ResourceType.TOPIC, prefix, ResourcePatternType.PREFIXED, "User:other", everything)
    for letter in "pcrlmf":  # the first letters of the loads' topics
        yield allow(ResourceType.TOPIC, letter, ResourcePatternType.PREFIXED, CLIENT, everything)
    for number in range(TOPICS):
        for operation in (AclOperation.READ, AclOperation.WRITE):
            yield allow(ResourceType.TOPIC, f"topic-{number}", literal, "User:alice", operation)
